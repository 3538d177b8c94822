"""Keys of events: numbered, distinguished by type, refused with a reason."""

from __future__ import annotations

import pytest
from hushstream.formats.events.keys import MAX_KEY, decode_key, encode_key, numbered
from hypothesis import given
from hypothesis import strategies as st

PART = (
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from(["", "a", "1", "True", "\n", '"\u2028'])
)
ROWS = st.lists(st.tuples(PART, PART), max_size=30)


@given(ROWS, st.integers(1, 2))
def test_every_event_gets_the_encoding_of_its_own_values(rows, parts):
    columns = [[row[part] for row in rows] for part in range(parts)]
    keys, key, wrong = numbered(columns, len(rows))
    assert len(set(keys)) == len(keys)
    assert [keys[k] for k in key] == [encode_key(row[:parts]) for row in rows]
    for row, k in zip(rows, key.tolist(), strict=True):
        reason = "missing_key" if None in row[:parts] else None
        reason = reason or ("empty_key" if "" in row[:parts] else None)
        assert wrong.get(k) == reason


def test_a_key_without_parts_is_one_key():
    keys, key, wrong = numbered([], 3)
    assert keys.tolist() == [b"[]"] and key.tolist() == [0, 0, 0] and not wrong


@pytest.mark.parametrize(("excess", "reason"), [(0, None), (1, "huge_key")])
def test_the_longest_key(excess, reason):
    text = "x" * (MAX_KEY - len('[""]') + excess)
    assert numbered([[text]], 1).wrong.get(0) == reason


def test_truth_values_are_no_numbers():
    keys, key, _ = numbered([[True, 1, 1, False, 0]], 5)
    assert [decode_key(keys[k]) for k in key] == [[True], [1], [1], [False], [0]]
    assert len(keys) == 4

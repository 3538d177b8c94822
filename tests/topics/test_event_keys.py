"""Keys of events: numbered once, told apart by type, refused for a reason, shared by threads."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hushstream.topics.event_keys import MAX_KEY, KeyTable, decode_key, encode_key
from hypothesis import given
from hypothesis import strategies as st

PART = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", "1", "True"])
ROWS = st.lists(st.tuples(PART, PART), max_size=30)


@given(st.lists(ROWS, max_size=6), st.integers(1, 2), st.integers(0, 40))
def test_every_event_gets_the_encoding_of_its_own_values(lists, parts, most):
    table = KeyTable(parts, most)
    for rows in lists:
        columns = [[row[part] for row in rows] for part in range(parts)]
        keys, key, wrong = table.of(columns, len(rows))
        assert len(set(keys)) == len(keys)
        assert [keys[k] for k in key] == [encode_key(row[:parts]) for row in rows]
        for row, k in zip(rows, key.tolist(), strict=True):
            reason = "missing_key" if None in row[:parts] else None
            reason = reason or ("empty_key" if "" in row[:parts] else None)
            assert wrong.get(k) == reason


def test_a_key_without_parts_is_one_key():
    keys, key, wrong = KeyTable(0).of([], 3)
    assert keys.tolist() == [b"[]"] and key.tolist() == [0, 0, 0] and not wrong


@pytest.mark.parametrize(("excess", "reason"), [(0, None), (1, "huge_key")])
def test_the_longest_key(excess, reason):
    text = "x" * (MAX_KEY - len('[""]') + excess)
    assert KeyTable(1).of([[text]], 1).wrong.get(0) == reason


def test_truth_values_are_no_numbers():
    keys, key, _ = KeyTable(1).of([[True, 1, 1, False, 0]], 5)
    assert [decode_key(keys[k]) for k in key] == [[True], [1], [1], [False], [0]]
    assert len(keys) == 4


def test_a_full_table_begins_again():
    table = KeyTable(1, most=2)
    for begin in range(0, 12, 4):
        values: list[Any] = [f"k{i}" for i in range(begin, begin + 4)]
        keys, key, _ = table.of([values], 4)
        assert [keys[k] for k in key] == [encode_key((v,)) for v in values]


def test_threads_share_a_table():
    table, wrong = KeyTable(1, most=300), []

    def work(offset: int) -> None:
        for begin in range(0, 2000, 50):
            values = [f"k{(begin + i * offset) % 1000}" for i in range(50)]
            keys, key, _ = table.of([values], 50)
            wrong.extend(v for v, k in zip(values, key, strict=True) if keys[k] != encode_key((v,)))

    threads = [threading.Thread(target=work, args=(n,)) for n in (1, 3, 7, 11)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong

"""Pairs of key and value: split as JSON reads them, named without ambiguity, counted once.

Covers: mechanisms/pair_scan.py
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from hushstream.errors import ContractError
from hushstream.formats.events.keys import encode_key
from hushstream.mechanisms.columns import Part, merge
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.pairs import PAIR, TAIL, homes, pairs_of, settled, split
from hypothesis import given
from hypothesis import strategies as st

HARD = ['"', "\\", ",", '",', '\\"', "],", "[", "\\\\", "\u2028"]
SCALAR = st.one_of(
    st.text(max_size=6), st.integers(-99, 10**20), st.booleans(), st.sampled_from(HARD)
)
HASHES = ["5b2261225dc2d8c110dcfcc9b9", "5b2261225d7c3832dde020d3d6"]
LISTS = st.lists(st.lists(SCALAR, min_size=2, max_size=4).map(tuple), min_size=1, max_size=9)


@given(LISTS)
def test_the_last_element_is_cut_off_and_the_rest_stays(lists: list[tuple[object, ...]]) -> None:
    texts = sorted({encode_key(one) for one in lists})  # type: ignore[arg-type]
    parts = split(Keys.of(texts))
    bare = [encode_key(tuple(json.loads(text)[:-1])) for text in texts]
    assert [parts.keys[row] for row in parts.key] == bare
    assert len(set(parts.keys)) == len(parts.keys)
    names = parts.names.tolist()
    assert [name[:-TAIL] for name in names] == bare
    assert len(set(names)) == len(texts)  # the hash distinguishes all of these
    last = [json.dumps(json.loads(text)[-1], ensure_ascii=False) for text in texts]
    alike = {(name[-TAIL:], value) for name, value in zip(names, last, strict=True)}
    assert len(alike) == len(set(last))  # the hash depends on the value alone


def test_the_hash_never_changes() -> None:
    """Stored rows of pairs are read by later versions."""
    names = split(Keys.of([b'["a","b"]', b'["a",1]'])).names.tolist()
    assert [name.hex() for name in names] == HASHES


def test_a_key_without_a_value_is_refused() -> None:
    for wrong in (b"[]", b"\x00" * 8):
        with pytest.raises(ContractError, match="lacks the value"):
            split(Keys.of([b'["a","b"]', wrong]))


def test_new_pairs_count_once_by_key_and_lane() -> None:
    keys = Keys.of([b'["a",1]', b'["a",2]', b'["b",1]', b'["a",1]'])
    parts = split(keys)
    lane = np.array([PAIR, PAIR, PAIR + 1, PAIR], np.uint8)
    part = merge([Part(parts.names, lane, np.full((4, 1), 7), np.zeros(0, np.int64))])
    assert len(part.key) == 3 and len(pairs_of(part)) == 3
    made = settled(part, np.ones(3, np.bool_))
    assert made.key.tolist() == [b'["a"]', b'["b"]']
    assert made.sums.tolist() == [[2], [1]] and made.lane.tolist() == [0, 1]
    assert not len(settled(part, np.zeros(3, np.bool_)).key)
    assert homes(made).tolist() == made.key.tolist()
    assert sorted(set(homes(part))) == made.key.tolist()


def test_the_value_of_a_total_stands_alone() -> None:
    found = split(Keys.of([b'["a,b"]', b"[1]", b'["a,b"]']))
    assert found.keys.tolist() == [b"[]"]
    first, second, third = found.names.tolist()
    assert first == third != second
    assert {name[:2] for name in (first, second)} == {b"[]"}
    keyed = split(Keys.of([b'["k","a,b"]'])).names.tolist()[0]
    assert keyed[-8:] == first[-8:]  # the hash depends on the value alone


def test_a_name_that_is_too_short_is_refused() -> None:
    short = Part(Keys.of([b"1234567"]), np.array([PAIR], np.uint8), np.ones((1, 1)), np.zeros(0))
    with pytest.raises(ContractError, match="too short"):
        homes(short)

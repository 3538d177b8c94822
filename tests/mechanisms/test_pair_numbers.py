"""Numbers as keys and pairs: kept in order, read back, and split as pairs are."""

from __future__ import annotations

import json

import numpy as np
from hushstream.mechanisms.pair_numbers import codes_of, keys_of, pairs_of
from hushstream.mechanisms.pairs import split


def test_keys_have_the_order_of_their_numbers_and_give_them_back() -> None:
    codes = np.array([0, 9, 10, 123_456, 9_999_999_999])
    keys = keys_of(codes)
    assert keys.tolist() == sorted(keys)
    assert codes_of(keys).tolist() == codes.tolist()
    assert codes_of(keys.take(np.zeros(0, np.intp))).tolist() == []


def test_pairs_are_lists_whose_last_part_is_the_value() -> None:
    pairs = pairs_of(np.array([3, 3, 4]), np.array([7, 8, 7]))
    assert [json.loads(one) for one in pairs] == [
        ["0000000003", "0000000007"], ["0000000003", "0000000008"], ["0000000004", "0000000007"],
    ]  # fmt: skip
    parts = split(pairs)
    assert codes_of(parts.keys)[parts.key].tolist() == [3, 3, 4]
    assert len(set(parts.names)) == 3

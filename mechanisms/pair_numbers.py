"""Numbered keys and pairs of a workload as the JSON lists that `pairs.split` reads."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .columns import I64
from .keys import Keys

DIGITS = 10
_WIDE = 2 + DIGITS


def keys_of(codes: NDArray[np.integer]) -> Keys:
    """(n,) keys of numbers below 10^10; their byte order is the order of the numbers.

    >>> keys_of(np.array([7])).tolist()
    [b'["0000000007"]']
    """
    return Keys.fixed(_framed(_texts(codes)))


def pairs_of(codes: NDArray[np.integer], items: NDArray[np.integer]) -> Keys:
    """(n,) keys of numbers, each followed by the number of a value.

    >>> pairs_of(np.array([7]), np.array([3])).tolist()
    [b'["0000000007","0000000003"]']
    """
    comma = np.full((len(codes), 1), ord(","), np.uint8)
    return Keys.fixed(_framed(np.concatenate([_texts(codes), comma, _texts(items)], axis=1)))


def codes_of(keys: Keys) -> I64:
    """(n,) numbers behind keys made by `keys_of`."""
    digits = keys.packed().reshape(len(keys), _WIDE + 2)[:, 2:-2].astype(np.int64) - ord("0")
    found: I64 = digits @ 10 ** np.arange(DIGITS - 1, -1, -1)
    return found


def _texts(codes: NDArray[np.integer]) -> NDArray[np.uint8]:
    """(n, 12) numbers in quotes."""
    digits = codes.astype(np.int64)[:, None] // 10 ** np.arange(DIGITS - 1, -1, -1) % 10
    quote = np.full((len(codes), 1), ord('"'), np.uint8)
    return np.concatenate([quote, (digits + ord("0")).astype(np.uint8), quote], axis=1)


def _framed(texts: NDArray[np.uint8]) -> NDArray[np.uint8]:
    ends = [np.full((len(texts), 1), ord(one), np.uint8) for one in "[]"]
    return np.concatenate([ends[0], texts, ends[1]], axis=1)

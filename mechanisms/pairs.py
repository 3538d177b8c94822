"""Pairs of a key and a value; an aggregate shard counts the distinct pairs of each key.

A record's key lists the value after the columns of the key. A part names a pair by the record's
key in full and eight bytes of a fixed hash of the value, so pairs of different keys never collide.
Privacy depends on that: otherwise one unit's pairs in several keys could displace pairs of a single
other key, and move it further than the bound allows. Two values of *one* key that collide count as
one: for any hash, a key counts a set, so all proofs for sets hold. With n values of a key, n²/2^65
are lost that way.

A row of a pair has the lane of its record plus `PAIR`. Names are injective: names of equal length
have keys of equal length.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import ContractError
from .columns import Part, merge, writeable
from .keys import Keys

PAIR = 2
"""Added to the lane of a row that names a pair."""
TAIL = 8
"""Bytes of a name after the key."""


class Split(NamedTuple):
    """Keys of records split into key and value."""

    keys: Keys  # (d,) distinct keys without the value
    key: NDArray[np.intp]  # (k,) row of `keys`
    names: Keys  # (k,) of the pairs


def split(keys: Keys) -> Split:
    """Split keys into key and value.

    Raises:
        ContractError: a key is not a JSON list of at least one scalar.
    """
    from .pair_scan import cuts

    k, data = len(keys), writeable(keys.data)
    cut, hashed = np.empty(k, np.int64), np.empty(k, np.uint64)
    if not cuts(data, keys.offsets, cut, hashed):
        raise ContractError("a key lacks the value that is counted in it")
    bare, row = _written(keys, cut, hashed, 0).unique()
    return Split(bare, row, _written(keys, cut, hashed, TAIL))


def _written(keys: Keys, cut: NDArray[np.int64], hashed: NDArray[np.uint64], tail: int) -> Keys:
    from .pair_scan import named

    size = int((cut - keys.offsets[:-1]).sum()) + len(cut) * (1 + tail)
    out, starts = np.empty(size, np.uint8), np.empty(len(cut) + 1, np.int64)
    named(writeable(keys.data), keys.offsets, cut, hashed, tail, out, starts)
    return Keys(out, starts)


def homes(part: Part) -> Keys:
    """(r,) the key of each row; that of a pair is without its value."""
    width = np.diff(part.key.offsets) - TAIL * (part.lane >= PAIR)
    if not (width >= 0).all():
        raise ContractError("the name of a pair is too short")
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(width)])
    within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], width)
    return Keys(part.key.data[np.repeat(part.key.offsets[:-1], width) + within], offsets)


def pairs_of(part: Part) -> NDArray[np.intp]:
    """Rows that name pairs."""
    return np.flatnonzero(part.lane >= PAIR)


def settled(part: Part, new: NDArray[np.bool_]) -> Part:
    """Count each pair that is new to its key and window once, as merged rows of keys.

    Args:
        part: merged rows of one micro-batch, all of them pairs; its totals are kept.
        new: (r,) whether no earlier micro-batch of the window had the pair.
    """
    rows = np.flatnonzero(new)
    sums = np.zeros((len(rows), part.sums.shape[1]), np.int64)
    sums[:, 0] = 1
    keys = homes(part).take(rows)
    return merge([Part(keys, (part.lane[rows] - PAIR).astype(np.uint8), sums, part.totals)])

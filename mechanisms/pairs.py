"""Pairs of a key and a value, of which an aggregate shard counts the distinct ones per key.

A record's key lists the value after the columns of the key. A part names a pair by the record's
key and eight bytes of a fixed hash of the value: keys stand there in full, so two pairs of
different keys never meet. That matters for privacy: if they could, one unit's pairs in several keys
could stand in the way of pairs of a single other key, and move it further than its bound says. Two
values of *one* key that meet are counted as one: whatever the hash is, what counts is a set per
key, and all that is proved of sets holds. With n values of a key, n²/2^65 are lost that way.

A row of a pair has the lane of its record plus `PAIR`. Names are injective: names of one length
have keys of one length.
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
    """Keys of records, each with a value behind it, taken apart."""

    keys: Keys  # (d,) distinct keys without the value
    key: NDArray[np.intp]  # (k,) row of `keys`
    names: Keys  # (k,) of the pairs


def split(keys: Keys) -> Split:
    """Take keys apart.

    Raises:
        ContractError: one is no JSON list of at least one scalar.
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
    """(r,) the key of each row: of a pair, without its value."""
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
    """Count pairs that are new to their key and window, once each, as merged rows of keys.

    Args:
        part: merged rows of one micro-batch, all of them pairs; its totals are kept.
        new: (r,) whether no earlier micro-batch of the window had the pair.
    """
    rows = np.flatnonzero(new)
    sums = np.zeros((len(rows), part.sums.shape[1]), np.int64)
    sums[:, 0] = 1
    keys = homes(part).take(rows)
    return merge([Part(keys, (part.lane[rows] - PAIR).astype(np.uint8), sums, part.totals)])

"""A maximum number of records of a unit, insertions and deletions alike, in log order.

A deletion is accepted only where the same unit has a live accepted insertion into the same cell
and window; other deletions are dropped silently. An accepted deletion is a record like any other:
it uses up the bound and moves the same sums by one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...columns import I64, Batch, Units
from .bounding import pair_hash

Bool = NDArray[np.bool_]

_MOST = 2**16 - 1
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def insertions(units: Units, batch: Batch) -> tuple[Units, Bool]:
    """Accept the first insertions that each unit's bound allows; drop every deletion.

    Returns the new unit state and (n,) whether each record was accepted.
    """
    accepted = batch.sign > 0
    accepted &= _ranks(batch.unit, accepted, units.left) < units.left[batch.unit]
    spent = np.bincount(batch.unit[accepted], minlength=len(units.left))
    return units._replace(left=units.left - spent), accepted


def _ranks(unit: NDArray[np.intp], counts: Bool, left: I64) -> I64:
    """(n,) insertions of the same unit before each record; zeros if no unit can run short."""
    rank = np.zeros(len(unit), np.int64)
    total = np.bincount(unit[counts], minlength=len(left))
    short = (total > left)[unit] & counts
    rows = np.flatnonzero(short)
    rows = rows[np.argsort(unit[rows], kind="stable")]
    if len(rows):
        owner = unit[rows]
        head = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]])
        rank[rows] = np.arange(len(rows)) - np.repeat(head, np.diff(np.r_[head, len(rows)]))
    return rank


class _Pairs(NamedTuple):
    """Pairs of the loaded units and of the slice, in (unit, hash) order."""

    code: NDArray[np.uint64]  # (s,) unit · 2^32 + hash, distinct
    live: NDArray[np.uint16]  # (s,) live insertions
    pair: NDArray[np.intp]  # (n,) pair of each record


def signed(units: Units, batch: Batch) -> tuple[Units, Bool]:
    """Accept insertions and deletions in log order, as far as bound and live records allow.

    Returns the new unit state and (n,) whether each record was accepted. Units with insertions
    alone are decided all at once; the records of a unit with a deletion one by one.
    """
    pairs = _pairs(units, batch)
    deletes = np.zeros(len(units.left), np.bool_)
    deletes[batch.unit[batch.sign < 0]] = True
    walked = deletes[batch.unit]
    simple = batch._replace(sign=np.where(walked, 0, batch.sign).astype(np.int8))
    units, accepted = insertions(units, simple)
    left, live = units.left.copy(), pairs.live.astype(np.int64)
    np.add.at(live, pairs.pair[accepted], 1)
    # A pair that overflows saturates, which can only refuse deletions.
    _walk(np.flatnonzero(walked), batch, pairs.pair, left, live, accepted)
    return _pack(pairs.code, np.minimum(live, _MOST).astype(np.uint16), left), accepted


def _walk(
    rows: NDArray[np.intp],
    batch: Batch,
    pair: NDArray[np.intp],
    left: I64,
    live: I64,
    accepted: Bool,
) -> None:
    """Decide ``rows`` one by one; changes ``left``, ``live`` and ``accepted``."""
    budget, alive = left.tolist(), live.tolist()
    columns = (rows, batch.unit[rows], pair[rows], batch.sign[rows])
    for row, unit, slot, sign in zip(*(c.tolist() for c in columns), strict=True):
        if budget[unit] > 0 and (sign > 0 or alive[slot] > 0):
            budget[unit] -= 1
            alive[slot] += sign
            accepted[row] = True
    left[:], live[:] = budget, alive


def _pairs(units: Units, batch: Batch) -> _Pairs:
    owner = np.repeat(np.arange(len(units.left), dtype=np.uint64), np.diff(units.start))
    old = (owner << _HALF) | units.pair
    hashed = pair_hash(batch.keys, batch.window).astype(np.uint64)
    new = (batch.unit.astype(np.uint64) << _HALF) | hashed[batch.key]
    code, pair = np.unique(np.concatenate([old, new]), return_inverse=True)
    live = np.zeros(len(code), np.uint16)
    live[pair[: len(old)]] = units.used[:, 0]
    return _Pairs(code, live, pair[len(old) :].astype(np.intp))


def _pack(code: NDArray[np.uint64], live: NDArray[np.uint16], left: I64) -> Units:
    kept = live > 0  # a pair without live insertions leaves no trace
    owner = (code[kept] >> _HALF).astype(np.int64)
    start = np.zeros(len(left) + 1, np.int64)
    np.cumsum(np.bincount(owner, minlength=len(left)), out=start[1:])
    return Units(left, start, (code[kept] & _LOW).astype(np.uint32), live[kept][:, None])

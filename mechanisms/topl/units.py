"""Accepted reports of a unit: the first about each slot, up to the unit's number of reports."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..columns import I64, Batch, Part, Units
from ..keys import Keys

U64 = NDArray[np.uint64]
_SLOT = np.uint64(32)  # keys are the slot above 32 bits of report bucket


def accept(units: Units, batch: Batch) -> tuple[Units, Part]:
    """Apply the bound in log order; return new unit state and reports by bucket.

    `Units.pair` holds the slots a unit has reported, `Units.left` the reports it has left. A
    deletion is ignored, because a report cannot be withdrawn.
    """
    live = np.flatnonzero(batch.sign > 0)
    unit = batch.unit[live]
    codes = batch.keys.codes()[batch.key[live]] if len(live) else np.empty(0, np.uint64)
    owner = np.repeat(np.arange(len(units.left)), np.diff(units.start))
    known = owner.astype(np.uint64) << _SLOT | units.pair
    pair = unit.astype(np.uint64) << _SLOT | codes >> _SLOT
    fresh = _firsts(pair, known)
    accepted = fresh[_rank(unit[fresh]) < units.left[unit[fresh]]]
    left = units.left - np.bincount(unit[accepted], minlength=len(units.left))
    return _grown(units, owner, unit[accepted], pair[accepted], left), _counted(codes[accepted])


def _firsts(pair: U64, known: U64) -> NDArray[np.intp]:
    """Positions, in log order, of first occurrences of pairs that are not known."""
    _, first = np.unique(pair, return_index=True)
    return np.sort(first[~np.isin(pair[first], known)])


def _rank(unit: NDArray[np.intp]) -> I64:
    """Number of earlier events of each event's unit."""
    order = np.argsort(unit, kind="stable")
    ranked = unit[order]
    begins = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1]))[: len(ranked)]
    rank = np.empty(len(unit), np.int64)
    rank[order] = np.arange(len(unit)) - np.repeat(begins, np.diff(np.append(begins, len(unit))))
    return rank


def _grown(
    units: Units, owner: NDArray[np.intp], unit: NDArray[np.intp], pair: U64, left: I64
) -> Units:
    """Units with one more pair for each accepted report, after the previous pairs."""
    whose = np.concatenate([owner, unit])
    order = np.argsort(whose, kind="stable")
    start = np.zeros(len(left) + 1, np.int64)
    start[1:] = np.bincount(whose, minlength=len(left)).cumsum()
    slots = np.concatenate([units.pair, (pair & np.uint64(0xFFFFFFFF)).astype(np.uint32)])
    used = np.concatenate([units.used, np.ones((len(unit), 1), np.uint16)])
    return Units(left, start, slots[order], used[order])


def _counted(codes: U64) -> Part:
    """Reports by bucket, without the slot."""
    bucket, count = np.unique(codes & np.uint64(0xFFFFFFFF), return_counts=True)
    lane = np.zeros(len(bucket), np.uint8)
    sums = count.astype(np.int64)[:, None]
    return Part(Keys.of_codes(bucket), lane, sums, np.zeros(0, np.int64))

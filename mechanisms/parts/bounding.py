"""Contribution bounds: limits on one privacy unit over all keys, triggers and windows together.

A bound is sequential in meaning: records are taken in log order, and each is accepted if the rest
of its unit's bound can pay for it. It is computed for a whole slice at once. Two facts make that
exact: the price of the n-th record of a (unit, key) pair only grows with n, and the rest of a
unit's bound never grows. So a pair that was refused once stays refused, and the price of every
record can be written down beforehand as if all earlier records of its pair had been accepted.

Guarantee, for neighbours that differ by all records of one unit: with m_kl the accepted records
of the unit in key k and lane l, ``Σ weight_l·m_kl² ≤ Bound.left`` for `quadratic`; at most
``left`` records and ``per_key`` of them per key for `records`. It holds for every input, every
cut of the stream into slices, and under collisions of the pair hash, which only overcharge.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from ...errors import ParameterError
from ..columns import I64, Batch, Units, pair_hash
from ..validate import at_least, one_of

RESERVED = np.uint32(0xFFFFFFFF)
"""A pair hash that no key has: what a mechanism keeps about a unit as a whole."""

MOST = 2**16 - 1  # records per pair and lane that `Units.used` can hold
_LARGEST_BUDGET = 2**40  # prices are clipped to budget + 1, so 2**22 records sum below 2**63


class Accepted(NamedTuple):
    """The decisions of `Bound.apply` on a slice of n records."""

    units: Units
    accepted: NDArray[np.bool_]  # (n,)
    first: NDArray[np.bool_]  # (n,) accepted, and the first of its (unit, key, window)


@dataclass(frozen=True)
class Bound:
    """A contribution bound.

    Attributes:
        kind: "quadratic" charges ``weights[lane]·(2m+1)`` for the record that raises the pair's
            count in its lane from m to m+1; "records" charges 1.
        left: the budget of one unit, in the same integer unit as ``weights``.
        weights: price factor per lane (quadratic only).
        per_key: most records of one unit in one key and window, all lanes together ("records"
            only).
        caps: most records of one unit in one key and window per lane (quadratic only).

    >>> Bound("quadratic", 9, (1,)).sensitivity2(), Bound("records", 7, (1,), 3).sensitivity2()
    (9, 19)
    """

    kind: Literal["quadratic", "records"]
    left: int
    weights: tuple[int, ...] = (1,)
    per_key: int = MOST
    caps: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        one_of("bound", self.kind, ("quadratic", "records"))
        at_least("budget", self.left, 1)
        at_least("per_key", self.per_key, 1)
        if self.left > _LARGEST_BUDGET or self.per_key > MOST:
            raise ParameterError("budget", self.left, "is too large for the state of a unit")
        for weight in self.weights:
            at_least("weights", weight, 1)
            if self.kind == "quadratic" and self.left > weight * MOST**2:
                raise ParameterError("budget", self.left, "is too large for the state of a unit")
        for cap in self.caps:
            at_least("caps", cap, 1)

    def sensitivity2(self) -> int:
        """Largest ``Σ weight·m²`` over keys, windows and lanes that one unit can reach."""
        if self.kind == "quadratic":
            return self.left
        full, rest = divmod(self.left, min(self.per_key, self.left))
        return full * min(self.per_key, self.left) ** 2 + rest**2

    def most_per_key(self) -> int:
        """Most records of one unit in one key and lane 0."""
        if self.kind == "records":
            return min(self.per_key, self.left)
        return min(math.isqrt(self.left // self.weights[0]), *self.caps[:1], MOST)

    def most_per_lane(self) -> I64:
        """(lanes,) most records of one unit in one key and lane, of a quadratic bound."""
        return np.asarray(self.caps or (MOST,) * len(self.weights), np.int64)

    def apply(self, units: Units, batch: Batch, lane: NDArray[np.intp]) -> Accepted:
        """Take the slice's records in order; ``lane`` (k,) is the lane of each key.

        Where the batch brings compiled loops, these do the work; both answer alike.

        Returns new unit state, (n,) which records were accepted, and which of them are the first
        accepted of their (unit, key) pair in this window.
        """
        if batch.loops is not None:
            done = cast(Accepted | None, batch.loops(self, units, batch, lane))
            if done is not None:
                return done
        slots = _pair_slots(units, batch)
        used = slots.used
        lanes = lane[batch.key]
        total = used.sum(axis=1, dtype=np.int64)[slots.slot]
        width = used.shape[1]
        cell = slots.slot * width + lanes
        flat = used.reshape(-1)  # (pair, lane) in one number
        if self.kind == "quadratic":
            rank = ranks(cell, len(flat))
            # In a (pair, lane) each record costs more than the one before, and the budget left only
            # falls: after a refusal all later ones are refused, so `rank` counts accepted records.
            seen = flat[cell].astype(np.int64) + rank
            price = np.asarray(self.weights, np.int64)[lanes] * (2 * seen + 1)
            price = np.where(seen < self.most_per_lane()[lanes], price, self.left + 1)
            price = np.minimum(price, self.left + 1)  # nobody can pay that; running sums stay small
            open_ = np.ones(len(price), np.bool_)
        else:
            open_ = total + ranks(slots.slot, len(used)) < self.per_key
            price = np.ones(len(open_), np.int64)
        accepted = open_.copy()
        accepted[open_] = greedy(price[open_], batch.unit[open_], units.left)
        rows = np.flatnonzero(accepted)
        first = _firsts(slots.slot[rows], rows, len(used), len(price))
        first &= total == 0
        spent = np.zeros(len(units.left), np.int64)
        np.add.at(spent, batch.unit[rows], price[rows])
        np.add.at(flat, cell[rows], np.uint16(1))
        return Accepted(_pack(units, slots, units.left - spent), accepted, first)


def _firsts(
    slot: NDArray[np.intp], rows: NDArray[np.intp], slots: int, n: int
) -> NDArray[np.bool_]:
    """(n,) which of ``rows``, in increasing order, are the first of their slot."""
    earliest = np.full(slots, n, np.intp)
    np.minimum.at(earliest, slot, rows)
    first = np.zeros(n, np.bool_)
    first[rows] = earliest[slot] == rows
    return first


class _Slots(NamedTuple):
    """All pairs of the loaded units and of the slice, in (unit, hash) order."""

    code: NDArray[np.uint64]  # (s,) unit · 2^32 + hash, distinct
    used: NDArray[np.uint16]  # (s, lanes) a fresh copy
    slot: NDArray[np.intp]  # (n,) pair of each record


def _pair_slots(units: Units, batch: Batch) -> _Slots:
    shift = np.uint64(32)
    owner = np.repeat(np.arange(len(units.left), dtype=np.uint64), np.diff(units.start))
    old = (owner << shift) | units.pair
    new = (batch.unit.astype(np.uint64) << shift) | hashes(batch)[batch.key]
    fresh, slot = np.unique(new, return_inverse=True)
    code, mine, theirs = _union(old, fresh)
    used = np.zeros((len(code), units.used.shape[1]), np.uint16)
    used[mine] = units.used
    return _Slots(code, used, theirs[slot])


def _union(
    old: NDArray[np.uint64], fresh: NDArray[np.uint64]
) -> tuple[NDArray[np.uint64], NDArray[np.intp], NDArray[np.intp]]:
    """Distinct values of both in order, and the place of each; ``fresh`` is sorted and distinct.

    ``old`` is sorted too wherever this function packed it, and then sorting is only merging.
    """
    both = np.concatenate([old, fresh])
    order = np.argsort(both, kind="stable")
    ordered = both[order]
    new = np.ones(len(both), np.bool_)
    new[1:] = ordered[1:] != ordered[:-1]
    place = np.empty(len(both), np.intp)
    place[order] = new.cumsum() - 1
    return ordered[new], place[: len(old)], place[len(old) :]


def hashes(batch: Batch) -> NDArray[np.uint64]:
    """(k,) hash of each key in the batch's window, never `RESERVED`."""
    return np.minimum(pair_hash(batch.keys, batch.window), RESERVED - 1).astype(np.uint64)


def _pack(units: Units, slots: _Slots, left: I64) -> Units:
    used = slots.used  # a pair that was never accepted leaves no trace
    live = used[:, 0] > 0 if used.shape[1] == 1 else used.any(axis=1)
    owner = (slots.code[live] >> np.uint64(32)).astype(np.int64)
    start = np.zeros(len(left) + 1, np.int64)
    np.cumsum(np.bincount(owner, minlength=len(left)), out=start[1:])
    pair = (slots.code[live] & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    return Units(left, start, pair, used[live])


def ranks(group: NDArray[np.intp], groups: int) -> I64:
    """(n,) how many earlier records are of the same group."""
    sizes = np.bincount(group, minlength=groups)
    if sizes.max(initial=0) <= 1:
        return np.zeros(len(group), np.int64)
    order = np.argsort(group, kind="stable")
    begin = np.zeros(groups + 1, np.int64)
    np.cumsum(sizes, out=begin[1:])
    rank = np.empty(len(group), np.int64)
    rank[order] = np.arange(len(group)) - begin[group[order]]
    return rank


def greedy(price: I64, unit: NDArray[np.intp], left: I64) -> NDArray[np.bool_]:
    """Per unit and in order, accept each record whose price what is left can pay.

    Each round accepts, per unit, the longest run that can be paid as a whole, then drops for
    ever what is dearer than what remains: at least one record per unit and round is accepted,
    and in practice two or three rounds decide everything.
    """
    wanted = np.zeros(len(left), np.int64)
    np.add.at(wanted, unit, price)
    accepted = (wanted <= left)[unit]  # whoever can pay for everything needs no order
    left = left.copy()
    rows = np.flatnonzero(~accepted)
    rows = rows[np.argsort(unit[rows], kind="stable")]
    while len(rows):
        rows = rows[price[rows] <= left[unit[rows]]]
        if not len(rows):
            break
        owner = unit[rows]
        head = np.r_[True, owner[1:] != owner[:-1]]
        begin = np.flatnonzero(head)
        run = np.cumsum(price[rows])
        run -= np.repeat(run[begin] - price[rows[begin]], np.diff(np.r_[begin, len(rows)]))
        fits = run <= left[owner]  # prices are positive: a prefix of each unit's records
        accepted[rows[fits]] = True
        np.subtract.at(left, owner[fits], price[rows[fits]])
        rows = rows[~fits]
    return accepted

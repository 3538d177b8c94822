"""The histogram of the DP-SQLP paper: rounds of distinct units, binary trees, a sound threshold.

Zhang et al., "Differentially Private Stream Processing at Scale" (2023), Algorithms 1–3, with the
corrections that the guarantee needs. A key gathers distinct units N and a buffer of values; at the
first trigger with N + noise above the threshold the buffer is added to the released total and a
new round begins with N = 0. Selection noise has one tree per (key, round), counted from the
round's first trigger; value noise one tree per key, with one leaf per release of that key.

Differences from the paper: the buffer of a first round holds everything since the key was first
seen; the threshold holds at all triggers at once (a union over C·T tests) instead of at each; keys
that were *not* selected are predicted, and every key seen so far is tested at every trigger; a
unit counts once per round, however many micro-batches it appears in.

Guarantee (add or remove all records of one unit): each of its at most C accepted records moves N of
one (key, round) by at most one, at one leaf, which lies in H(T) nodes, so selection has squared
sensitivity C·H(T); values have (C·L)²·H(T) per column. Selection adds its δ as in
`thresholds.key_selection`, with m = 1 in each of at most C pairs of key and round.

*No draw covers two contents.* Selection noise is indexed by the age of a round; the trigger of an
age is the round's start plus the age. The triggers of value leaves are not stored, so a key whose
last leaf lies under an older nonce opens a new *chain*: a tree on top of the last released values,
its leaves counted from there, its label with the trigger of its first leaf. All
draws of a chain then fall under one nonce. Each record is in one leaf of one chain, hence the
squared sensitivity of all chains together is still (C·L)²·H(T); variances of chains add up.

A unit's count per round depends on the status that its records see, d triggers late; a record that
saw an old round is summed, but no longer counted.

Buffers, totals and bases are kept modulo 2^64 until their noise is added, as `keyed_sums` says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...columns import F64, I64, Batch, Closed, Part, Releases, Rows, Units, compact
from ...contract import Noise, Traits
from ...factorization.prefix_noise import STEPS, Process
from ...keys import Keys
from ...parts.bounds.bounding import hashes
from ...parts.by_key import MOST
from ...parts.thresholds.key_selection import first_crossing
from ...ranges import Draws
from ..keyed_sums import FoundKeys, rows_of
from ..report import plan, round_rows

_TAGS = 128  # rounds are numbered modulo this; statuses are at most `delay` rounds late


@dataclass(frozen=True, kw_only=True)
class Rounds(FoundKeys):
    """The mechanism; `settings.build` makes one.

    Attributes:
        bound: contribution bound, at most C records per unit; ``used`` holds the number accepted
            and 1 + the last round in which the unit was counted.
        selector: noise of N; ``quantities``: of the count and of each value column.
        threshold: (T,) least N after 1…T triggers of a round, in 1/STEPS units.
    """

    selector: Process

    @cached_property
    def traits(self) -> Traits:
        wide = (1 + self._columns,)
        row = np.dtype([
            ("units", np.int64), ("buffer", np.int64, wide), ("total", np.int64, wide),
            ("round", np.int32), ("start", np.int32),
            # The chain of value leaves: the released values below it and their variance, its
            # number of leaves, the trigger of the first. `total` is exact and counts from there.
            ("base", np.int64, wide), ("spread", np.float64, wide),
            ("leaf", np.int32), ("chain", np.int32),
        ])  # fmt: skip
        return Traits(
            horizon=self.horizon, outputs=self._outputs, row_dtype=row, bound=self.bound.left,
            due=self._due, columns=self._columns, lanes=2, feedback=True,
        )  # fmt: skip

    # Bound shard

    def absorb(self, units: Units, batch: Batch) -> tuple[Units, Part]:
        """Bound the slice; sum what was accepted, and count units once per (key, round)."""
        slim = units._replace(used=units.used[:, :1])
        done = self.bound.apply(slim, batch, np.zeros(len(batch.keys), np.intp))
        rows = np.flatnonzero(done.accepted)
        last = np.zeros(len(done.units.pair), np.uint16)
        last[np.searchsorted(_codes(done.units), _codes(units))] = units.used[:, 1]
        code = batch.unit[rows].astype(np.uint64) << np.uint64(32) | hashes(batch)[batch.key[rows]]
        slot = np.searchsorted(_codes(done.units), code)
        status = batch.status[batch.key[rows]].astype(np.int64)
        # A deletion must not hide a later insertion: the result would depend on where slices end.
        adding = np.flatnonzero(batch.sign[rows] > 0)
        counted = np.zeros(len(rows), np.bool_)
        counted[adding] = _newly_counted(slot[adding], status[adding], last)
        np.maximum.at(last, slot[counted], (status[counted] + 1).astype(np.uint16))
        used = np.stack([done.units.used[:, 0], last], axis=1)
        return done.units._replace(used=used), self._parts(batch, rows, rows[counted])

    def _parts(self, batch: Batch, rows: NDArray[np.intp], counted: NDArray[np.intp]) -> Part:
        """Sums of accepted records, then, in lanes by round, the units that were counted."""
        part = self._part(batch, np.zeros(len(batch.keys), np.intp), rows)
        used, _ = compact(batch.key[rows], len(batch.keys))
        units = np.zeros_like(part.sums)
        np.add.at(units[:, 0], np.searchsorted(used, batch.key[counted]), 1)
        return part._replace(
            key=batch.keys.take(np.concatenate([used, used])),
            lane=np.concatenate([part.lane, _tag(batch.status[used])]),
            sums=np.concatenate([part.sums, units]),
        )

    # Aggregate shard

    def release(self, closed: Closed, noise: Noise) -> tuple[Rows, Releases]:
        """Add the micro-batch, test every loaded key, release those above the threshold."""
        self._within(closed.t)
        state, due, touched = self._advance(closed)
        hit = self._next(state, closed.rows.key, closed.t, noise)
        due[:] = np.where(hit > 0, closed.t + hit, 0)
        now = np.flatnonzero(hit == 0)
        state[now] = self._continued(state[now], closed.rows.key.take(now), closed, noise)
        state["total"][now] += state["buffer"][now]
        state["buffer"][now], state["units"][now] = 0, 0
        state["round"][now] += 1
        state["start"][now] = closed.t
        back = np.flatnonzero(touched | (due != closed.rows.due) | (hit == 0))
        rows = Rows(closed.rows.key.take(back), state[back], due[back])
        return rows, self._releases(state[now], closed.rows.key.take(now), noise)

    def _advance(self, closed: Closed) -> tuple[NDArray[Any], NDArray[np.int32], Any]:
        state, due = closed.rows.state.copy(), closed.rows.due.copy()
        part, row = closed.part, rows_of(closed.rows.key, closed.part.key)
        summed, units = part.lane == 0, part.lane == _tag(state["round"][row])
        np.add.at(state["buffer"], row[summed], part.sums[summed])
        np.add.at(state["units"], row[units], part.sums[units, 0])
        touched = np.zeros(len(state), np.bool_)
        touched[row] = True
        return state, due, touched

    def _next(self, state: NDArray[Any], keys: Keys, t: int, noise: Noise) -> I64:
        """(r,) triggers until the present N crosses the threshold: 0 at once, -1 never."""
        hit = np.full(len(state), -1, np.int64)
        bar = np.asarray(self.threshold, np.int64)
        for rows in self._groups(state):
            start = int(state["start"][rows[0]])
            age = t - start  # the round's own trigger
            labels = _with_number(keys.take(rows), state["round"][rows])
            first = start + self.selector.first
            ahead = self.selector.ahead(noise, labels, age, first=first)
            ahead = ahead[:, : self.horizon - t + 1]
            count = np.minimum(state["units"][rows], MOST) * STEPS
            hit[rows] = first_crossing(count, ahead, bar[age - 1 : age - 1 + ahead.shape[1]])
        hit[state["units"] < self.min_units] = -1
        return hit

    def _groups(self, state: NDArray[Any]) -> Iterator[NDArray[np.intp]]:
        """Rows whose rounds began at the same trigger, in pieces that fit into memory."""
        able = np.flatnonzero(state["units"] >= self.min_units)
        for start in np.unique(state["start"][able]):
            yield from self.selector.chunks(able[state["start"][able] == start])

    def _continued(
        self, state: NDArray[Any], keys: Keys, closed: Closed, noise: Noise
    ) -> NDArray[Any]:
        """Rows with one more leaf, in a new chain where an older nonce covers the last leaf."""
        state = state.copy()
        old = np.flatnonzero((state["leaf"] > 0) & (state["chain"] < closed.renewed))
        if len(old):
            value, variance = self._chained(state[old], keys.take(old), noise)
            state["base"][old], state["spread"][old] = value, variance
            state["total"][old], state["leaf"][old] = 0, 0
        state["chain"][state["leaf"] == 0] = closed.t
        state["leaf"] += 1
        return state

    def _chained(self, state: NDArray[Any], keys: Keys, noise: Noise) -> tuple[I64, F64]:
        """(r, 1+c) noisy totals of centred columns at each key's last leaf, and variances."""
        value, variance = state["base"] + state["total"], state["spread"].copy()
        first, labels = state["chain"].astype(np.int64)[:, None], _with_number(keys, state["chain"])
        for leaf in np.unique(state["leaf"]).tolist():
            rows = np.flatnonzero(state["leaf"] == leaf)
            since, some = np.zeros(len(rows), np.int64), labels.take(rows)
            for place, quantity in enumerate(self.quantities):
                process = quantity.lanes[0]
                steps = process.at(noise, some, leaf, since, first[rows])
                value[rows, place] += (steps + (STEPS + 1) // 2) // STEPS
                variance[rows, place] += process.variance_at(leaf, since)
        return value, variance

    def _releases(self, state: NDArray[Any], keys: Keys, noise: Noise) -> Releases:
        found = self._chained(state, keys, noise)
        value, variance = self._finished(list(zip(*(one.T for one in found), strict=True)))
        return Releases(keys, value, variance, state["round"].copy(), self._bar(-1))

    def error(self, t: int) -> F64:
        """(c',) noise standard deviation of a key's t-th release in one chain, in grid units."""
        none = np.zeros(1, np.int64)
        noisy = [(none, one.lanes[0].variance_at(t, none)) for one in self.quantities]
        deviation: F64 = np.sqrt(self._finished(noisy)[1][0])
        return deviation

    def draws(self) -> tuple[Draws, ...]:
        """Draws of selection and of every column."""
        values = (one.lanes[0].draws(self._names[one.column]) for one in self.quantities)
        return self.selector.draws("count"), *values

    # Statements

    def key_threshold(self, t: int) -> Fraction | None:
        """The threshold of a round's last trigger; before that it depends on the round's age."""
        return Fraction(self.threshold[-1], STEPS)

    def digests(self) -> tuple[str, ...]:
        """Digests of the factorisations of selection and values."""
        processes = [self.selector, *(one for q in self.quantities for one in q.lanes)]
        return tuple(one.factor.digest() for one in processes)

    def plan(self) -> dict[str, Any]:
        """Bounds, noise of successive releases of a key, thresholds and chances to appear."""
        return {"histogram": plan(self)}

    def plan_rows(self, unit: str) -> list[tuple[str, str]]:
        return round_rows(plan(self), unit)


def _codes(units: Units) -> NDArray[np.uint64]:
    owner = np.repeat(np.arange(len(units.left), dtype=np.uint64), np.diff(units.start))
    return (owner << np.uint64(32)) | units.pair


def _tag(rounds: NDArray[Any]) -> NDArray[np.uint8]:
    return (1 + rounds % _TAGS).astype(np.uint8)


def _with_number(keys: Keys, numbers: NDArray[np.int32]) -> Keys:
    """Each key followed by a number in four bytes."""
    return keys.followed(numbers.astype(">i4").view(np.uint8).reshape(-1, 4))


def _newly_counted(
    slot: NDArray[np.intp], status: I64, last: NDArray[np.uint16]
) -> NDArray[np.bool_]:
    """(n,) records, in log order, with a round later than any in which their pair was counted."""
    if len(slot) == 0:
        return np.zeros(0, np.bool_)
    order = np.argsort(slot, kind="stable")
    pair, round_ = slot[order], status[order] + 1
    step = int(round_.max()) + int(last.max(initial=0)) + 1
    place = pair * step
    seen = np.maximum.accumulate(place + np.maximum(round_, last[pair]))
    head = np.r_[True, pair[1:] != pair[:-1]]
    before = np.where(head, place + last[pair], np.r_[0, seen[:-1]])
    out = np.zeros(len(slot), np.bool_)
    out[order] = place + round_ > before
    return out

"""Counts and sums per key of an unbounded stream, for keys that need not be known beforehand.

One noise process per key serves selection and value (`thresholds.key_selection` says when
a key becomes public); a public key is released at every later trigger, with or without data.

Model: x_k(t) is the sum that accepted records add to key k in micro-batch t. Each process releases
the prefix sums of x as B(Cx + z), z discrete Gaussian on a fine grid, A = BC the prefix sums
(`factorization.prefix_noise`). With adaptive weights a key has two processes: S takes its records
while it is not yet public, V those after, with a weight w < 1 in the contribution bound and noise
1/w times as large: a unit can then spend most of its bound on keys that are not yet public. The
weight of a record depends on earlier releases alone.

*No draw covers two contents.* Coordinate i of z covers (Cx)_i, which is complete at the first
trigger whose release uses it; the nonce in force there is part of its label
(`Process.first`). The same holds for the debiasing counters. Predictions of later triggers use the
nonce in force now; the first release under another nonce is given all rows and predicts anew.

Guarantee (add or remove all records of one unit, all triggers and windows of an epoch): the bound
ensures Σ m_S² + w² Σ m_V² ≤ Q surely. Every step is a Gaussian release whose shift is predictable
from the past, hence the whole is μ-GDP with μ = √Q/σ, up to the cost of the noise grid
(`accounting.gaussian_cost`); selection adds its δ. `Histogram.cost` is that sum.

Totals may overflow 64 bits, so no line may read a total of values without its noise (`keyed_sums`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..columns import F64, I64, Batch, Closed, Part, Releases, Rows, Units, joined
from ..contract import NOTHING_MORE, Noise, Stated, Traits
from ..factorization.prefix_noise import STEPS, Process
from ..keys import Keys
from ..noise import zero
from ..pairs import split
from ..parts.bounds.stated import stated_bound
from ..parts.by_key import of_keys
from ..ranges import Draws
from ..sums import HELD
from .debias import COUNTERS, Debias, Raw, put_raw, take_raw
from .distinct import absorb
from .keyed_sums import FoundKeys, in_steps, rows_of, split_shared
from .quantities import Quantity
from .report import plan, plan_rows

S = 0  # lane of the records that find a key; lane 1, V, takes those of public keys


@dataclass(frozen=True, kw_only=True)
class Histogram(FoundKeys):
    """The histogram mechanism; `tumbling.build` makes one.

    Attributes:
        threshold: (T,) least count per trigger.
        show: "keys", or "values" for count and sums.
        debias: counters that estimate the share cut off by the bound, or None. With them, a release
            needs the row `debias.SHARED` in addition to those of its keys.
        pairs: whether the count is of distinct values, the last column of record keys.
    """

    show: Literal["values", "keys"] = "values"
    debias: Debias | None = None
    pairs: bool = False

    @cached_property
    def traits(self) -> Traits:
        lanes, only_keys = len(self.bound.weights), self.show == "keys"
        row: list[Any] = [("sums", np.int64, (lanes, 1 + self._columns))]
        row += [("mark", np.int64, (COUNTERS,))] if self.debias else []
        return Traits(
            horizon=self.horizon,
            outputs=() if only_keys else self._outputs,
            row_dtype=np.dtype([*row, ("first", np.int32)]),
            bound=self.bound.left,
            due=self._due,
            columns=self._columns,
            lanes=lanes,
            totals=COUNTERS if self.debias else 0,
            # Records of public keys may be treated differently from others.
            feedback=self.public is None and (lanes > 1 or only_keys),
            pairs=self.pairs,
            counting=not self.pairs,
            exact_until=self.selector.foremost,
        )

    # Bound shard

    def absorb(self, units: Units, batch: Batch) -> tuple[Units, Part]:
        """Bound the slice and sum what was accepted, per key."""
        known = batch.status > 0 if self.traits.feedback else np.zeros(len(batch.keys), np.bool_)
        parts = split(batch.keys) if self.pairs else None
        countable = self._countable(batch.keys if parts is None else parts.keys, known)
        batch = of_keys(batch, countable if parts is None else countable[parts.key])
        lane = (known & (self.traits.lanes > 1)).astype(np.intp)
        if parts is not None:
            return absorb(self.bound, units, batch, lane, parts)
        if self.debias is None:
            done = self.bound.apply(units, batch, lane)
            return done.units, self._part(batch, lane, np.flatnonzero(done.accepted))
        units, before = take_raw(units)
        done = self.bound.apply(units, batch, lane)
        after, counted = self.debias.count(before, batch.unit)
        part = self._part(batch, lane, np.flatnonzero(done.accepted))
        lanes = lane[batch.key]
        totals = [
            np.bincount(lanes[counted & which], minlength=2) for which in (True, done.accepted)
        ]
        return put_raw(Raw(done.units, after)), part._replace(totals=np.concatenate(totals))

    def _countable(self, keys: Keys, known: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """(k,) whether a key's records may count; the others cost nothing."""
        if self.debias is not None:
            return np.asarray(np.diff(keys.offsets) > 0)  # the empty key names the shared row
        return ~known if self.show == "keys" else self._listed(keys)

    # Aggregate shard

    def release(self, closed: Closed, noise: Noise) -> tuple[Rows, Releases]:
        """Add the micro-batch, select, predict, and release every public key of ``closed``."""
        self._within(closed.t)
        if self.debias is None:
            return self._release(closed, noise, None)
        closed, shared = split_shared(closed, self.traits.rows)
        shared.state["mark"][0] += closed.part.totals
        rates = self.debias.noisy(shared.state["mark"][0], closed.t, noise)
        rows, out = self._release(closed, noise, rates)
        return joined(shared, rows), out

    def _release(self, closed: Closed, noise: Noise, rates: I64 | None) -> tuple[Rows, Releases]:
        """``rates`` (4,) are the released debiasing counters, if there are any."""
        state, due, touched = self._advance(closed)
        self._select(
            closed, state, due, lambda rows: state["sums"][rows, S, 0], self.selector, noise,
            self.min_units,  # where it is set, the count is of distinct units
        )  # fmt: skip
        shown = np.flatnonzero(state["first"] > 0)
        scale = self._scale(rates, state, shown, closed.t)
        # Compared as bytes, all fields at once: an unchanged row writes no changelog record.
        before = np.ascontiguousarray(closed.rows.state)
        moved = state.view((np.uint8, state.itemsize)) != before.view((np.uint8, state.itemsize))
        back = np.flatnonzero(touched | (due != closed.rows.due) | moved.any(axis=1))
        rows = Rows(closed.rows.key.take(back), state[back], due[back])
        keys, status = closed.rows.key.take(shown), state["first"][shown]
        value, variance = self._values(state[shown], keys, closed.t, noise, scale)
        told = self.debias.told(rates, closed.t) if self.debias and rates is not None else None
        return rows, Releases(keys, value, variance, status, self._bar(closed.t - 1), told)

    def _scale(
        self, rates: I64 | None, state: NDArray[Any], shown: NDArray[np.intp], t: int
    ) -> F64 | None:
        """(m, 2) factors of the lanes of public keys; marks the end of their S intervals."""
        if self.debias is None or rates is None:
            return None
        # Without a lane V the S interval never ends.
        first = shown[(state["first"][shown] + self.delay >= t) | (self.traits.lanes == 1)]
        state["mark"][first] = rates
        return self.debias.factors(state["mark"][shown], rates, t)

    def _advance(self, closed: Closed) -> tuple[NDArray[Any], NDArray[np.int32], Any]:
        state, due = closed.rows.state.copy(), closed.rows.due.copy()
        row = rows_of(closed.rows.key, closed.part.key)
        np.add.at(state["sums"], (row, closed.part.lane), closed.part.sums)
        touched = np.zeros(len(state), np.bool_)
        touched[row] = True
        return state, due, touched

    def _values(
        self, state: NDArray[Any], keys: Keys, t: int, noise: Noise, scale: F64 | None
    ) -> tuple[I64, F64]:
        """Values and noise variances of public keys, in the order of outputs."""
        if self.show == "keys":
            return np.empty((len(keys), 0), np.int64), np.empty((len(keys), 0))
        noisy = [self._noisy(one, state, keys, t, noise, scale) for one in self.quantities]
        return self._finished(noisy)

    def _noisy(
        self,
        quantity: Quantity,
        state: NDArray[Any],
        keys: Keys,
        t: int,
        noise: Noise,
        scale: F64 | None,
    ) -> tuple[I64, F64]:
        """(r,) noisy totals on the integers and (r,) the variance of their noise."""
        exact = np.ascontiguousarray(state["sums"][:, :, quantity.column].T)
        steps, variance = np.zeros_like(exact), np.zeros(exact.shape)
        for lane, process in enumerate(quantity.lanes):
            # Before a lane can have data its process is known to be pure noise: leave it out.
            since = np.zeros(len(keys), np.int64) if lane == S else state["first"] + self.delay
            live = np.flatnonzero(since < t)
            steps[lane, live] += process.at(noise, keys.take(live), t, since[live])
            variance[lane, live] = process.variance_at(t, since[live])
        if scale is None:
            # `at` rounds down: half a step per lane is added back before rounding to integers.
            rounded = (steps.sum(axis=0) + (STEPS + len(steps)) // 2) // STEPS
            return exact.sum(axis=0) + rounded, variance.sum(axis=0)
        value, spread = np.zeros(len(keys)), np.zeros(len(keys))
        for lane in range(len(steps)):
            value += (in_steps(exact[lane], steps[lane]) + 0.5) / STEPS * scale[:, lane]
            spread += variance[lane] * scale[:, lane] ** 2
        return np.rint(np.clip(value, -float(HELD), float(HELD))).astype(np.int64), spread

    def error(self, t: int) -> F64:
        """(c',) standard deviation of the noise of each output at trigger t, in grid units.

        With adaptive weights, it holds for a key that has been public since the first trigger; a
        key that became public later has less (`Releases.variance` is exact). In a window without
        end it is a bound for triggers beyond the first table.
        """
        if t > self.selector.foremost:
            return self.error(self.selector.foremost) * self.selector.growth
        state = np.zeros(1, self.traits.row_dtype)
        state["first"] = 1
        scale = None if self.debias is None else np.ones((1, 2))
        _, variance = self._values(state, Keys.of([b""]), t, zero, scale)
        deviation: F64 = np.sqrt(variance[0])
        return deviation

    def draws(self) -> tuple[Draws, ...]:
        """Draws of every column in both lanes, and of the debiasing counters."""
        made = [one.draws(self._names[q.column]) for q in self.quantities for one in q.lanes]
        made += [one.draws("count") for one in (self.debias.processes if self.debias else ())]
        return tuple(made)

    # Statements

    @property
    def selector(self) -> Process:
        """Noise of the count that decides whether a key becomes public."""
        return self.quantities[0].lanes[S]

    def stated(self, unit: str) -> Stated:
        """State that the debiasing counters are released too; the cost includes them."""
        return NOTHING_MORE if self.debias is None else self.debias.stated(unit)

    def bounds(self, unit: str) -> dict[str, Any]:
        return stated_bound(self.bound, unit, "distinct values" if self.pairs else "records")

    def digests(self) -> tuple[str, ...]:
        """Digests of the factorisations of all processes, those of debiasing counters included.

        Where several shards release these counters, the number of shards is part of the digest: it
        affects all noise, and earlier versions left it out of the cost.
        """
        processes = [one for quantity in self.quantities for one in quantity.lanes]
        processes += self.debias.processes if self.debias else ()
        looks = self.debias.looks if self.debias else 1
        more = (f"debiasing released by {looks} shards",) if looks > 1 else ()
        return (*(one.factor.digest() for one in processes), *more)

    def plan(self) -> dict[str, Any]:
        """Bounds, noise, thresholds and chances to appear."""
        return {"histogram": plan(self)}

    def plan_rows(self, unit: str) -> list[tuple[str, str]]:
        return plan_rows(plan(self), unit)

"""Quantiles of one number per key of an unbounded stream, at every trigger of a window.

A record adds 1 to one node of each level of a tree over public bands (`bands`, `tree`); the root is
the key's count, which also decides when an unknown key becomes public (`key_selection`). Each
node of each level is released as prefix sums over the triggers, B(Cx + z) with its own noise
(`factorization.prefix_noise`). Estimates of the bands, their distribution function, its inversion
and the intervals are post-processing (`inversion`).

Guarantee. Neighbours: two streams of which one lacks all records of one unit, in all triggers and
windows of an epoch. Let the unit have m_k accepted records in key k; the bound ensures Σ m_k² ≤ Q
on every path, and accepts a record depending on the unit's own earlier records alone. In key k and
level l let d_v be the vector over triggers of what the unit adds to node v. Each record is in one
node of the level, so Σ_v Σ_t abs(d_v(t)) ≤ m_k. With c the largest column norm of C,
‖C d_v‖ ≤ c·Σ_t abs(d_v(t)), hence

    Σ_v ‖C d_v‖² ≤ c²·(Σ_v Σ_t abs(d_v(t)))² ≤ c²·m_k²,

however the records spread over nodes, triggers and signs: a level costs as much as one count,
whatever its number of nodes. C is lower triangular, so each release is a Gaussian release whose
shift is predictable from the past, and all levels, keys and triggers together are μ-GDP with
μ² = Q·c²·Σ_l 1/σ_l², up to the cost of the noise grid (`accounting.gaussian_cost`). All nodes of a
public key are released, including empty ones; a hidden key reveals only whether its count crosses,
which adds the δ of its selection. `Quantiles.cost` is that sum. ∎

*No draw covers two contents.* The draws of a node are labelled with its key and number, its level
and their coordinate; coordinate i covers (Cx)_i, which is complete at the trigger whose nonce the
label holds (`Process.first`).

*Overflow.* State holds numbers of records, which stay below 2^63. Releases are functions of noisy
counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..columns import F64, I64, Batch, Closed, Encoded, Part, Releases, Rows, Units
from ..contract import INSERTING, SIGNED, Noise, Output, Traits
from ..factorization.prefix_noise import STEPS, Process
from ..histogram.keyed_sums import rows_of
from ..keys import Keys
from ..parts.by_key import ByKey, of_keys
from ..ranges import Draws
from ..sums import held
from ..truth import Truth, WindowRecords
from .bands import Bands
from .inversion import INTERVALS, invert
from .report import plan_rows, rank_stddev
from .tree import BandTree, levels_of
from .truth import exact_answers

OWN = ("count", "below", "above")
"""Released in addition to quantiles: records, those below ``low``, those above ``high``."""


@dataclass(frozen=True, kw_only=True)
class Quantiles(ByKey):
    """The mechanism; `hushstream.mechanisms.quantile.settings.build` makes one.

    Attributes:
        bands: public bands of the number.
        at: shares q of the released quantiles, increasing.
        processes: noise of each level, bands first, the count last.
        reach: standard deviations of noise on each side of an interval.
    """

    bands: Bands
    at: tuple[Fraction, ...]
    processes: tuple[Process, ...]
    reach: float

    @cached_property
    def traits(self) -> Traits:
        grid, natural = self.bands.grid, INSERTING if self.bands.edges[0] >= 0 else SIGNED
        found = (Output(named(q), grid, natural, ends=True) for q in self.at)
        return Traits(
            horizon=self.horizon,
            outputs=(*found, *(Output(name, least=INSERTING) for name in OWN)),
            row_dtype=np.dtype([("bands", np.int64, (self.bands.number,)), ("first", np.int32)]),
            bound=self.bound.left,
            due=self._due,
            inputs=("value",),
            columns=1,  # the value in grid steps
            sparse=True,  # most keys have records in few bands
        )

    @property
    def counter(self) -> Process:
        """Noise of the count, which decides whether a key becomes public."""
        return self.processes[-1]

    # Bound shard

    def encode(self, columns: Mapping[str, NDArray[Any]]) -> Encoded:
        """Values in grid steps; anything that is not a number is dropped."""
        value = np.asarray(columns["value"], np.float64)
        keep = ~np.isnan(value)
        steps = self.bands.steps(np.where(keep, value, 0.0))
        return Encoded(Keys.of([b""]), np.zeros(len(value), np.intp), steps[:, None], keep)

    def absorb(self, units: Units, batch: Batch) -> tuple[Units, Part]:
        """Bound the slice and count accepted records per key and band."""
        batch = of_keys(batch, self._listed(batch.keys))
        done = self.bound.apply(units, batch, np.zeros(len(batch.keys), np.intp))
        rows = np.flatnonzero(done.accepted)
        band = self.bands.place(batch.value[rows, 0])
        # A key without accepted records was never paid for, so it must not leave a trace.
        pair, place = np.unique(batch.key[rows] * self.bands.number + band, return_inverse=True)
        sums = np.zeros((len(pair), 2), np.int64)
        np.add.at(sums[:, 0], place, batch.sign[rows].astype(np.int64))
        lane = (pair % self.bands.number).astype(np.uint8)
        keys = batch.keys.take(pair // self.bands.number)
        return done.units, Part(keys, lane, sums, np.zeros(0, np.int64))

    # Aggregate shard

    def release(self, closed: Closed, noise: Noise) -> tuple[Rows, Releases]:
        """Add the micro-batch, select, predict, and release every public key of ``closed``."""
        self._within(closed.t)
        state, due = closed.rows.state.copy(), closed.rows.due.copy()
        row = rows_of(closed.rows.key, closed.part.key)
        np.add.at(state["bands"], (row, closed.part.lane), closed.part.sums[:, 0])
        changed = np.zeros(len(state), np.bool_)
        changed[row] = True
        self._select(
            closed, state, due, lambda rows: state["bands"][rows].sum(axis=1), self.counter, noise
        )
        changed |= (due != closed.rows.due) | (state["first"] != closed.rows.state["first"])
        back, shown = np.flatnonzero(changed), np.flatnonzero(state["first"] > 0)
        rows = Rows(closed.rows.key.take(back), state[back], due[back])
        keys = closed.rows.key.take(shown)
        value, variance = self._values(state["bands"][shown], keys, closed.t, noise)
        return rows, Releases(keys, value, variance, state["first"][shown], self._bar(closed.t - 1))

    def _values(self, counts: I64, keys: Keys, t: int, noise: Noise) -> tuple[I64, F64]:
        """Released columns of public keys, followed by the ends of the quantiles' intervals."""
        tree = self.tree(t)
        bands = tree.estimates(self._nodes(counts, keys, t, noise))
        below = np.cumsum(bands, axis=1)  # left to right: the same doubles on every machine
        total, ends = below[:, -1], self.bands.ends
        whole = np.maximum(total, 1.0)
        risen = np.cumsum(tree.smoothed(bands, whole), axis=1)[:, :-1]
        found = []
        for q in map(float, self.at):
            spread = self.reach * np.sqrt(tree.rank_variance(q))
            pivot, rise = below[:, :-1] - q * total[:, None], risen - q * whole[:, None]
            found.append(invert(pivot, rise, spread, ends))
        counted = np.stack([total, bands[:, 0], bands[:, -1]], axis=1)
        columns = [one.value for one in found] + list(held(np.rint(counted).astype(np.int64)).T)
        columns += [end for one in found for end in (one.low, one.high)]
        spreads = [((one.high - one.low) / (2 * self.reach)) ** 2 for one in found]
        known = (tree.total_variance, tree.band_variance, tree.band_variance)
        spreads += [np.full(len(keys), one) for one in known]
        spreads += [np.zeros(len(keys))] * 2 * len(found)
        return np.stack(columns, axis=1).astype(np.int64), np.stack(spreads, axis=1)

    def _nodes(self, counts: I64, keys: Keys, t: int, noise: Noise) -> list[F64]:
        """Noisy sums of every level, (r, nodes) each."""
        out = []
        for process, exact in zip(self.processes, levels_of(counts), strict=True):
            labels = keys if exact.shape[1] == 1 else numbered(keys, exact.shape[1])
            since = np.zeros(len(labels), np.int64)
            steps = process.at(noise, labels, t, since).reshape(exact.shape)
            # Noise is rounded down: half a step is added back.
            out.append((exact + steps // STEPS) + (steps % STEPS + 0.5) / STEPS)
        return out

    def tree(self, t: int) -> BandTree:
        """The tree with the noise of trigger t."""
        start = np.zeros(1, np.int64)
        return BandTree(tuple(float(one.variance_at(t, start)[0]) for one in self.processes))

    # Statements

    def error(self, t: int) -> F64:
        """(c',) standard deviations; for a quantile the largest possible within its range."""
        tree, most = self.tree(t), (self.bands.edges[-1] - self.bands.edges[0]) / 2
        own = np.sqrt([tree.total_variance, tree.band_variance, tree.band_variance])
        return np.concatenate([np.full(len(self.at), most), own])

    def draws(self) -> tuple[Draws, ...]:
        return tuple(one.draws("count") for one in self.processes)

    @cached_property
    def _edges(self) -> str:
        return ",".join(map(str, (self.bands.grid, *self.bands.edges)))

    def digests(self) -> tuple[str, ...]:
        """Digest of the factorisation, the bands, and the version of intervals."""
        return (self.counter.factor.digest(), self._edges, INTERVALS)

    def plan(self) -> dict[str, Any]:
        """Bands, noise of ranks and counts by trigger, and the chances that keys appear."""
        bands, trees = self.bands, [self.tree(t) for t in range(1, self.horizon + 1)]
        out: dict[str, Any] = {
            "at": [float(q) for q in self.at],
            "bands": bands.number,
            "low": float(bands.edges[0] * bands.grid),
            "high": float(bands.edges[-1] * bands.grid),
            "widest": float(max(b - a for a, b in pairwise(bands.edges)) * bands.grid),
            "grid": float(bands.grid),
            "factorization": self.counter.factor.name,
            "most_records_per_key": self.bound.most_per_key(),
            "rank_stddev": [rank_stddev(tree, self.at) for tree in trees],
            "count_stddev": [math.sqrt(tree.total_variance) for tree in trees],
        }
        if self.threshold:
            out["threshold"] = [bar / STEPS for bar in self.threshold]
        return {"quantile": out}

    def plan_rows(self, unit: str) -> list[tuple[str, str]]:
        return plan_rows(self.plan()["quantile"], unit)

    def truth(self, seen: WindowRecords, released: Sequence[bytes]) -> Truth:
        """Exact quantiles and counts of every key, with values clipped to the range."""
        return exact_answers(self.bands, {named(q): q for q in self.at}, OWN, seen)


def named(q: Fraction) -> str:
    """The name of a quantile.

    >>> named(Fraction(1, 2)), named(Fraction("0.999"))
    ('p50', 'p99_9')
    """
    return f"p{float(100 * q):g}".replace(".", "_")


def numbered(keys: Keys, nodes: int) -> Keys:
    """Each key once per node, followed by the node's number in two bytes: injective."""
    number = np.tile(np.arange(nodes), len(keys))
    tails = np.stack([number >> 8, number & 255], axis=1).astype(np.uint8)
    return keys.take(np.repeat(np.arange(len(keys)), nodes)).followed(tails)

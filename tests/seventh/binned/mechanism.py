"""Counts by record key and bin, with fresh Gaussian noise at every trigger.

Guarantee. Neighbours are two streams, one of which lacks all records of one unit. Keys and bins are
public, so the set of released counts does not depend on which of them have records. At most C
records of a unit are counted in an epoch, in log order; this does not affect which records of other
units count. Let c_w be the unit's counted records in window w, so Σ c_w ≤ C. Trigger t of window w
releases the counts of all records of the window up to t. So they differ between neighbours by
integers d with Σ abs(d) ≤ c_w, hence Σ d² ≤ c_w²; and every count gets its own discrete Gaussian of
variance σ², drawn once. All T triggers of all windows together are adaptive Gaussian releases with

    Σ_w T·c_w² / σ² ≤ T·C² / σ² = μ²,

of which at most T·C have d ≠ 0. `accounting` turns this into (ε, δ), including the noise's grid. ∎

*No draw covers two contents.* A draw is labelled by key, trigger and bin, and the count that it
covers is complete at that trigger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from hushstream.mechanisms.columns import F64, Batch, Closed, Encoded, Part, Releases, Rows, Units
from hushstream.mechanisms.contract import (
    INSERTING,
    Cost,
    Guarantee,
    Mechanism,
    Noise,
    Output,
    Traits,
)
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.parts.bounds.points import insertions
from hushstream.mechanisms.parts.bounds.stated import stated_records
from hushstream.mechanisms.ranges import Draws
from hushstream.mechanisms.truth import Truth, WindowRecords
from numpy.typing import NDArray

MOST = 200  # bins: the lane of a part is one byte


@dataclass(frozen=True)
class Binned(Mechanism):
    """The mechanism; `build` makes one from settings.

    Attributes:
        horizon: T, triggers of a window.
        edges: ends of the bins, increasing; bin i holds edges[i] ≤ value < edges[i+1].
        bound: C, most records of one unit in an epoch.
        variance: σ² of the noise of one count.
        loss: its cost per unit and epoch.
    """

    guarantee: ClassVar[Guarantee] = Guarantee("discrete_gaussian")

    horizon: int
    edges: tuple[float, ...]
    bound: int
    variance: Fraction
    loss: Cost

    @property
    def bins(self) -> int:
        """Number of bins, B."""
        return len(self.edges) - 1

    @cached_property
    def traits(self) -> Traits:
        """A row per key with its counts; each count is released at every trigger."""
        return Traits(
            horizon=self.horizon,
            outputs=tuple(Output(f"bin_{place}", least=INSERTING) for place in range(self.bins)),
            row_dtype=np.dtype([("count", np.int64, (self.bins,))]),
            bound=self.bound,
            due=-1,
            inputs=("value",),
            columns=1,  # the record's bin
        )

    def encode(self, columns: Mapping[str, NDArray[Any]]) -> Encoded:
        """The bin of each value; values outside all bins are dropped."""
        place = np.searchsorted(self.edges, columns["value"], side="right") - 1
        keep = (place >= 0) & (place < self.bins)
        key = np.zeros(len(place), np.intp)
        return Encoded(Keys.of([b""]), key, np.where(keep, place, 0)[:, None], keep)

    def absorb(self, units: Units, batch: Batch) -> tuple[Units, Part]:
        units, accepted = insertions(units, batch)
        both = batch.key[accepted] * self.bins + batch.value[accepted, 0]
        state, count = np.unique(both, return_counts=True)
        sums = np.stack([count, np.zeros_like(count)], axis=1)
        lane = (state % self.bins).astype(np.uint8)
        return units, Part(batch.keys.take(state // self.bins), lane, sums, np.zeros(0, np.int64))

    def release(self, closed: Closed, noise: Noise) -> tuple[Rows, Releases]:
        key, t = closed.rows.key, closed.t
        state, place = closed.rows.state.copy(), {one: row for row, one in enumerate(key)}
        row = np.array([place[one] for one in closed.part.key], np.intp)
        np.add.at(state["count"], (row, closed.part.lane), closed.part.sums[:, 0])
        index, first = (t - 1) * self.bins + np.arange(self.bins), np.full(self.bins, t)
        value = state["count"] + noise.gauss("binned", key, index, self.variance, first)
        due = np.full(len(key), -1, np.int32)
        variance = np.full(value.shape, float(self.variance))
        return Rows(key, state, due), Releases(
            key, value, variance, np.ones(len(key), np.int32), {}
        )

    def cost(self) -> Cost:
        return self.loss

    def error(self, t: int) -> F64:
        return np.full(self.bins, float(self.variance) ** 0.5)

    def draws(self) -> tuple[Draws, ...]:
        return (Draws("count", "gauss", self.variance),)

    def bounds(self, unit: str) -> dict[str, Any]:
        return stated_records(self.bound, unit)

    def digests(self) -> tuple[str, ...]:
        """No digests: edges are in the configuration, and all else is exact."""
        return ()

    def plan(self) -> dict[str, Any]:
        return {"edges": list(self.edges)}

    def plan_rows(self, unit: str) -> list[tuple[str, str]]:
        ends = enumerate(pairwise(self.edges))
        return [(f"bin_{i}", f"{low:g} ≤ value < {high:g}") for i, (low, high) in ends]

    def truth(self, seen: WindowRecords, released: Sequence[bytes]) -> Truth:
        """Exact number of records of each key in each bin."""
        table = np.zeros((len(seen.keys), self.bins), np.int64)
        np.add.at(table, (seen.key, seen.value[:, 0]), seen.sign > 0)
        names = seen.keys.tolist()
        held = dict(zip(names, table.sum(axis=1).tolist(), strict=True))
        values = {
            one.name: dict(zip(names, map(float, table[:, place]), strict=True))
            for place, one in enumerate(self.traits.outputs)
        }
        return Truth(len(seen.key), held, values, every=True)

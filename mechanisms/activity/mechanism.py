"""Activity: numbers of units in an epoch by records and by concentration on keys.

Every unit lies in one bucket of a fixed public grid (`parts.unit_profile`). At the end of the
window, which is an epoch, the number of units in each bucket is released with noise, including
empty buckets.

Guarantee, for neighbours that differ by all records of one unit in one epoch: the release is one
discrete Gaussian release of squared sensitivity 1, in units. The bucket of a unit is a function of
its own records alone, so one count differs, by one. *Proof:* `parts.unit_profile`. A second release
of a window is refused, since it could put the same noise on other records.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from ...errors import ContractError
from ..columns import F64, Batch, Closed, Part, Releases, Rows, Units
from ..contract import ALWAYS, Cost, Guarantee, Mechanism, Noise, Output, Traits
from ..key_form import Kind, OwnKeys, Place
from ..keys import Keys
from ..parts.bounds.stated import stated_records
from ..parts.unit_profile import STEPS, UnitProfile, ends_of
from ..ranges import Draws
from ..truth import Truth, WindowRecords

_GRID = "activity 1"
_STATE = np.dtype([("units", np.int64), ("released", np.int32)])


class BucketKeys(OwnKeys):
    """Keys are the numbers of buckets; their columns are the upper ends of both ranges."""

    kinds: ClassVar[Mapping[str, Kind]] = MappingProxyType({"records": "whole", "repeats": "whole"})

    def places(self, keys: Keys, columns: Sequence[str]) -> Iterable[Place]:
        """Both upper ends, which are powers of two."""
        ends = (ends_of(int.from_bytes(key, "big")) for key in keys)
        return (Place(dict(zip(self.kinds, both, strict=True)), {}) for both in ends)


@dataclass(frozen=True)
class Activity(Mechanism):
    """The mechanism; `settings.build` makes one.

    Attributes:
        profile: the buckets.
        variance: noise variance of one bucket, in squared 1/`STEPS` of a unit.
        loss: cost per unit and epoch.

    Released: one row for each bucket; the buckets are always the same.
    """

    guarantee: ClassVar[Guarantee] = Guarantee("discrete_gaussian")

    profile: UnitProfile
    variance: Fraction
    loss: Cost

    @cached_property
    def traits(self) -> Traits:
        return Traits(
            horizon=1, outputs=(Output("units", Fraction(1, STEPS), ALWAYS),), row_dtype=_STATE,
            bound=self.profile.most, keys=BucketKeys(), routing="single", load="all",
            counting=False,  # a unit that moves also leaves a bucket
        )  # fmt: skip

    @property
    def _names(self) -> Keys:
        return Keys.of_codes(np.arange(self.profile.buckets, dtype=np.uint64))

    def absorb(self, units: Units, batch: Batch) -> tuple[Units, Part]:
        """Count the slice's insertions; return the change of each bucket."""
        units, change = self.profile.absorb(units, batch)
        moved = np.flatnonzero(change)
        names, lane = Keys.of_codes(moved.astype(np.uint64)), np.zeros(len(moved), np.uint8)
        return units, Part(names, lane, change[moved, None], np.zeros(0, np.int64))

    def release(self, closed: Closed, noise: Noise) -> tuple[Rows, Releases]:
        """Add noise to every bucket.

        Raises:
            ContractError: the window was released before, this is not its only trigger, or the sums
                cannot be numbers of units.
        """
        if bool(closed.rows.state["released"].any()):
            raise ContractError("the activity of this window was released before")
        totals = np.zeros(self.profile.buckets, np.int64)
        for key, units in (
            (closed.rows.key, closed.rows.state["units"]),
            (closed.part.key, closed.part.sums[:, 0]),
        ):
            if len(key):
                np.add.at(totals, key.codes().astype(np.intp), units)
        shown = self.profile.release(totals, closed.t, 1, self.variance, noise)
        state = np.zeros(len(totals), _STATE)
        state["units"], state["released"] = totals, closed.t
        names, status = self._names, np.ones(len(totals), np.int32)
        variance = np.full((len(totals), 1), float(self.variance))
        rows = Rows(names, state, np.zeros(len(totals), np.int32))
        return rows, Releases(names, shown[:, None], variance, status, {})

    def cost(self) -> Cost:
        return self.loss

    def error(self, t: int) -> F64:
        return np.full(1, math.sqrt(self.variance))

    def draws(self) -> tuple[Draws, ...]:
        return (Draws("count", "gauss", self.variance),)

    def bounds(self, unit: str) -> dict[str, Any]:
        """Most records of a unit that are examined; the unit counts once in any case."""
        return stated_records(self.profile.most, unit)

    def digests(self) -> tuple[str, ...]:
        """Version of the grid of buckets: two versions must not share an epoch."""
        return (_GRID,)

    def truth(self, seen: WindowRecords, released: Sequence[bytes]) -> Truth:
        """The exact number of units in each bucket."""
        units = int(seen.unit.max(initial=-1)) + 1
        nothing, status = np.zeros((len(seen.key), 0), np.int64), np.zeros(len(seen.keys), np.int32)
        batch = Batch(seen.keys, seen.key, seen.unit.astype(np.intp), nothing, seen.sign, status)
        _, counts = self.profile.absorb(self.traits.units(units), batch)
        held = dict(zip(self._names, counts.tolist(), strict=True))
        values = {key: float(number) for key, number in held.items()}
        return Truth(len(seen.key), held, {self.traits.outputs[0].name: values}, every=True)

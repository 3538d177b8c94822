"""A private total of all records of a window, to undo what the contribution bound of a map cuts.

A map counts at most ``bound`` records of a unit, so it shows fewer records than there are. In
addition, all records are counted, up to ``cap`` of a unit in an epoch, and released at every
trigger as one noisy number. Released counts of the map are multiplied by the ratio of that number
to their sum. This assumes that the bound cuts the same share everywhere: it corrects totals, but
places of units with many records are still shown too weakly. Records of a unit beyond ``cap`` stay
cut.

Guarantee, for neighbours that differ by all records of one unit: the numbers of all triggers and
windows of an epoch together are ε-differentially private. *Proof.* The unit changes the numbers
that the triggers add by at most ``cap`` in sum, since each of its counted records comes at one
trigger of one window. Every trigger adds what it counted and a draw of scale cap/ε, labelled by the
trigger and used there once; the sums that are released are functions of these. ∎ The map's counts
pay for themselves; their product with a ratio of released numbers is post-processing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....errors import ParameterError
from ...columns import F64, I64, Batch, Units
from ...contract import Noise
from ...keys import Keys
from ...ranges import Draws, laplace
from ...validate import at_least, positive
from .bounding import ranks

Bool = NDArray[np.bool_]
Accept = Callable[[Units, Batch], tuple[Units, Bool]]

_CLEAR = 4  # standard deviations of the number, below which it corrects nothing


class Corrected(NamedTuple):
    """A release after its correction."""

    value: I64  # (m, c)
    variance: F64  # (m, c)
    public: dict[str, I64]


@dataclass(frozen=True)
class PrivateTotal:
    """The noisy number of all records."""

    bound: int  # most records of a unit that the map counts, per epoch
    cap: int  # most records of a unit that are counted here, per epoch; at least ``bound``
    epsilon: Fraction  # what the numbers of all triggers cost a unit

    def __post_init__(self) -> None:
        at_least("bound", self.bound, 1)
        if at_least("debias_cap", self.cap, 1) < self.bound:
            raise ParameterError("debias_cap", self.cap, f"must not be below bound = {self.bound}")
        positive("debias_share", self.epsilon)
        if (self.bound + 1) * (self.cap + 1) > 1 << 32:
            raise ParameterError("debias_cap", self.cap, "is too large for the state of a unit")

    # The rest of a unit: of the map's bound, and of the cap, in one number.

    @property
    def fresh(self) -> int:
        """The rest of a unit before its first record."""
        return self.bound + (self.bound + 1) * self.cap

    def absorb(self, accept: Accept, units: Units, batch: Batch) -> tuple[Units, Bool, I64]:
        """Let the map's bound accept records, and count all insertions, however slices are cut.

        Returns:
            New units, (n,) whether the map accepts each record, and (1,) how many count here.
        """
        rest, left = np.divmod(units.left, self.bound + 1)
        unit = batch.unit[batch.sign > 0]
        counts = ranks(unit, len(rest)) < rest[unit]
        rest = rest - np.bincount(unit[counts], minlength=len(rest))
        units, accepted = accept(units._replace(left=left), batch)
        both = units._replace(left=units.left + (self.bound + 1) * rest)
        return both, accepted, np.array([counts.sum()], np.int64)

    def stated(self, bound: Mapping[str, Any]) -> dict[str, Any]:
        """The statement of a map's bound, and how many records of a unit count here."""
        words = f"{bound['in_words']}; in the number of all records, at most {self.cap}"
        return {**bound, "most_in_total": self.cap, "in_words": words}

    # The released number

    @property
    def scale(self) -> Fraction:
        """Scale of the draw of one trigger."""
        return self.cap / self.epsilon

    def draws(self, horizon: int) -> Draws:
        """The draws of a window."""
        return laplace("count", self.scale, 4 * horizon)

    def noise(self, name: Keys, t: int, noise: Noise) -> int:
        """The draw of trigger t; ``name`` differs from all keys of the map's own draws."""
        index = np.array([t], np.int64)
        return int(noise.laplace("records", name, index, self.scale, index)[0, 0])

    def variance(self, triggers: int) -> float:
        """Variance of the released number after ``triggers`` triggers, in squared records."""
        return triggers * 2 * float(self.scale) ** 2  # the continuous law's: an upper bound

    def corrected(
        self, value: I64, variance: F64, grid: int, records: int, triggers: int
    ) -> Corrected:
        """Scale the map's counts by the ratio of the released number to their sum.

        Args:
            value: (m, c) released counts, the first column non-negative, in 1/grid records.
            variance: (m, c) variance of each.
            grid: steps of a record.

        Returns:
            Corrected values and variances, and the two numbers in whole records. The factor lies
            between 1 and cap/bound, since no unit can lose more; it is 1 where the number is less
            than `_CLEAR` standard deviations.
        """
        counted = int(value[:, 0].sum())
        spread = self.variance(triggers)
        public = {
            "records": np.array([records], np.int64),
            "counted": np.array([counted // grid], np.int64),
        }
        if counted <= 0 or records <= 0 or records**2 < _CLEAR**2 * spread:
            return Corrected(value, variance, public)
        factor = min(max(records * grid / counted, 1.0), self.cap / self.bound)
        scaled = np.rint(value * factor).astype(np.int64)
        wide = variance * factor**2 + scaled.astype(np.float64) ** 2 * (spread / records**2)
        return Corrected(scaled, wide, public)

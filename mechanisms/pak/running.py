"""Released columns that follow from released prefix sums: sliding, moving and decayed values.

This is post-processing of released numbers; variances follow from the counters. Slots count from
the end of the warm-up: a window that reaches back further holds only the slots since then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ...errors import ParameterError
from ..columns import F64, I64
from ..contract import INSERTING, Output
from ..sums import hold, nearest
from ..validate import at_least
from .succession import Succession

LONGEST = 4096
LATEST = Fraction(999, 1000)
FINE = 64
"""Steps of averages and decayed sums per step of a sum."""

_NEGLIGIBLE = 2.0**-20


class Past(NamedTuple):
    """Released numbers from which the next ones are computed."""

    prefixes: tuple[int, ...] = ()  # the newest ones, oldest first, in output steps
    decayed: int = 0  # in 1/FINE output steps


@dataclass(frozen=True)
class Running:
    """Columns that a stream releases in addition to its sums.

    Raises:
        ParameterError: one of them is out of range.
    """

    width: int = 0  # slots of a sliding sum and of a moving average; 0 releases neither
    # share of a slot's weight that remains one slot later, for a decayed sum; 0 for none
    keep: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if at_least("sliding", self.width, 0) > LONGEST:
            raise ParameterError("sliding", self.width, f"must be at most {LONGEST} slots")
        if not 0 <= self.keep <= LATEST:
            raise ParameterError("decay", float(self.keep), f"must lie in [0, {float(LATEST)}]")

    def outputs(self, step: Fraction) -> tuple[Output, ...]:
        """The columns, for sums in steps of ``step``."""
        fine, made = step / FINE, []
        if self.width:
            made += [Output("sliding", step, INSERTING), Output("average", fine, INSERTING)]
        if self.keep:
            made.append(Output("decayed", fine, INSERTING))
        return tuple(made)

    @property
    def stored(self) -> int:
        """Number of integers of state."""
        return (1 + self.width) * bool(self.width) + bool(self.keep)

    def pack(self, past: Past) -> list[int]:
        """The state as `stored` integers."""
        known = list(past.prefixes)
        made = [len(known), *known, *[0] * (self.width - len(known))] if self.width else []
        return made + ([past.decayed] if self.keep else [])

    def unpack(self, stored: I64) -> Past:
        """The inverse of `pack`."""
        values = [int(x) for x in stored[: self.stored]]
        known = tuple(values[1 : 1 + values[0]]) if self.width else ()
        return Past(known, values[-1] if self.keep else 0)

    def begin(self, base: int) -> Past:
        """The state at the end of the warm-up, where the prefix sum is ``base``."""
        return Past((base,) if self.width else ())

    def after(self, past: Past, prefix: Sequence[int], first: int) -> tuple[Past, I64]:
        """The state after consecutive slots, and (slots, columns) values in steps of `outputs`.

        Args:
            past: the state before.
            prefix: released prefix sums, starting before the first of these slots.
            first: number of slots between the warm-up and these.
        """
        known, decayed, rows = list(past.prefixes), past.decayed, []
        for place, (before, now) in enumerate(pairwise(prefix)):
            row = []
            if self.width:
                slid, count = now - known[0], min(self.width, first + place + 1)
                known = [*known, now][-self.width :]
                row += [hold(slid), hold(nearest(Fraction(FINE * slid, count)))]
            if self.keep:
                decayed = hold(nearest(self.keep * decayed) + FINE * (now - before))
                row.append(decayed)
            rows.append(row)
        return Past(tuple(known), decayed), np.array(rows, np.int64).reshape(len(rows), -1)

    def variances(self, pieces: Succession, end: int) -> list[float]:
        """Noise variance of each column at the slot that ends ``end`` slots after the warm-up.

        In squared steps of `outputs`, for sums in grid steps.
        """
        made = []
        if self.width:
            count = min(self.width, end)
            square = pieces.variance(end - count, end)
            made += [square, square * (FINE / count) ** 2]
        if self.keep:
            made.append(pieces.weighted(self._weights(end)) * FINE**2)
        return made

    def _weights(self, end: int) -> dict[int, float]:
        """Weights of slots in a decayed sum, as far back as they matter."""
        far = int(np.log(_NEGLIGIBLE) / np.log(float(self.keep))) + 1
        slots = range(max(0, end - far), end)
        return {slot: float(self.keep) ** (end - 1 - slot) for slot in slots}


NO_VIEWS = Running()


def blank(columns: int) -> tuple[I64, F64]:
    """Values and variances of a whole warm-up's row, which has no slots after it."""
    return np.zeros((1, columns), np.int64), np.zeros((1, columns))

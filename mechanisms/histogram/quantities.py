"""The values of a histogram: summed columns, and the noise of their releases."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..columns import I64
from ..factorization.prefix_noise import Process


class Column(NamedTuple):
    """A value column: records are clipped to [low, high] and summed as ``value - middle``.

    Where it is of some records alone, ``counter`` is the place of the column that is 1 for these
    and 0 for others, which add nothing.
    """

    name: str
    low: int
    high: int
    middle: int
    counter: int | None = None

    def moved(self, value: I64, place: int) -> I64:
        """(n,) what each record adds to the sum, of its (n, c) values."""
        centred: I64 = np.clip(value[:, place], self.low, self.high) - self.middle
        return centred if self.counter is None else centred * np.clip(value[:, self.counter], 0, 1)

    def reach(self) -> int:
        """The most that one record moves the sum, at least 1."""
        return max(self.high - self.middle, self.middle - self.low, 1)


class Quantity(NamedTuple):
    """A released value: a column of the sums, and the noise process of each lane."""

    column: int  # 0 = count
    lanes: tuple[Process, ...]

"""The values of a histogram: summed columns, and the noise of their releases."""

from __future__ import annotations

from typing import NamedTuple

from ..factorization.prefix_noise import Process


class Column(NamedTuple):
    """A value column: records are clipped to [low, high] and summed as ``value - middle``."""

    name: str
    low: int
    high: int
    middle: int

    def reach(self) -> int:
        """The most that one record moves the sum, at least 1."""
        return max(self.high - self.middle, self.middle - self.low, 1)


class Quantity(NamedTuple):
    """A released value: a column of the sums, and the noise process of each lane."""

    column: int  # 0 = count
    lanes: tuple[Process, ...]

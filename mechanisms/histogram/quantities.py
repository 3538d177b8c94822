"""The values of a histogram: summed columns, and the noise of their releases."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...errors import ParameterError
from ..columns import I64
from ..contract import Setting
from ..factorization.prefix_noise import Process
from ..parts.squares import Square, square_of
from ..ranges import RECORDS
from .settings import HistogramParameters

_WIDEST = (1 << 62) // RECORDS
_TOO_WIDE = (
    f"low and high must lie within ±2^{_WIDEST.bit_length() - 1} grid steps, so that the sum of "
    f"2^{RECORDS.bit_length() - 1} records fits into 63 bits: choose a coarser grid or a "
    "narrower interval"
)


class Column(NamedTuple):
    """A value column: records are clipped to [low, high] and summed as ``value - middle``.

    If it holds only some records, ``counter`` is the index of the column that is 1 for these and 0
    for others, which add nothing.
    """

    name: str
    low: int
    high: int
    middle: int
    counter: int | None = None

    def moved(self, value: I64, place: int) -> I64:
        """(n,) what each record adds to the sum, from its (n, c) values."""
        centred: I64 = np.clip(value[:, place], self.low, self.high) - self.middle
        return centred if self.counter is None else centred * np.clip(value[:, self.counter], 0, 1)

    def reach(self) -> int:
        """The most by which one record moves the sum, at least 1."""
        return max(self.high - self.middle, self.middle - self.low, 1)


class Quantity(NamedTuple):
    """A released value: a column of the sums, and the noise process of each lane."""

    column: int  # 0 = count
    lanes: tuple[Process, ...]


def columns_of(parameters: HistogramParameters, setting: Setting) -> tuple[Column, ...]:
    if parameters.aggregate == "keys":
        return ()
    centred = setting.keys is None or setting.count  # centring needs a count to shift sums back
    partial, counts = {place for group in setting.apart for place in group}, dict(setting.within)
    made = []
    for at, (name, low, high) in enumerate(setting.columns):
        if low > high:
            raise ParameterError(name, (low, high), "must be an interval, low before high")
        if max(abs(low), abs(high)) >= _WIDEST:
            raise ParameterError(name, (low, high), _TOO_WIDE)
        around = at in counts or (centred and at not in partial)
        made.append(Column(name, low, high, (low + high) // 2 * around, counts.get(at)))
    return tuple(made)


def squares_of(setting: Setting, columns: tuple[Column, ...]) -> tuple[Square, ...]:
    made = tuple(
        square_of(column.name, place, column.reach())
        for place, column in enumerate(columns)
        if column.name in setting.squares
    )
    if not setting.count and any(columns[one.column].counter is None for one in made):
        raise ParameterError("count", False, "a variance needs it")
    return made

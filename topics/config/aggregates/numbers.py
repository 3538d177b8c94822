"""Sums and means of a numeric field."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Literal

from ....formats.events.fields import NumericField
from ....mechanisms.entry import Objection
from ....mechanisms.parts.bounds.stated import plain, quotient
from ..expressions.conditions import Condition, every
from ..toml.values import FieldPath, ValueName, above
from .contract import COUNT, Estimate, label_of, sum_of
from .partial import Partial

COLUMN_LIMIT = 2**31  # grid steps; with wider clipping intervals exact sums would overflow


GRIDS = Fraction(1, 10**100), Fraction(10**100)
"""The finest and the coarsest grid. Values are divided by the grid as doubles: outside this range
they would silently be rounded to wrong steps."""


@dataclass(frozen=True)
class OfField:
    """An aggregate of a numeric field, each value clipped first.

    Attributes:
        field: path of the number.
        low: smaller values count as this.
        high: larger values count as this.
        grid: values are rounded to multiples of this.
    """

    kind: str
    field: FieldPath
    low: Fraction
    high: Fraction
    grid: Annotated[Fraction, above(0)] = Fraction(1)
    name: ValueName | None = None

    @property
    def label(self) -> str:
        return self.name or label_of(self.kind, self.field)

    @property
    def columns(self) -> tuple[NumericField, ...]:
        return (NumericField(self.field, self.low, self.high, self.grid),)

    def objections(self) -> Iterator[Objection]:
        """Objections to an interval that is empty, off the grid, or too wide."""
        return clip_objections(self.columns[0])


@dataclass(frozen=True)
class OfSome(Partial, OfField):
    """An aggregate of a numeric field that may be of some records alone."""

    where: tuple[Condition, ...] = ()

    @property
    def columns(self) -> tuple[NumericField, ...]:
        given = self.field, self.low, self.high, self.grid
        return (NumericField(*given, every(self.where), self._called),)

    def objections(self) -> Iterator[Objection]:
        """Objections to the interval, as for `OfField`, and to the conditions."""
        yield from OfField.objections(self)
        yield from Partial.objections(self)


@dataclass(frozen=True)
class Sum(OfSome):
    """The sum of a numeric field, each value clipped first.

    Attributes:
        kind: `sum`.
        name: name of the value in releases; default `sum_` and the field.
        where: only records that fulfil all these conditions count; others need no such number.
    """

    kind: Literal["sum"]

    @property
    def parts(self) -> tuple[str, ...]:
        return (sum_of(self._called or self.field),)

    def finish(self, parts: Sequence[Estimate]) -> Estimate | None:
        return parts[0]


@dataclass(frozen=True)
class Mean(OfField):
    """The mean of a numeric field: a private sum divided by the private count.

    It is cut to the range from `low` to `high`, beyond which noise may take the quotient.

    Attributes:
        kind: `mean`.
        name: name of the value in releases; default `mean_` and the field.
    """

    kind: Literal["mean"]

    @property
    def parts(self) -> tuple[str, ...]:
        return (COUNT, sum_of(self.field))

    def finish(self, parts: Sequence[Estimate]) -> Estimate | None:
        """Sum over count, with the delta method's error; None if the count is not positive.

        The released sum is that of values centred on the middle of the clipping interval, plus the
        middle times the count. So the count's error matters only in proportion to the mean's
        distance from the middle. The error is that of the quotient, even if the mean was moved into
        the interval.
        """
        count, total = parts
        number = plain(count.value)
        if number <= 0:
            return None
        mean = plain(total.value) / number
        spread = math.hypot(total.stddev, mean * count.stddev) / number
        inside = min(max(quotient(mean, spread), self.low), self.high)
        return Estimate(inside, spread, (self.low, self.high))


def clip_objections(column: NumericField) -> Iterator[Objection]:
    """Objections to the clipping interval of a column."""
    if not GRIDS[0] <= column.grid <= GRIDS[1]:
        yield "grid", f"must lie between {float(GRIDS[0]):g} and {float(GRIDS[1]):g}"
        return
    most = COLUMN_LIMIT * column.grid
    far = [name for name in ("low", "high") if abs(getattr(column, name)) > most]
    for setting in far:
        yield setting, f"is more than {COLUMN_LIMIT} grid steps from 0: choose a coarser grid"
    if far:
        return
    if column.low >= column.high:
        yield "high", f"{float(column.high):g} must exceed low = {float(column.low):g}"
    for setting, end in (("low", column.low), ("high", column.high)):
        if (end / column.grid).denominator != 1:
            yield setting, f"{float(end):g} is not a multiple of grid = {float(column.grid):g}"

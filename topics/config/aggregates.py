"""The aggregates that a pipeline may release per key: one class each, all in `Aggregate`.

An aggregate states the value columns that it needs summed, the released columns that it consists
of, and how these become its value with an error. A mechanism releases
``count`` and ``sum:<field>``; an aggregate only post-processes them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Annotated, Any, Literal, NamedTuple, Protocol

import msgspec

from ...formats.events.expressions.exclusive import groups
from ...formats.events.fields import NumericField
from ...mechanisms.entry import Objection
from ...mechanisms.parts.squares import square_steps
from ...mechanisms.parts.stated_bound import plain
from .expressions.conditions import Condition, every, pinned
from .values import FieldPath, ValueName, above

COUNT = "count"
"""The released column of the number of records."""

COLUMN_LIMIT = 2**31  # grid steps; with larger clipping intervals exact sums would overflow


GRIDS = Fraction(1, 10**100), Fraction(10**100)
"""The finest and the coarsest grid. Values are divided by it as doubles: beyond their range all
would be rounded to wrong steps, unseen."""


class Estimate(NamedTuple):
    """A released number and the standard deviation of its noise.

    Attributes:
        value: of the number.
        stddev: of its noise.
        within: between which ends the exact number lies, as long as nothing is deleted; the value
            lies there whatever comes. None: nowhere in particular.
        square: the estimate whose square root this is: the interval is that one's. None: of none.
    """

    value: Fraction
    stddev: float
    within: tuple[Fraction, Fraction] | None = None
    square: Estimate | None = None


class AnyAggregate(Protocol):
    """The contract of an aggregate. ``kind`` and ``name`` are settings."""

    @property
    def label(self) -> str:
        """Name of the value in releases."""
        ...

    @property
    def columns(self) -> tuple[NumericField, ...]:
        """Value columns that the mechanism must sum."""
        ...

    @property
    def parts(self) -> tuple[str, ...]:
        """Released columns that form the value, in the order of `finish`."""
        ...

    def objections(self) -> Iterator[Objection]:
        """Settings that contradict each other."""
        ...

    def finish(self, parts: Sequence[Estimate]) -> Estimate | None:
        """Compute value and error; None (null in releases) if the parts give none."""
        ...


class _Partial:
    """An aggregate that may be of some records alone."""

    where: tuple[Condition, ...]

    def pinned(self) -> dict[str, Any]:
        """The aggregate as the charged configuration states it."""
        told = {one.name: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]
        asked = pinned(self.where)
        del told["where"]  # absent, as before there was such a setting
        return told if asked is None else told | {"where": asked, "column": self._called}

    @property
    def _called(self) -> str | None:
        """Name of the column, which aggregates of the same records share; None: as it is of all."""
        if not self.where:
            return None
        told = msgspec.json.encode(pinned(self.where), enc_hook=str, order="deterministic")
        of = getattr(self, "field", "")
        return f"{of} where {hashlib.sha256(told).hexdigest()[:16]}".lstrip()


@dataclass(frozen=True)
class Count(_Partial):
    """The number of records.

    Attributes:
        kind: `count`.
        name: of the value in releases.
        where: only records that fulfil all these conditions are counted.
    """

    kind: Literal["count"] = "count"
    name: ValueName | None = None
    where: tuple[Condition, ...] = ()

    @property
    def label(self) -> str:
        return self.name or "count"

    @property
    def columns(self) -> tuple[NumericField, ...]:
        if not self.where:
            return ()
        one = Fraction(1)
        return (NumericField(None, Fraction(0), one, one, every(self.where), self._called),)

    @property
    def parts(self) -> tuple[str, ...]:
        return (COUNT if self._called is None else sum_of(self._called),)

    def objections(self) -> Iterator[Objection]:
        """Mistakes in the conditions."""
        return objections_to(self.where)

    def finish(self, parts: Sequence[Estimate]) -> Estimate | None:
        return parts[0]


@dataclass(frozen=True)
class Distinct:
    """The number of distinct values of a field, within each window.

    It stands alone in its pipeline. A unit's contribution bound counts the values that it shows in
    a key; what it shows again costs nothing.

    Attributes:
        kind: `distinct`.
        field: path of a text, an integer, true or false, or name of a derived column.
        name: of the value in releases; default `distinct_` and the field.
    """

    kind: Literal["distinct"]
    field: FieldPath
    name: ValueName | None = None

    @property
    def label(self) -> str:
        return self.name or label_of(self.kind, self.field)

    @property
    def columns(self) -> tuple[NumericField, ...]:
        return ()

    @property
    def parts(self) -> tuple[str, ...]:
        return (COUNT,)

    def objections(self) -> Iterator[Objection]:
        return iter(())

    def finish(self, parts: Sequence[Estimate]) -> Estimate | None:
        return parts[0]


@dataclass(frozen=True)
class _OfField:
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
        """An interval that is empty, off the grid, or too wide."""
        return clip_objections(self.columns[0])


@dataclass(frozen=True)
class Sum(_Partial, _OfField):
    """The sum of a numeric field, each value clipped first.

    Attributes:
        kind: `sum`.
        name: of the value in releases; default `sum_` and the field.
        where: only records that fulfil all these conditions count; others need no such number.
    """

    kind: Literal["sum"]
    where: tuple[Condition, ...] = ()

    @property
    def columns(self) -> tuple[NumericField, ...]:
        given = self.field, self.low, self.high, self.grid
        return (NumericField(*given, every(self.where), self._called),)

    @property
    def parts(self) -> tuple[str, ...]:
        return (sum_of(self._called or self.field),)

    def objections(self) -> Iterator[Objection]:
        """An interval that is empty, off the grid, or too wide, and mistakes in conditions."""
        yield from super().objections()
        yield from objections_to(self.where)

    def finish(self, parts: Sequence[Estimate]) -> Estimate | None:
        return parts[0]


@dataclass(frozen=True)
class Mean(_OfField):
    """The mean of a numeric field: a private sum divided by the private count.

    It is cut to the range from `low` to `high`, beyond which noise may take the quotient.

    Attributes:
        kind: `mean`.
        name: of the value in releases; default `mean_` and the field.
    """

    kind: Literal["mean"]

    @property
    def parts(self) -> tuple[str, ...]:
        return (COUNT, sum_of(self.field))

    def finish(self, parts: Sequence[Estimate]) -> Estimate | None:
        """Sum over count, with the delta method's error; None if the count is not positive.

        The released sum is that of values centred on the clip interval plus the middle times the
        count, so the error of the count cancels except for the distance to the middle. The error is
        that of the quotient itself, also where the mean was moved into the interval.
        """
        count, total = parts
        number = plain(count.value)
        if number <= 0:
            return None
        mean = plain(total.value) / number
        spread = math.hypot(total.stddev, mean * count.stddev) / number
        inside = min(max(Fraction(mean).limit_denominator(1_000_000), self.low), self.high)
        return Estimate(inside, spread, (self.low, self.high))


@dataclass(frozen=True)
class _Spread(_Partial, _OfField):
    """A spread, made of a count, a sum and a sum of squares."""

    sample: bool = False
    where: tuple[Condition, ...] = ()

    @property
    def columns(self) -> tuple[NumericField, ...]:
        given = self.field, self.low, self.high, self.grid
        values = NumericField(*given, every(self.where), self._called)
        return (values, *Count(where=self.where).columns)

    @property
    def parts(self) -> tuple[str, ...]:
        column = self._called or self.field
        return (*Count(where=self.where).parts, square_of(column), centred_of(column))

    def objections(self) -> Iterator[Objection]:
        """An interval that is empty, off the grid, or too wide, and mistakes in conditions."""
        yield from super().objections()
        yield from objections_to(self.where)


@dataclass(frozen=True)
class Variance(_Spread):
    """The variance of a numeric field, each value clipped first.

    A private mean of squares less the square of a private mean. Noise may take it below 0; it is
    then released as 0, with an interval that reaches up to what is still likely.

    Attributes:
        kind: `variance`.
        name: of the value in releases; default `variance_` and the field.
        sample: divide by one less than the count (VAR_SAMP) instead of by the count (VAR_POP).
        where: only records that fulfil all these conditions count; others need no such number.
    """

    kind: Literal["variance"]

    def finish(self, parts: Sequence[Estimate]) -> Estimate | None:
        """The variance with the delta method's error; None if the count is not positive.

        With n, q and s the released count, sum of squares less a constant each, and sum, all three
        with independent noise, and c that constant: q/n + c - (s/n)². None as well for a sample of
        one.
        """
        count, squares, total = parts
        number = plain(count.value)
        if number <= self.sample:
            return None
        mean, square = plain(total.value) / number, plain(squares.value) / number
        value = square + float(self._constant) - mean * mean
        bend = square - 2 * mean * mean
        noise = (squares.stddev, 2 * mean * total.stddev, bend * count.stddev)
        times = number / (number - 1) if self.sample else 1.0
        most = (self.high - self.low) ** 2 / (2 if self.sample else 4)
        inside = min(max(Fraction(value * times), Fraction(0)), most)
        return Estimate(inside, math.hypot(*noise) / number * times, (Fraction(0), most))

    @property
    def _constant(self) -> Fraction:
        """The number that was subtracted from each square."""
        _, step, top = square_steps(*self.columns[0].interval)
        return step * top * self.grid**2


@dataclass(frozen=True)
class Stddev(_Spread):
    """The standard deviation of a numeric field: the root of its variance.

    Its interval is the root of the variance's.

    Attributes:
        kind: `stddev`.
        name: of the value in releases; default `stddev_` and the field.
        sample: the root of VAR_SAMP instead of VAR_POP.
        where: only records that fulfil all these conditions count; others need no such number.
    """

    kind: Literal["stddev"]

    @property
    def _squared(self) -> Variance:
        given = self.field, self.low, self.high, self.grid
        return Variance("variance", *given, sample=self.sample, where=self.where)

    def finish(self, parts: Sequence[Estimate]) -> Estimate | None:
        """The root; its stated error is what the variance's becomes at that value."""
        square = self._squared.finish(parts)
        if square is None:
            return None
        value = math.sqrt(square.value)
        # Near 0 a root moves by no more than the root of what the square moves by.
        spread = min(square.stddev / (2 * value) if value else math.inf, math.sqrt(square.stddev))
        return Estimate(Fraction(value), spread, square=square)


Aggregate = Count | Sum | Mean | Variance | Stddev | Distinct
"""All aggregates; a configuration selects one by its ``kind``."""


def value_columns(aggregates: Sequence[AnyAggregate]) -> list[NumericField]:
    """The distinct value columns of some aggregates, in order of appearance."""
    every = (column for aggregate in aggregates for column in aggregate.columns)
    return list(dict.fromkeys(every))


def apart(columns: Sequence[NumericField]) -> tuple[tuple[int, ...], ...]:
    """Places of the columns that have a condition, those that exclude each other in one group."""
    partial = [(place, c.where) for place, c in enumerate(columns) if c.where is not None]
    found = groups([where for _, where in partial])
    return tuple(tuple(partial[member][0] for member in group) for group in found)


def counts_of(aggregates: Sequence[AnyAggregate]) -> dict[str, str]:
    """Name of the column that counts the records of each column whose squares are summed.

    Those of a column without a condition are counted anyway, and it is not among them.
    """
    made = (one.columns for one in aggregates if isinstance(one, _Spread) and one.where)
    return {values.name: count.name for values, count in made}


def objections_to(where: Sequence[Condition]) -> Iterator[Objection]:
    """Objections to the conditions of an aggregate, each with its dotted place."""
    for place, condition in enumerate(where):
        for setting, message in condition.objections():
            yield f"where.{place}.{setting}".rstrip("."), message


def counted_in(aggregates: Sequence[AnyAggregate]) -> str | None:
    """The field whose distinct values a pipeline counts; None if it counts records."""
    found = [one.field for one in aggregates if isinstance(one, Distinct)]
    return found[0] if found else None


def sum_of(field: str) -> str:
    """The released column of a field's sum.

    >>> sum_of("fare")
    'sum:fare'
    """
    return f"sum:{field}"


def square_of(field: str) -> str:
    """The released column of a field's sum of squares.

    >>> square_of("fare")
    'square:fare'
    """
    return f"square:{field}"


def centred_of(field: str) -> str:
    """The released column of a field's sum around the middle of its interval.

    >>> centred_of("fare")
    'centred:fare'
    """
    return f"centred:{field}"


def label_of(kind: str, field: str) -> str:
    """The default name of a value.

    >>> label_of("mean", "trip.fare")
    'mean_trip_fare'
    """
    return f"{kind}_{field.replace('.', '_')}"


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

"""Variances and standard deviations of a numeric field."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from ....formats.events.fields import NumericField
from ....mechanisms.parts.bounds.stated import plain
from ....mechanisms.parts.squares import square_steps
from .contract import Estimate, centred_of, square_of
from .numbers import OfSome
from .partial import Count


@dataclass(frozen=True)
class Spread(OfSome):
    """A spread, computed from a count, a sum and a sum of squares."""

    sample: bool = False

    @property
    def columns(self) -> tuple[NumericField, ...]:
        return (*super().columns, *Count(where=self.where).columns)

    @property
    def parts(self) -> tuple[str, ...]:
        column = self._called or self.field
        return (*Count(where=self.where).parts, square_of(column), centred_of(column))


@dataclass(frozen=True)
class Variance(Spread):
    """The variance of a numeric field, each value clipped first.

    A private mean of squares less the square of a private mean. Noise may take it below 0; it is
    then released as 0, with an interval that reaches up to what is still likely.

    Attributes:
        kind: `variance`.
        name: name of the value in releases; default `variance_` and the field.
        sample: divide by one less than the count (VAR_SAMP) instead of by the count (VAR_POP).
        where: only records that fulfil all these conditions count; others need no such number.
    """

    kind: Literal["variance"]

    def finish(self, parts: Sequence[Estimate]) -> Estimate | None:
        """The variance with the delta method's error; None if the count is not positive.

        Let n be the released count, s the sum, and q the sum of squares, each square less a
        constant c; all three have independent noise. The variance is q/n + c - (s/n)². Also None
        for a sample of one.
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
        """The constant that was subtracted from each square."""
        _, step, top = square_steps(*self.columns[0].interval)
        return step * top * self.grid**2


@dataclass(frozen=True)
class Stddev(Spread):
    """The standard deviation of a numeric field: the root of its variance.

    Its interval is the root of the variance's.

    Attributes:
        kind: `stddev`.
        name: name of the value in releases; default `stddev_` and the field.
        sample: the root of VAR_SAMP instead of VAR_POP.
        where: only records that fulfil all these conditions count; others need no such number.
    """

    kind: Literal["stddev"]

    @property
    def _squared(self) -> Variance:
        given = self.field, self.low, self.high, self.grid
        return Variance("variance", *given, sample=self.sample, where=self.where)

    def finish(self, parts: Sequence[Estimate]) -> Estimate | None:
        """The root; its stated error is that of the variance, propagated at that value."""
        square = self._squared.finish(parts)
        if square is None:
            return None
        value = math.sqrt(square.value)
        # Near 0 a root changes by at most the root of the change of its square.
        spread = min(square.stddev / (2 * value) if value else math.inf, math.sqrt(square.stddev))
        return Estimate(Fraction(value), spread, square=square)

"""Arithmetic on released numbers: exact values, and the error that the noise leaves.

Values are rationals, as they are released on public grids; variances are doubles, taken from
standard deviations of six digits. Sums of the latter, products and square roots are rounded alike
on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, NamedTuple

from ....mechanisms.parts.bounds.stated import plain, quotient
from ....topics.releases import Value
from ...deployment.published.statement import significant


class Noisy(NamedTuple):
    """A number with noise.

    Attributes:
        value: the number.
        variance: variance of its noise.
        ends: interval; None: the interval of normal noise of this variance.
        floored: whether the exact number cannot be negative.
    """

    value: Fraction
    variance: float
    ends: tuple[float, float] | None = None
    floored: bool = False


def noisy(told: Value, floored: bool) -> Noisy:
    """A released value as it is."""
    value = Fraction(repr(told.value))
    return Noisy(value, told.stddev * told.stddev, (told.low, told.high), floored)


def total(parts: Iterable[Noisy]) -> Noisy:
    """The sum of numbers whose noises are independent; one alone stays as it is."""
    every = list(parts)
    if len(every) == 1:
        return every[0]
    value = sum((one.value for one in every), Fraction(0))
    # fsum is exact before it rounds, so the order of keys does not matter.
    variance = math.fsum(one.variance for one in every)
    return Noisy(value, variance, None, all(one.floored for one in every))


def difference(one: Noisy, other: Noisy) -> Noisy:
    """One number less another with independent noise."""
    return Noisy(one.value - other.value, one.variance + other.variance)


def ratio(above: Noisy, below: Noisy, covariance: float | None, quantile: float) -> Noisy | None:
    """A quotient, its error by the delta method, and its interval by Fieller's.

    With a and b the released numbers, the noise of a - r·b at the true ratio r is normal with
    variance q(r) = var a + r²·var b - 2r·cov; so {r: (a - r·b)² <= z²·q(r)} covers the true ratio
    as often as z says, whatever the relative error of b (E. C. Fieller, "Some problems in interval
    estimation", 1954). It is an interval where b lies more than z deviations above 0.

    Args:
        covariance: covariance of the two noises; None: unknown; then q is taken as twice its value
            without covariance, which is an upper bound.
        quantile: z.

    Returns:
        None where the set is no interval: the denominator cannot be told from 0.
    """
    twice = 2.0 if covariance is None else 1.0
    cov, z2 = covariance or 0.0, quantile * quantile
    va, vb = twice * above.variance, twice * below.variance
    a, b = plain(above.value), plain(below.value)
    square = b * b - z2 * vb
    if b <= 0 or square <= 0:
        return None
    r = a / b
    half = a * b - z2 * cov
    spread = max(va + r * r * vb - 2 * r * cov, 0.0) / (b * b)
    value = quotient(r, math.sqrt(spread))
    root = math.sqrt(max(half * half - square * (a * a - z2 * va), 0.0))
    ends = tuple(
        value + _rounded(end - r) for end in ((half - root) / square, (half + root) / square)
    )
    low, high = (float(max(end, Fraction(0))) if above.floored else float(end) for end in ends)
    return Noisy(value, spread, (low, high), above.floored)


def _rounded(reach: float) -> Fraction:
    """Half the width of an interval, to six digits: six of the end itself could swallow it."""
    return Fraction(repr(significant(reach)))


def told(one: Noisy | None, quantile: float, shown: bool) -> dict[str, Any] | None:
    """A number as it is released.

    Args:
        quantile: normal quantile of the confidence level, in deviations.
        shown: whether a field with negative values shown as 0 is added.
    """
    if one is None:
        return None
    value, stddev = plain(one.value), significant(math.sqrt(one.variance))
    low, high = one.ends or _ends(one, quantile * stddev)
    body = {"value": value, "stddev": stddev, "low": low, "high": high}
    return body | ({"display_value": max(value, 0)} if shown else {})


def _ends(one: Noisy, reach: float) -> tuple[float, float]:
    ends = one.value - _rounded(reach), one.value + _rounded(reach)
    low, high = (max(end, Fraction(0)) if one.floored else end for end in ends)
    return float(low), float(high)

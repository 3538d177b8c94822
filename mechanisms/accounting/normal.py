"""The normal law in arbitrary precision, with guaranteed bounds.

Privacy claims need inequalities that hold, and parameters that are the same on every machine; a
mathematical library promises neither. Everything here is computed with `decimal`, whose operations
are correctly rounded and identical on every platform, and widened by a proved error bound before
it is returned. Floats serve only as first guesses of a search.

The upper tail is Φ̄(x) = P(N(0,1) > x) = φ(x)·m(x), m being Mills' ratio. For x < 2 the
all-positive series Φ(x) - ½ = φ(x) Σ_k x^(2k+1)/(1·3·…·(2k+1)) is summed until its geometric
remainder vanishes. For x ≥ 2 Laplace's continued fraction m(x) = 1/(x+1/(x+2/(x+3/(x+…)))) is
used, whose consecutive convergents lie on either side of the limit (all terms are positive), so
two of them are an enclosure.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

from ...errors import ParameterError

DIGITS = 60
_PI = Decimal(
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803"
    "48253421170679821480865132823066470938446095505822317253594081284811174502841027019385"
)
_PI_DIGITS = 160
_FAR = Fraction(10**6)  # beyond it every tail is below 10^-10^11 and only bounds are given
_SMALLEST = Fraction(1, 2**1200)  # results are never rounded below this


Holds = Callable[[Fraction], bool]


class Bounds(NamedTuple):
    """An enclosure: ``low`` ≤ the exact value ≤ ``high``."""

    low: Decimal
    high: Decimal


def precision(digits: int) -> Context:
    """A decimal context of ``digits`` digits whose exponents never overflow here."""
    return Context(prec=digits, rounding=ROUND_HALF_EVEN, Emin=-(10**17), Emax=10**17)


def decimal(value: Fraction) -> Decimal:
    """``value`` rounded to the precision of the current context."""
    return Decimal(value.numerator) / Decimal(value.denominator)


def widen(value: Decimal, digits: int, weight: Decimal | int = 1) -> Bounds:
    """Bounds around ``value`` of relative width weight·10^(12-digits).

    With at most 10^5 correctly rounded operations of relative error ½·10^(1-digits) on positive
    terms the accumulated error is below 10^(6-digits); ``weight`` is the factor that
    amplifies an error of the argument.
    """
    width = abs(value) * Decimal(10) ** (12 - digits) * weight
    return Bounds(value - width, value + width)


def round_up(value: Decimal | Fraction, bits: int = 60) -> Fraction:
    """The least dyadic number of ``bits`` significant bits that is ≥ ``value`` (≥ 0)."""
    if value <= 0:
        return Fraction(0)
    if isinstance(value, Decimal) and value.adjusted() < -360:
        return _SMALLEST
    exact = Fraction(value)
    shift = bits - exact.numerator.bit_length() + exact.denominator.bit_length()
    scale = Fraction(2) ** shift
    return max(_SMALLEST, math.ceil(exact * scale) / scale)


def sqrt_up(value: Fraction) -> Fraction:
    """A rational of about 60 bits that is ≥ √value."""
    bits = 128 - value.numerator.bit_length() + value.denominator.bit_length()
    shift = 2 * math.ceil(bits / 2)
    root = math.isqrt(math.ceil(value * Fraction(2) ** shift) - 1) + 1 if value > 0 else 0
    return round_up(Fraction(root) / Fraction(2) ** (shift // 2))


def exp_bounds(value: Fraction, digits: int = DIGITS) -> Bounds:
    """Bounds of e^value for |value| ≤ 10^13."""
    with localcontext(precision(digits)):
        return widen(decimal(value).exp(), digits, 1 + abs(decimal(value)))


def log_up(value: Fraction) -> Fraction:
    """A rational ≥ ln(value) for value ≥ 1."""
    with localcontext(precision(DIGITS)):
        # An error of the argument shifts the logarithm by its relative size: absolute 10^-57.
        return round_up(widen(decimal(value).ln(), DIGITS).high + Decimal(10) ** -50)


def tail(x: Fraction, digits: int = DIGITS) -> Bounds:
    """Bounds of the upper tail Φ̄(x), of relative width below 10^-18(1+x²).

    >>> bounds = tail(Fraction(2))
    >>> print(f"{bounds.low:.12f} {bounds.high - bounds.low < Decimal(10) ** -45}")
    0.022750131948 True

    Raises:
        ParameterError: ``digits`` exceeds the stored digits of π.
    """
    if digits > _PI_DIGITS:
        raise ParameterError("digits", digits, f"at most {_PI_DIGITS} digits are supported")
    if x < 0:
        low, high = tail(-x, digits)
        return Bounds(_below(1 - Fraction(high), digits), _above(1 - Fraction(low), digits))
    if x > _FAR:
        return Bounds(Decimal(0), tail(_FAR, digits).high)
    with localcontext(precision(digits)):
        return _tail_near(x, digits) if x < 2 else _tail_far(x, digits)


def at_most(value: Decimal, limit: Fraction) -> bool:
    """Whether ``value`` ≤ ``limit``, undecided cases counting as false.

    The comparison stays in decimals: a tail of 10^-(10^11) has no usable fraction.
    """
    with localcontext(precision(DIGITS)) as context:
        context.rounding = ROUND_FLOOR
        return value <= decimal(limit)


def _below(value: Fraction, digits: int) -> Decimal:
    with localcontext(precision(digits)):
        return widen(decimal(value), digits).low


def _above(value: Fraction, digits: int) -> Decimal:
    with localcontext(precision(digits)):
        return widen(decimal(value), digits).high


def _density(x: Decimal) -> Decimal:
    return (-x * x / 2).exp() / (2 * _PI).sqrt()


def _tail_near(x: Fraction, digits: int) -> Bounds:
    point = decimal(x)
    square, term, total, odd = point * point, point, point, 1
    # Once x² < odd/2 the remainder is at most twice the last term.
    while odd < 8 or term > Decimal(10) ** -digits:
        odd += 2
        term = term * square / odd
        total += term
    half = _density(point) * total
    error = Decimal(10) ** (10 - digits)
    return Bounds(Decimal("0.5") - half - error, Decimal("0.5") - half + error)


def _tail_far(x: Fraction, digits: int) -> Bounds:
    point = decimal(x)
    depth = digits + math.ceil((digits / float(x)) ** 2)
    first, second = _mills(point, depth), _mills(point, depth + 1)
    density, weight = _density(point), 2 + point * point
    low = widen(density * min(first, second), digits, weight).low
    return Bounds(low, widen(density * max(first, second), digits, weight).high)


def _mills(x: Decimal, depth: int) -> Decimal:
    value = x
    for k in range(depth, 0, -1):
        value = x + k / value
    return 1 / value


def least(holds: Holds, bits: int = 40, near: float = 0.0) -> Fraction:
    """The least positive dyadic number of ``bits`` significant bits for which ``holds``.

    Args:
        holds: monotone: false below some point, true above it.
        near: a guess in floats, which saves most calls of ``holds``; 0: none. It changes no
            result, because ``holds`` must be monotone to the last bit.

    Raises:
        ParameterError: it holds nowhere below 2^5000, or everywhere above 2^-5000.
    """
    return _edge(holds, bits, near)[1]


def greatest(holds: Holds, bits: int = 40, near: float = 0.0) -> Fraction:
    """The greatest positive dyadic number of ``bits`` bits for which ``holds`` (true, then false).

    Arguments as for `least`.

    Raises:
        ParameterError: it holds everywhere below 2^5000, or nowhere above 2^-5000.
    """
    return _edge(lambda x: not holds(x), bits, near)[0]


def _edge(holds: Holds, bits: int, near: float) -> tuple[Fraction, Fraction]:
    """Two adjacent numbers of ``bits`` bits: ``holds`` is false of the first, true of the second.

    ``holds`` has been evaluated at both.
    """
    whole = 1 << (bits - 1)  # steps from a power of two to the next
    low, start, stop = _around(holds, whole, near) or (_octave(holds), 0, whole)
    step: Fraction = low / whole
    while stop - start > 1:
        middle = (start + stop) // 2
        start, stop = (start, middle) if holds(low + middle * step) else (middle, stop)
    return low + start * step, low + stop * step


def _around(holds: Holds, whole: int, near: float) -> tuple[Fraction, int, int] | None:
    """A power of two, and the steps above it between which the edge lies; None if not by `near`."""
    if not 0 < near < math.inf:
        return None
    mantissa, exponent = math.frexp(near)
    low, width = Fraction(2) ** (exponent - 1), 2
    place = int((2 * mantissa - 1) * whole)
    while width < whole:
        start, stop = max(place - width, 0), min(place + width, whole)
        if not holds(low + start * low / whole) and holds(low + stop * low / whole):
            return low, start, stop
        width *= 64
    return None


def _octave(holds: Holds) -> Fraction:
    """The power of two 2^e with not holds(2^e) and holds(2^(e+1)), by galloping bisection."""
    start, stop = (-1, 1) if holds(Fraction(1)) else (0, 2)
    while holds(Fraction(2) ** start):
        start, stop = 2 * start, start
        if start < -5000:
            raise ParameterError("search", start, "no solution of at least 2^-5000")
    while not holds(Fraction(2) ** stop):
        start, stop = stop, 2 * stop
        if stop > 5000:
            raise ParameterError("search", stop, "no solution of at most 2^5000")
    while stop - start > 1:
        middle = (start + stop) // 2
        start, stop = (start, middle) if holds(Fraction(2) ** middle) else (middle, stop)
    return Fraction(2) ** start


@lru_cache(maxsize=4096)
def quantile_up(beta: Fraction) -> Fraction:
    """A rational z ≥ 0 with Φ̄(z) ≤ ``beta``, verified; within 2^-39 relative of the least one.

    >>> round(float(quantile_up(Fraction(1, 40))), 6)
    1.959964

    Raises:
        ParameterError: ``beta`` is not in (0, 1).
    """
    if not 0 < beta < 1:
        raise ParameterError("beta", beta, "must lie strictly between 0 and 1")
    if beta >= Fraction(1, 2):
        return Fraction(0)
    near = -NormalDist().inv_cdf(float(beta)) if 0 < float(beta) <= 0.25 else 0.0
    return least(lambda z: at_most(tail(z).high, beta), near=near)

"""Conversions between (ε, δ), Gaussian, zero-concentrated and group privacy, rounded safely."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

from ...errors import ParameterError
from ..validate import at_least
from . import normal

Real = Fraction | int | float
DIGITS = (60, 160)
"""Precisions to try: the second one if the first leaves a relative width above `_TIGHT`."""
_TIGHT = Decimal(2) ** -60
_ROOT = math.sqrt(2)


def gdp_delta(epsilon: Real, mu: Real) -> Fraction:
    """The least δ (rounded up) for which μ-GDP implies (ε, δ).

    >>> round(float(gdp_delta(6, Fraction("0.95818"))) * 1e10, 3)
    5.0

    Raises:
        ParameterError: ε does not lie in [0, 10^6], or μ is not positive and finite.
    """
    eps, m = epsilon_of(epsilon), positive("mu", mu)
    return min(Fraction(1), normal.round_up(_delta_high(eps, m)))


@lru_cache(maxsize=1024)
def gdp_mu(epsilon: Real, delta: Real) -> Fraction:
    """The greatest μ (40 bits, rounded down) for which μ-GDP implies (ε, δ).

    >>> round(float(gdp_mu(6, Fraction(5, 10**10))), 5)
    0.95818

    Raises:
        ParameterError: ε does not lie in [0, 10^6] or δ does not lie in (0, 1).
    """
    eps, limit = epsilon_of(epsilon), probability("delta", delta)
    near = _near(lambda mu: _delta(float(eps), mu), float(limit))
    return normal.greatest(lambda mu: normal.at_most(_delta_high(eps, mu), limit), near=near)


@lru_cache(maxsize=1024)
def gdp_epsilon(mu: Real, delta: Real) -> Fraction:
    """The least ε (40 bits, rounded up) for which μ-GDP implies (ε, δ).

    >>> round(float(gdp_epsilon(1, Fraction(1, 10**6))), 4)
    4.8866

    Raises:
        ParameterError: μ does not lie in [0, 10^6] or δ does not lie in (0, 1).
    """
    m, limit = exact("mu", mu, 10**6), probability("delta", delta)
    if m == 0 or normal.at_most(_delta_high(Fraction(0), m), limit):
        return Fraction(0)
    near = _near(lambda eps: _delta(eps, float(m)), float(limit), -1)
    near = near if near > limit else 0.0  # δ hardly changes with a smaller ε
    return normal.least(lambda eps: normal.at_most(_delta_high(eps, m), limit), near=near)


def _delta_high(epsilon: Fraction, mu: Fraction) -> Decimal:
    """An upper bound of δ_GDP(ε, μ), tight to 2^-60 unless 160 digits do not suffice."""
    high = Decimal(1)
    for digits in DIGITS:
        first, second = tails(epsilon, mu, digits)
        with localcontext(normal.precision(digits)):
            high = min(high, first.high - second.low)
            if (first.high - first.low) + (second.high - second.low) <= _TIGHT * abs(high):
                break
    return max(high, Decimal(0))


def _delta(epsilon: float, mu: float) -> float:
    """δ_GDP(ε, μ) in floats, for a guess; not finite where floats overflow."""
    first = math.erfc((epsilon / mu - mu / 2) / _ROOT) / 2
    try:
        return first - math.exp(epsilon) * math.erfc((epsilon / mu + mu / 2) / _ROOT) / 2
    except OverflowError:
        return math.nan


def _near(delta: Callable[[float], float], limit: float, sign: int = 1) -> float:
    """Approximate argument > 0 at which ``delta``, rising or falling (``sign``), meets ``limit``.

    0 if δ is large: between adjacent 40-bit numbers it may then change by less than the width of
    its enclosure, so the result of a search could depend on where the search starts.
    """
    if limit > 0.25:
        return 0.0
    low, high = -40.0, 20.0  # exponents of two
    for _ in range(64):
        middle = (low + high) / 2
        short = sign * delta(2.0**middle) < sign * limit
        low, high = (middle, high) if short else (low, middle)
    return float(2.0**high)


def tails(epsilon: Fraction, mu: Fraction, digits: int) -> tuple[normal.Bounds, normal.Bounds]:
    """Bounds of Φ(-ε/μ+μ/2) and of e^ε Φ(-ε/μ-μ/2)."""
    first = normal.tail(epsilon / mu - mu / 2, digits)
    tail, factor = normal.tail(epsilon / mu + mu / 2, digits), normal.exp_bounds(epsilon, digits)
    with localcontext(normal.precision(digits)):
        low, high = tail.low * factor.low, tail.high * factor.high
        return first, normal.Bounds(normal.widen(low, digits).low, normal.widen(high, digits).high)


def zcdp_epsilon(rho: Real, delta: Real) -> Fraction:
    """ε = ρ + 2√(ρ ln(1/δ)), rounded up (Bun & Steinke 2016, Proposition 1.3).

    >>> round(float(zcdp_epsilon(Fraction(1, 2), Fraction(1, 10**6))), 3)
    5.757

    Raises:
        ParameterError: ρ is negative or δ does not lie in (0, 1).
    """
    r, limit = exact("rho", rho), probability("delta", delta)
    return normal.round_up(r + 2 * normal.sqrt_up(r * normal.log_up(1 / limit)))


@lru_cache(maxsize=1024)
def zcdp_rho(epsilon: Real, delta: Real) -> Fraction:
    """The greatest ρ (40 bits, rounded down) with ρ + 2√(ρ ln(1/δ)) ≤ ε.

    >>> round(float(zcdp_rho(1, Fraction(1, 10**6))), 6)
    0.017469

    Raises:
        ParameterError: ε does not lie in (0, 10^6] or δ does not lie in (0, 1).
    """
    eps, limit = positive("epsilon", epsilon_of(epsilon)), probability("delta", delta)
    return normal.greatest(lambda rho: zcdp_epsilon(rho, limit) <= eps)


def group_approximate(epsilon: Real, delta: Real, size: int) -> tuple[Fraction, Fraction]:
    """(kε, δ(e^(kε)-1)/(e^ε-1)) rounded up: the (ε, δ) guarantee for units of k events.

    >>> eps, delta = group_approximate(1, Fraction(1, 10**9), 2)
    >>> int(eps), round(float(delta) * 1e9, 4)
    (2, 3.7183)
    """
    eps, limit = epsilon_of(epsilon), probability("delta", delta)
    powers = (normal.exp_bounds(j * eps).high for j in range(at_least("size", size, 1)))
    factor = sum((normal.round_up(power) for power in powers), Fraction(0))
    return size * eps, min(Fraction(1), normal.round_up(limit * factor))


def exact(name: str, value: Real, most: int | None = None) -> Fraction:
    """``value`` as a rational, if it is finite, ≥ 0 and ≤ ``most``; never through a float."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ParameterError(name, value, "must be finite")
    rational = Fraction(value)
    if rational < 0 or (most is not None and rational > most):
        raise ParameterError(name, value, f"must lie between 0 and {most or 'infinity'}")
    return rational


def positive(name: str, value: Real) -> Fraction:
    """``value`` as a rational, if it is finite and > 0."""
    rational = exact(name, value)
    if rational == 0:
        raise ParameterError(name, value, "must be positive")
    return rational


def epsilon_of(value: Real) -> Fraction:
    """``value`` as a rational, if it lies in [0, 10^6]."""
    return exact("epsilon", value, 10**6)


def probability(name: str, value: Real) -> Fraction:
    """``value`` as a rational, if it lies in (0, 1)."""
    rational = positive(name, value)
    if rational >= 1:
        raise ParameterError(name, value, "must lie strictly between 0 and 1")
    return rational

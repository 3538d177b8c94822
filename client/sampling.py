"""Exact integers from the operating system's randomness: no floats, no modulo bias."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from secrets import randbits

Below = Callable[[int], int]


def below(n: int) -> int:
    """A uniform integer in 0..n-1, by rejection; the number of attempts says nothing of a value.

    Raises:
        ValueError: n is not positive.
    """
    if n < 1:
        raise ValueError(f"n = {n!r}: must be at least 1")
    bits = (n - 1).bit_length()
    while (drawn := randbits(bits) if bits else 0) >= n:
        pass
    return drawn


def round_randomly(exact: Fraction, uniform: Below = below) -> int:
    """Floor or ceiling of ``exact`` such that the mean is ``exact``, exactly."""
    whole, rest = divmod(exact.numerator, exact.denominator)
    return whole + int(uniform(exact.denominator) < rest)

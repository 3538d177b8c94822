"""Exact integers from the operating system's randomness: no floats, no modulo bias.

Draws never depend on a value: a device that reports draws from the same ranges in the
same order, whatever it reports. (Python's arithmetic itself takes longer with longer numbers.)
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from secrets import randbits

Below = Callable[[int], int]

PARTS = 1 << 64  # `round_randomly` first brings its argument to a multiple of 1 / PARTS


def below(n: int) -> int:
    """A uniform integer in 0..n-1, by rejection; the number of attempts depends on n alone.

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
    """An integer next to ``exact`` whose mean is ``exact`` to within 2^-65.

    ``exact`` is first brought to a multiple of 2^-64. An exact mean would need a draw as long as
    the denominator, which depends on the value; this takes one draw of 64 bits for any value.
    """
    whole, rest = divmod(round(exact * PARTS), PARTS)
    return whole + int(uniform(PARTS) < rest)

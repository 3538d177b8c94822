"""Public bands of a number, in which records are counted; the same for all keys.

The first band holds all values below ``low``, the last one all above ``high``; those between divide
the range evenly, or evenly on a logarithmic scale. Ends are whole steps of a public grid, so that
every machine counts a record in the same band.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...errors import ParameterError
from ..accounting.normal import precision
from ..columns import I64
from ..validate import one_of

FANOUT = 4
HEIGHTS = {FANOUT**height: height for height in (2, 3, 4)}
"""Number of levels above the bands, root included, by number of bands."""

_FINE = 100  # least number of grid steps in the narrowest band
_LARGEST = 1 << 50

Spacing = Literal["linear", "log"]


@dataclass(frozen=True)
class Bands:
    """Bands of one number.

    Attributes:
        grid: a power of ten; values are rounded to multiples of it.
        edges: (bands - 1,) ends in grid steps, increasing: band i holds
            edges[i-1] ≤ value < edges[i]; ``high`` itself is in the second-last band.
    """

    grid: Fraction
    edges: tuple[int, ...]

    @property
    def number(self) -> int:
        """Number of bands, including the two outer ones."""
        return len(self.edges) + 1

    @property
    def ends(self) -> I64:
        """The edges as an array."""
        return np.array(self.edges, np.int64)

    def steps(self, values: NDArray[Any]) -> I64:
        """(n,) values in grid steps; values outside the range are moved to just outside it."""
        low, high = self.edges[0] - 1, self.edges[-1] + 1
        exact = np.clip(values / float(self.grid), low, high)
        return np.rint(exact).astype(np.int64)

    def place(self, steps: I64) -> NDArray[np.intp]:
        """(n,) band of each value in grid steps."""
        inner = np.searchsorted(self.ends, steps, side="right")
        return np.where(steps == self.edges[-1], self.number - 2, inner)


def bands(low: float | None, high: float | None, number: int, spacing: Spacing) -> Bands:
    """The bands of a range.

    >>> [edge * made.grid for made in [bands(0, 14, 16, "linear")] for edge in made.edges[:3]]
    [Fraction(0, 1), Fraction(1, 1), Fraction(2, 1)]

    Raises:
        ParameterError: a setting cannot be used; it names the setting.
    """
    one_of("spacing", spacing, ("linear", "log"))
    if number not in HEIGHTS:
        raise ParameterError("bands", number, "must be 16, 64 or 256")
    ends = [_exact("low", low), _exact("high", high)]
    if not ends[0] < ends[1]:
        raise ParameterError("high", high, f"must lie above low, which is {low}")
    if spacing == "log" and ends[0] <= 0:
        raise ParameterError("low", low, 'must be positive with spacing = "log"')
    inner = number - 2
    made = _even(ends, inner) if spacing == "linear" else _log(ends, inner)
    grid = _grid(min(made[1] - made[0], made[-1] - made[-2]) / _FINE)
    if max(map(abs, ends)) / grid > _LARGEST:
        rule = "is too far from 0 for bands so narrow: take fewer bands, or a wider range"
        raise ParameterError("high", high, rule)
    return Bands(grid, tuple(round(one / grid) for one in made))


def _exact(name: str, value: float | None) -> Fraction:
    if value is None:
        rule = "is missing: low and high, the range of the values, must be public knowledge"
        raise ParameterError(name, value, rule)
    try:
        return Fraction(str(value))
    except ValueError:
        raise ParameterError(name, value, "must be a finite number") from None


def _even(ends: list[Fraction], inner: int) -> list[Fraction]:
    return [ends[0] + (ends[1] - ends[0]) * place / inner for place in range(inner + 1)]


def _log(ends: list[Fraction], inner: int) -> list[Fraction]:
    """Edges with equal ratios, correctly rounded to forty digits: the same on every machine."""
    with localcontext(precision(40)):
        low, high = (Decimal(one.numerator) / Decimal(one.denominator) for one in ends)
        ratio = (high / low).ln() / inner
        made = [Fraction(low * (ratio * place).exp()) for place in range(inner + 1)]
    return [ends[0], *made[1:-1], ends[1]]


def _grid(most: Fraction) -> Fraction:
    """The largest power of ten up to ``most``."""
    power = 0
    while Fraction(10) ** power > most:
        power -= 1
    while Fraction(10) ** (power + 1) <= most:
        power += 1
    return Fraction(10) ** power

"""Inverse-CDF tables on a dyadic grid of 2⁻¹²⁸, built with integer arithmetic alone.

A table samples an integer distribution whose every probability is a multiple of 2⁻¹²⁸. With
thresholds T₁ ≤ … ≤ Tₙ and U uniform on 0 … 2¹²⁸-1, the value is offset + #{i : Tᵢ ≤ U}. The high
64 bits of U decide, unless they equal the high half of a threshold; then the low 64 bits are drawn
as well. Nothing is computed in floating point, so every machine draws the same values.

Error of a table of n thresholds. Weights are fixed-point numbers of `BITS` bits; the recurrences
below lose fewer than 2⁵⁰ units of 2^-BITS over all weights together, and the values left out
weigh less than 2⁻¹⁵⁰ of the total: both move a threshold by less than 2⁻¹⁴⁰. Rounding to the grid
moves it by at most 2⁻¹²⁹ more, and each threshold moves mass between two neighbours only. Values
whose threshold rounds to 0 or to 2¹²⁸ weigh at most 2⁻¹²⁹ on either side. Hence the total
variation distance to the ideal distribution is below (n+2)·2⁻¹²⁸, which `Table.distance` states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]
Positions = NDArray[np.intp]

BITS = 320  # of the fixed-point weights
GRID = 128  # bits of a uniform draw
_GUARD = 64  # bits beyond `BITS` inside exp
_FLOOR = 1 << (BITS - 160)  # lighter weights are left out
_HALF = (1 << 64) - 1
_UNRESOLVED = np.int16(-(1 << 15))
_GUIDE_BITS = 16  # at most: 128 KiB of guide, within a core's cache


@dataclass(frozen=True, eq=False)
class Table:
    """A finite distribution on consecutive integers, with a guide on the leading bits.

    Attributes:
        offset: the smallest value.
        high, low: (n,) halves of the thresholds, each in 1 … 2¹²⁸-1, in ascending order.
        guide: (2^b,) int16: the value, where b leading bits determine it; else -2¹⁵.
    """

    offset: int
    high: U64
    low: U64
    guide: NDArray[np.int16]

    @property
    def distance(self) -> Fraction:
        """Bound on the total variation distance to the ideal distribution."""
        return Fraction(len(self.high) + 2, 1 << GRID)

    def draw(self, high: U64, low: Callable[[Positions], U64]) -> NDArray[np.int16]:
        """(m,) values, one per uniform word.

        Args:
            high: (m,) the leading 64 bits of each draw.
            low: called on ties: returns the other 64 bits of the draws at some positions.
        """
        shift = np.uint64(65 - len(self.guide).bit_length())
        value = self.guide.take((high >> shift).view(np.int64), mode="clip")
        rest = np.flatnonzero(value == _UNRESOLVED)
        if len(rest):
            value[rest] = self._search(high[rest], lambda ties: low(rest[ties]))
        return value

    def _search(self, high: U64, low: Callable[[Positions], U64]) -> I64:
        rank = self.high.searchsorted(high, side="right")
        ties = np.flatnonzero(self.high[rank - 1] == high)  # rank 0 wraps round to a larger one
        if len(ties):
            rank[ties] = self._break(high[ties], low(ties))
        return rank + self.offset

    def _break(self, high: U64, low: U64) -> I64:
        """#{i : Tᵢ ≤ U} with all 128 bits, in plain Python integers: almost never needed."""
        thresholds = self.thresholds()
        uniform = [(h << 64) | g for h, g in zip(high.tolist(), low.tolist(), strict=True)]
        return np.array([sum(t <= u for t in thresholds) for u in uniform], np.int64)

    def thresholds(self) -> list[int]:
        """The thresholds, as integers below 2¹²⁸."""
        return [(h << 64) | g for h, g in zip(self.high.tolist(), self.low.tolist(), strict=True)]


def build(offset: int, weights: Sequence[int]) -> Table:
    """The table of ``offset + i`` with probability proportional to ``weights[i]``."""
    total = sum(weights)
    sums = list(accumulate(weights))[:-1]
    nearest = [((s << (GRID + 1)) + total) // (2 * total) for s in sums]
    # T = 0 lies below every U and T = 2¹²⁸ above: such values have probability 0.
    inner = [t for t in nearest if 0 < t < 1 << GRID]
    offset += sum(t == 0 for t in nearest)
    high = np.array([t >> 64 for t in inner], np.uint64)
    low = np.array([t & _HALF for t in inner], np.uint64)
    return Table(offset, high, low, _guide(offset, high))


def _guide(offset: int, high: U64) -> NDArray[np.int16]:
    # Sixty-four buckets per threshold leave about one draw in a hundred to the search.
    bits = min(_GUIDE_BITS, len(high).bit_length() + 6)
    first = np.arange(1 << bits, dtype=np.uint64) << np.uint64(64 - bits)
    last = first + np.uint64((1 << (64 - bits)) - 1)
    below = high.searchsorted(first, side="left")
    # A bucket that holds the high half of a threshold, even at its edge, is left to the search.
    pure = below == high.searchsorted(last, side="right")
    return np.where(pure, below + offset, _UNRESOLVED).astype(np.int16)


def exp_minus(x: Fraction) -> int:
    """``exp(-x)·2^BITS`` to within one unit, for rational x ≥ 0.

    The argument is halved k times until it is below one, the alternating series summed in fixed
    point with 64 guard bits, and the result squared k times. Each squaring of a number ≤ 1 at most
    doubles the error and adds a unit: under 2^(k+8) ≤ 2¹⁷ guard units in all.

    >>> exp_minus(Fraction(0)) == 1 << BITS, exp_minus(Fraction(10**6))
    (True, 0)
    """
    if x > BITS:
        return 0
    halvings = int(x).bit_length()
    one = 1 << (BITS + _GUARD)
    y = int(x * one) >> halvings
    result = term = one
    for i in range(1, BITS + _GUARD):
        term = (term * y) // (i * one)
        result += -term if i % 2 else term
    for _ in range(halvings):
        result = (result * result) // one
    return result >> _GUARD


def powers(x: Fraction, start: int, limit: int | None = None) -> Iterator[int]:
    """``start·exp(-x·i)`` for i = 0, 1, …, while not negligible and for at most ``limit`` terms.

    Each step rounds down once and inherits at most one unit from the factor: term i is within
    2i+2 units.
    """
    factor, term, count = exp_minus(x), start, 0
    while term > _FLOOR and (limit is None or count < limit):
        yield term
        term, count = (term * factor) >> BITS, count + 1


def gaussian_weights(variance: Fraction) -> list[int]:
    """``exp(-z²/(2·variance))`` for z = 0, 1, …, while not negligible.

    w(z+1) = w(z)·r(z) and r(z+1) = r(z)·exp(-1/variance): r(z) is within 2z+2 units, w(z) within
    (z+1)(z+2).
    """
    ratio, square = exp_minus(1 / (2 * variance)), exp_minus(1 / variance)
    weights, weight = [], 1 << BITS
    while weight > _FLOOR:
        weights.append(weight)
        weight, ratio = (weight * ratio) >> BITS, (ratio * square) >> BITS
    return weights

"""Layout of PrivHP's sums, and the budget share of each level of the tree.

Levels 0..L have one counter per node; each level below, down to r, has one sketch. All sums of
all levels are in one flat table, and a sum is named by (level, slot).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...errors import ParameterError
from ..columns import I64
from ..keys import Keys
from ..parts.sketch import U64, Sketch
from ..validate import at_least, positive

_LEVEL_SHIFT = 56
_FINE = 128  # bits of a square root
_GRID = 20  # bits of a share of the budget
MOST_SUMS = 1 << 26


@dataclass(frozen=True)
class SumLayout:
    """The sums of a hierarchy of binary nodes.

    Raises:
        ParameterError: a parameter is out of range.
    """

    dimensions: int  # d; bit l of a node's path halves coordinate (l-1) mod d
    depth: int  # r, the deepest level
    exact: int  # L, the last level with a counter per node (0 ≤ L ≤ r)
    keep: int  # k, nodes that pruning keeps at each level below L
    sketch: Sketch  # shape and hash functions of each level below L

    def __post_init__(self) -> None:
        at_least("dimensions", self.dimensions, 1)
        at_least("depth", self.depth, 0)
        at_least("keep", self.keep, 1)
        if at_least("exact", self.exact, 0) > self.depth:
            raise ParameterError("exact", self.exact, f"must not exceed the depth {self.depth}")
        if self.sums > MOST_SUMS:
            raise ParameterError("width", self.sketch.width, f"makes over {MOST_SUMS} sums")

    @property
    def levels(self) -> int:
        """Number of levels, r+1; one record changes sums in each of them."""
        return self.depth + 1

    def touched(self, level: int) -> int:
        """Sums of ``level`` that one record changes by one: 1 or j."""
        return 1 if level <= self.exact else self.sketch.rows

    def size(self, level: int) -> int:
        """Number of sums of ``level``."""
        return 1 << level if level <= self.exact else self.sketch.sums

    @cached_property
    def offsets(self) -> I64:
        """(r+2,) where each level begins in the table, and the table's length."""
        sizes = [0, *(self.size(level) for level in range(self.levels))]
        return np.cumsum(np.array(sizes, np.int64))

    @property
    def sums(self) -> int:
        """Number of sums of all levels."""
        below = (self.depth - self.exact) * self.sketch.sums
        return (2 << self.exact) - 1 + below if self.exact < 40 else MOST_SUMS + 1

    def part(self, table: I64, level: int) -> I64:
        """The sums of one level of a (sums,) table."""
        return table[self.offsets[level] : self.offsets[level + 1]]

    def sum_leaves(self, codes: U64, counts: I64) -> I64:
        """(sums,) exact sums for ``counts`` records in each of the finest nodes ``codes``.

        ``codes`` are distinct and ascending, each a leading one followed by r bits.
        """
        table = np.zeros(self.sums, np.int64)
        for level in range(self.depth, -1, -1):
            mine = self.part(table, level)
            if level <= self.exact:
                mine[(codes - np.uint64(1 << level)).astype(np.intp)] = counts
            else:
                mine += self.sketch.add(codes, counts)
            codes, counts = _halve(codes, counts)
        return table

    def names(self, places: NDArray[np.intp]) -> Keys:
        """Keys of the sums at ``places`` of the table: eight bytes each, in table order."""
        level = np.searchsorted(self.offsets, places, side="right") - 1
        slot = places - self.offsets[level]
        code = (level.astype(np.uint64) << np.uint64(_LEVEL_SHIFT)) | slot.astype(np.uint64)
        return Keys.of_codes(code)

    def places(self, names: Keys) -> NDArray[np.intp]:
        """The inverse of `names`."""
        code = names.codes()
        level = (code >> np.uint64(_LEVEL_SHIFT)).astype(np.intp)
        slot = (code & np.uint64((1 << _LEVEL_SHIFT) - 1)).astype(np.intp)
        return self.offsets[level].astype(np.intp) + slot

    def importance(self) -> tuple[Fraction, ...]:
        """Contribution of a unit of noise at each level to the Wasserstein error, times n.

        A node of level l has diameter 2^-⌊l/d⌋ (largest coordinate of the unit cube). A wrong
        split of a node of level l-1 misplaces the noise by its diameter. This gives Γ_{l-1}, the
        sum of the diameters, where all nodes are kept, k·γ_{l-1} below, and Γ_{-1} = Γ_0.
        """
        return tuple(self._importance(level) for level in range(self.levels))

    def _importance(self, level: int) -> Fraction:
        above = max(level - 1, 0)
        nodes = 1 << above if level <= self.exact else self.keep
        return Fraction(nodes, 1 << (above // self.dimensions))


def _halve(codes: U64, counts: I64) -> tuple[U64, I64]:
    """Parents of distinct ascending nodes, and their sums."""
    parents = codes >> np.uint64(1)
    if not len(parents):
        return parents, counts
    first = np.flatnonzero(np.r_[True, parents[1:] != parents[:-1]])
    return parents[first], np.add.reduceat(counts, first)


def split_pure(shape: SumLayout, epsilon: Fraction) -> tuple[Fraction, ...]:
    """σ_0 … σ_r: the shares of ε that minimise the error of Laplace noise; Σ σ_l ≤ ε exactly.

    Noise of scale c_l/σ_l, with c_l the sums that a record touches, costs importance_l·c_l/σ_l. The
    total is least for σ_l ∝ √(importance_l·c_l) (Lagrange). Shares are rounded down.

    >>> shape = SumLayout(1, 4, 2, 4, Sketch(width=8))
    >>> [round(float(share), 5) for share in split_pure(shape, Fraction(1))]
    [0.21244, 0.21244, 0.21244, 0.21244, 0.15022]
    """
    positive("epsilon", epsilon)
    costs = [shape.touched(level) * part for level, part in enumerate(shape.importance())]
    return _shares([_root(cost, 2) for cost in costs], Fraction(epsilon))


def split_gauss(shape: SumLayout) -> tuple[Fraction, ...]:
    """Shares of the squared loss μ² per level that minimise the error of Gaussian noise.

    A standard deviation s_l costs importance_l·s_l and loses c_l/s_l²; the optimum has
    c_l/s_l² ∝ (c_l·importance_l²)^⅓. The shares add up to at most 1.
    """
    costs = [shape.touched(level) * part**2 for level, part in enumerate(shape.importance())]
    return _shares([_root(cost, 3) for cost in costs], Fraction(1))


def _shares(weights: Sequence[Fraction], total: Fraction) -> tuple[Fraction, ...]:
    whole = sum(weights, Fraction(0))
    grid = 1 << _GRID
    parts = [max(1, math.floor(weight / whole * grid)) for weight in weights]
    return tuple(total * Fraction(part, max(grid, sum(parts))) for part in parts)


def _root(value: Fraction, degree: int) -> Fraction:
    """The root of a positive rational, rounded down to `_FINE` bits; integer arithmetic only."""
    scaled = (value.numerator << (_FINE * degree)) // value.denominator
    if degree == 2:
        return Fraction(math.isqrt(scaled), 1 << _FINE)
    low, high = 0, 1 << (scaled.bit_length() // degree + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**degree <= scaled else (low, middle)
    return Fraction(low, 1 << _FINE)

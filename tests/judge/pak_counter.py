"""Noise of prefix sums for PAK: a binary tree, a consistent wide tree, or a factorisation."""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from .gaussian import epsilon_of, gdp, mu_of, root
from .matrices import BITS, Matrix
from .numbers import STEPS, floored, spent, up
from .wide import Chunks, laplace_variance

Spans = Sequence[tuple[int, int, float]]


class Counter(NamedTuple):
    """The noise of all prefix sums of a stretch."""

    steps: int
    epsilon: Fraction
    wide: Chunks | None = None
    factors: Matrix | None = None
    square: Fraction = Fraction(0)  # variance of the factorisation's noise, for a threshold of 1

    @property
    def fine(self) -> int:
        """Output steps of a grid step."""
        return STEPS if self.wide or self.factors else 1

    def scale(self, theta: int) -> Fraction:
        """Noise scale of a node of the binary tree."""
        return theta * self.steps.bit_length() / self.epsilon

    def prefix(self, draw: Any, number: int, theta: int, begins: Sequence[int], end: int) -> int:
        """Noise of the first steps of a stretch, in output steps.

        Args:
            draw: function from purpose, size, step, key, index and law to noise.
            number: number of the stretch.
            begins: steps at which a wide tree starts anew.
        """
        more = f".{number}" if number else ""
        if self.wide:
            tree, total = self.wide._replace(purpose=f"node{more}"), Fraction(0)
            pieces = [(begin, theta) for begin in begins]
            ends = [*(begin for begin in begins[1:] if begin < end), end]
            noise = [tree.prefix(draw, pieces, one)[1] for one in ends]
            return sum((math.floor(z * STEPS + Fraction(1, 2)) for z in noise), 0 * int(total))
        if self.factors:
            row, common = self.factors.row(end)
            size, width = self.square * theta**2, self.factors.width
            z = [
                draw(f"matrix{more}", size, sum(w <= n for w in width), b"prefix", n, "gauss")
                for n in range(width[end])
            ]
            total_ = sum(b * one for b, one in zip(row, z, strict=True))
            return floored(total_, common)
        every = [(i, (end >> i) - 1) for i in range(end.bit_length()) if end >> i & 1]
        return sum(draw(f"tree{more}", self.scale(theta), j + 1 << i, b"prefix", i << 50 | j)
                   for i, j in every)  # fmt: skip

    def variance(self, theta: int, begins: Sequence[int], spans: Spans) -> float:
        """Variance of a weighted sum of steps, in squared grid steps."""
        if self.wide:
            return self.wide.variance([(begin, theta) for begin in begins], spans)
        ends: dict[int, float] = {}
        for first, last, weight in spans:
            ends[last] = ends.get(last, 0.0) + weight
            ends[first] = ends.get(first, 0.0) - weight
        parts: dict[Any, float] = {}
        for end, weight in ends.items():
            if self.factors and end and weight:
                row, common = self.factors.row(end)
                for n, b in enumerate(row):
                    parts[n] = parts.get(n, 0.0) + weight * (b / common)
            for i in () if self.factors else range(end.bit_length()):
                if end >> i & 1:
                    node = (i, end >> i)
                    parts[node] = parts.get(node, 0.0) + weight
        unit = (float(self.square * theta**2) / 4**BITS if self.factors
                else laplace_variance(self.scale(theta)))  # fmt: skip
        return sum(one * one for one in parts.values()) * unit

    def mean(self, first: int = 1) -> float:
        """Root mean square noise of prefix sums from step ``first`` on, for a threshold of 1."""
        ends = {max(first, 1, math.ceil(Fraction(self.steps * n, 64))) for n in range(1, 65)}
        squares = [self.variance(1, [0], [(0, end, 1.0)]) for end in sorted(ends)]
        return math.sqrt(sum(squares) / len(squares))


@lru_cache(None)
def square_for(factors: Matrix, epsilon: Fraction, delta: Fraction, bound: int) -> Fraction | None:
    """A variance that suffices for every division of a unit's records; None: grid too coarse."""
    unit = factors.sensitivity2 * 4**BITS
    found = gaussian(epsilon, delta, bound**2 * unit, bound * factors.draws)
    for others in range(bound - 1, 0, -1) if found else ():
        part = epsilon * others / bound
        while not _fits(part, delta, others**2 * unit, found, factors.draws):
            found *= Fraction(17, 16)
    return found


@lru_cache(None)
def gaussian(epsilon: Fraction, delta: Fraction, shift: Fraction, touched: int) -> Fraction | None:
    """The variance that (ε, δ) buys for one process; None if the grid is too coarse."""

    def at(left: Fraction) -> Fraction:
        return max(Fraction(1), up(shift / mu_of(left, delta) ** 2))

    first = at(epsilon)
    pure = spent((shift, Fraction(1)), first, touched)[1]
    if first < 1 + Fraction(touched, 24) or 2 * pure > epsilon:
        return None
    found, extra = at(epsilon - pure), Fraction(1, 2**36)
    while not _fits(epsilon, delta, shift, found, touched):
        found, extra = up(found * (1 + extra)), 16 * extra
    return found


def _fits(
    epsilon: Fraction, delta: Fraction, shift: Fraction, variance: Fraction, touched: int
) -> bool:
    mu2, pure = spent((shift, Fraction(1)), variance, touched)
    left, mu = delta - Fraction(touched, 2**129), root(mu2)
    if pure >= epsilon or left <= 0:
        return False
    first, second = gdp(epsilon - pure, mu)
    return pure + epsilon_of(mu, left) <= epsilon and first <= 5 * second

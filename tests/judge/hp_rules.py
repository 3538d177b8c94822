"""Rules of PrivHP that follow from its public configuration: sums by level, and their noise."""

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any

from .gaussian import epsilon_of, gdp, mu_of, root
from .matrices import matrix
from .numbers import spent, up
from .purses import Costs
from .space import SpaceRules
from .wide import laplace_variance

ROOT, SHARES, USUAL = 128, 20, 50_000  # bits of a root and of a share; usual records of a window
GOLDEN, MASK = 0x9E3779B97F4A7C15, 2**64 - 1


class PrivhpRules(SpaceRules):
    """The settings of a PrivHP pipeline, from its configuration."""

    def _noise(self) -> None:
        super()._noise()
        p, left = self.own, self.epsilon - self.total
        self.deletions, self.gauss = p["deletions"], p["noise"] == "gauss"
        self.laplace = not self.gauss
        self.heights = self.horizon.bit_length()
        k = p["k"]
        if k is None:
            noises = self.budget * (1 if self.gauss else self.heights)
            square, k = 25 * (p["expected"] or USUAL) * left / noises, 16
            while k < 1 << 14 and 2 * k * k <= square:
                k *= 2
        self.keep, self.rows = k, p["rows"]
        self.width = 2 * k if p["width"] is None else p["width"]
        self.exact = p["exact"]
        if self.exact is None:
            self.exact = min(k.bit_length() - 1, self.bits)
        self.levels = range(self.bits + 1)
        weights = [self._weight(level, 3 if self.gauss else 2) for level in self.levels]
        parts = [max(1, math.floor(one / sum(weights) * (1 << SHARES))) for one in weights]
        shares = [Fraction(one, max(1 << SHARES, sum(parts))) for one in parts]
        if self.gauss:
            self.matrix = matrix(p["factorization"], self.horizon)
            self.sizes = self._gaussian(shares)
            self.epoch = self._priced(self.sizes)._replace(delta=self._lost())
        else:
            self.sizes = [
                self.touched(level) * self.heights * self.budget / (left * share)
                for level, share in enumerate(shares)
            ]
            moved = (self.touched(n) * self.heights * self.budget / s
                     for n, s in enumerate(self.sizes))  # fmt: skip
            self.epoch = Costs(Fraction(0), sum(moved, self.total), Fraction(0))

    def touched(self, level: int) -> int:
        """The number of sums of a level that one record moves."""
        return 1 if level <= self.exact else self.rows

    def cells(self, level: int) -> int:
        """The number of sums of a level."""
        return 1 << level if level <= self.exact else self.rows * self.width

    def _weight(self, level: int, degree: int) -> Fraction:
        """√(touched·importance), or the cube root of touched·importance²."""
        above = max(level - 1, 0)
        nodes = 1 << above if level <= self.exact else self.keep
        importance = Fraction(nodes, 1 << above // len(self.axes))
        cost = self.touched(level) * importance ** (degree - 1)
        scaled = (cost.numerator << ROOT * degree) // cost.denominator
        if degree == 2:
            return Fraction(math.isqrt(scaled), 1 << ROOT)
        low, high = 0, 1 << scaled.bit_length()
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if middle**3 <= scaled else (low, middle)
        return Fraction(low, 1 << ROOT)

    def _gaussian(self, shares: list[Fraction]) -> list[Fraction]:
        """Variances by level: the largest μ² in steps of 63/64 that fits."""
        left, rest = self.epsilon - self.total, self.delta - self._lost()
        mu2 = mu_of(left, self.delta) ** 2
        while True:
            found = [up(self._shift(n) / (share * mu2)) for n, share in enumerate(shares)]
            joint, pure, _ = self._priced(found)
            pure -= self.total
            if pure < left:
                mu = root(joint)
                first, second = gdp(left - pure, mu)
                if pure + epsilon_of(mu, rest) <= left and first <= 5 * second:
                    return found
            mu2 *= Fraction(63, 64)

    def _draws(self, level: int) -> int:
        """Draws of a level that a unit moves."""
        return self.budget * self.matrix.draws * self.touched(level)

    def _shift(self, level: int) -> Fraction:
        """Square of what a unit moves a level by, in steps of the grid."""
        unit = self.matrix.sensitivity2 * 4**self.matrix.bits
        return Fraction(self.touched(level) * self.budget**2 * unit)

    def _priced(self, squares: list[Fraction]) -> Costs:
        """μ² and pure part of an epoch with these variances."""
        each = [spent((self._shift(n), Fraction(1)), square, self._draws(n))
                for n, square in enumerate(squares)]  # fmt: skip
        pure = sum((b for _, b in each), self.total)
        return Costs(sum((a for a, _ in each), Fraction(0)), pure, Fraction(0))

    def _lost(self) -> Fraction:
        """The δ of draws that are not exact, and of their grid."""
        number = sum(map(self._draws, self.levels))
        inexact = (1 + 3 ** math.ceil(self.epsilon - self.total)) * Fraction(1, 2**110)
        return number * (inexact + Fraction(1, 2**129))

    def variance(self, level: int, t: int) -> float:
        """Variance of one sum after trigger t."""
        if self.gauss:
            return float(self.matrix.norm2(t) * self.sizes[level] / 4**self.matrix.bits)
        return t.bit_count() * laplace_variance(self.sizes[level])

    @lru_cache(None)  # noqa: B019
    def places(self, code: int) -> list[tuple[int, int]]:
        """The sums of a sketched level that contain a node, each with its sign."""
        found = []
        for row in range(self.rows):
            mixed = mix(code ^ mix((self.own["seed"] + (row + 1) * GOLDEN) & MASK))
            sign = 1 - 2 * (mixed & 1) if self.own["sketch"] == "count" else 1
            found.append((row * self.width + ((mixed >> 32) * self.width >> 32), sign))
        return found

    def sums(self, code: int) -> Any:
        """The sums of a node's level that contain it, each with its sign."""
        level = code.bit_length() - 1
        return [(code - (1 << level), 1)] if level <= self.exact else self.places(code)


def mix(word: int) -> int:
    """The finaliser of SplitMix64."""
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & MASK
    word = (word ^ word >> 27) * 0x94D049BB133111EB & MASK
    return word ^ word >> 31

"""Rules of PHDStream that follow from its public configuration."""

import math
from fractions import Fraction
from typing import NamedTuple

from .matrices import matrix
from .numbers import spent
from .pak_counter import gaussian
from .purses import Costs
from .space import SpaceRules
from .wide import laplace_variance

GRID, SCORE, ENOUGH = 1 << 16, 16, 40
LN2 = [Fraction(6931471805599453094 + n, 10**19) for n in (0, 1)]
LARGEST = 2**52 // GRID


class Splits(NamedTuple):
    """Private splitting by noisy scores: λ and δ in 1/16 of a record."""

    epsilon: Fraction
    bits: int
    theta: int
    floor: int

    @property
    def scale(self) -> Fraction:
        beta = 1 << self.bits
        return Fraction(math.ceil(Fraction((2 * beta - 1) * SCORE, beta - 1) / self.epsilon))

    @property
    def delta(self) -> int:
        return math.ceil(self.scale * self.bits * LN2[1])


class PhdRules(SpaceRules):
    """The settings of a PHDStream pipeline, from its configuration."""

    def _noise(self) -> None:
        super()._noise()
        p = self.own
        self.first, self.lifetime = p["first"], p["lifetime"]
        self.deletions = p["deletions"] and not self.lifetime
        self.budget = p["bound"] // 2 if self.lifetime else p["bound"]
        share = Fraction(p["share"]) if p["selection"] == "private" else Fraction(0)
        each = (self.epsilon - self.total) / self.budget
        each /= 2 - share if self.lifetime else 1
        self.count = (1 - share) * each
        self.smoothing = p["smoothing"]
        if self.smoothing is None:
            self.smoothing = min(math.ceil(10 / self.count), LARGEST)
        self.kind = p["counter"]
        self.laplace = self.kind != "matrix"
        self.forget = self.kind in ("simple", "block") if p["forget"] is None else p["forget"]
        self.private = Splits(share * each, self.step, p["theta"], p["floor"]) if share else None
        self.opening, self.opened = None, Fraction(0)
        opens = p["selection"] == "released" and self.kind != "matrix" and p["start"] != "as later"
        if opens:
            self._open(Fraction(p["start_share"]))
        self.steps = max(self.horizon - self.first + 1 - opens, 1)
        events = p["bound"] - p["bound"] % 2 if self.lifetime else p["bound"]
        beside = self.total + self.budget * share * each  # of all records, and of splitting
        self.epoch = Costs(Fraction(0), events * self.count + beside, Fraction(0))
        if self.kind == "matrix":
            self.matrix = matrix(p["factorization"], self.steps)
            touched, epsilon = events * self.matrix.draws, events * self.count
            inexact = (1 + 3 ** math.ceil(epsilon)) * touched * Fraction(1, 2**110)
            shift = self.matrix.sensitivity2 * events**2 * 4**self.matrix.bits
            square = gaussian(epsilon, self.delta - inexact, shift, touched)
            assert square is not None
            self.square = square
            mu2, pure = spent((shift, Fraction(1)), square, touched)
            self.epoch = Costs(mu2, pure + beside, inexact + Fraction(touched, 2**129))

    def _open(self, share: Fraction) -> None:
        """At the first trigger, spend part of an event's cost on private splitting."""
        beta, floor, cells = 1 << self.step, 0, self.own["expected"] * self.count / ENOUGH
        largest = Fraction(2 * beta - 1, beta - 1) * self.step * LN2[0]
        split = min(share * self.count, largest)
        while floor < self.depth and beta ** (floor + 1) <= cells:
            floor += 1
        self.opening = Splits(split, self.step, 0, max(self.own["floor"], floor))
        self.opened = self.count - split

    def scale(self) -> Fraction:
        """Noise scale of a draw of the counter, in records."""
        times = {"simple": 1, "block": 2, "tree": self.steps.bit_length()}[self.kind]
        return times / self.count

    def variance(self, steps: int) -> float:
        """Variance of a counter after so many activations."""
        if self.kind == "matrix":
            return (
                float(self.matrix.norm2(steps) * self.square / 4**self.matrix.bits)
                if steps
                else 0.0
            )
        size = {"simple": 1 << 60, "block": self.own["block"], "tree": self.steps}[self.kind]
        whole, rest = divmod(steps, size)
        if self.kind == "tree":
            draws = whole * self.steps.bit_count() + rest.bit_count()
        else:
            draws = whole + rest
        return draws * laplace_variance(self.scale())

"""Noise of PrivHP's sums over triggers: a dyadic counter behind every sum of every level.

Every sum, touched or not, is the input of a binary-tree counter over the triggers of a window
(Chan, Shi and Song 2011; Dwork, Naor, Pitassi and Rothblum 2010). Node (i, j) of the counter
covers triggers j·2^i+1 … (j+1)·2^i and has one draw; after t triggers a sum carries the draws of
the nodes that the binary digits of t select. A trigger lies in at most H = ⌊log2 T⌋+1 released
nodes, one per height, so H and not log2 T nodes pay. One trigger (T = 1) is the one-pass form.

Nothing is stored: draws are functions of their labels, for sums without a record as well, since
a sum that is exactly zero would tell that nobody is there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import Literal

import numpy as np

from . import accounting
from .contract import F64, I64, Cost, Noise
from .errors import ParameterError
from .keys import Keys
from .privhp_shape import Shape, split_gauss, split_pure
from .validate import at_least, one_of, positive

_SIGNIFICANT = 1 << 40


@dataclass(frozen=True)
class TreeNoise:
    """Keyed noise for every sum of a shape at every trigger.

    *Guarantee* (add/remove of one unit, that is of at most ``bound`` records): ``laplace`` is
    ε-differentially private with ε = Σ_l c_l·H·bound/scale_l, where c_l is the number of sums of
    level l that a record touches; ``gauss`` costs `accounting.gaussian_cost` per level with
    squared sensitivity c_l·H·bound².

    Attributes:
        kind: "laplace" or "gauss".
        parameters: (r+1,) scale, or variance, of one draw at each level.
        shape: names the sums.
        horizon: T, triggers of a window.
        bound: most records of one unit in an epoch.
    """

    kind: Literal["laplace", "gauss"]
    parameters: tuple[Fraction, ...]
    shape: Shape
    horizon: int
    bound: int = 1

    def __post_init__(self) -> None:
        one_of("noise", self.kind, ("laplace", "gauss"))
        at_least("horizon", self.horizon, 1)
        at_least("bound", self.bound, 1)
        if len(self.parameters) != self.shape.levels:
            raise ParameterError("parameters", len(self.parameters), "needs one per level")
        for parameter in self.parameters:
            positive("parameters", parameter)

    @classmethod
    def laplace(cls, shape: Shape, horizon: int, bound: int, epsilon: Fraction) -> TreeNoise:
        """The least noise of total loss ε: scale c_l·H·bound/σ_l."""
        height = accounting.tree_levels(horizon)
        scales = (
            shape.touched(level) * height * bound / share
            for level, share in enumerate(split_pure(shape, epsilon))
        )
        return cls("laplace", tuple(scales), shape, horizon, bound)

    @classmethod
    def gauss(
        cls, shape: Shape, horizon: int, bound: int, epsilon: Fraction, delta: Fraction
    ) -> TreeNoise:
        """Gaussian noise whose total cost fits into (ε, δ), variance c_l·H·bound²/(share·μ²)."""
        height = accounting.tree_levels(horizon)
        mu2 = accounting.gdp_mu(epsilon, delta) ** 2
        shares = split_gauss(shape)
        while True:
            variances = tuple(
                _rounded_up(shape.touched(level) * height * bound**2 / (share * mu2))
                for level, share in enumerate(shares)
            )
            made = cls("gauss", variances, shape, horizon, bound)
            if accounting.total(made.costs(), delta)[0] <= epsilon:
                return made
            mu2 *= Fraction(255, 256)

    def costs(self) -> tuple[Cost, ...]:
        """The loss at each level; they add up."""
        height = accounting.tree_levels(self.horizon)
        return tuple(
            self._cost(self.shape.touched(level) * height, parameter)
            for level, parameter in enumerate(self.parameters)
        )

    def _cost(self, nodes: int, parameter: Fraction) -> Cost:
        if self.kind == "laplace":
            return Cost(epsilon=nodes * self.bound / parameter)
        return accounting.gaussian_cost(nodes * self.bound**2, parameter, nodes * self.bound)

    def draw(self, noise: Noise, t: int) -> I64:
        """(cells,) noise of all sums after trigger t (1 ≤ t ≤ T)."""
        heights = [height for height in range(t.bit_length()) if t >> height & 1]
        return np.concatenate(
            [self._level(noise, level, heights, t) for level in range(self.shape.levels)]
        )

    def _level(self, noise: Noise, level: int, heights: list[int], t: int) -> I64:
        names = [bytes([level, i]) + ((t >> i) - 1).to_bytes(8) for i in heights]
        draw = noise.laplace if self.kind == "laplace" else noise.gauss
        index = np.arange(self.shape.size(level), dtype=np.int64)
        nodes = draw("sums", Keys.of(names), index, self.parameters[level])
        total: I64 = nodes.sum(axis=0)
        return total

    def variance(self, t: int) -> F64:
        """(r+1,) variance of the noise of one sum of each level after trigger t."""
        one = [self._one(parameter) for parameter in self.parameters]
        return t.bit_count() * np.array(one)

    def _one(self, parameter: Fraction) -> float:
        return float(parameter) if self.kind == "gauss" else _laplace_variance(parameter)


@lru_cache(maxsize=256)
def _laplace_variance(scale: Fraction) -> float:
    """2a/(1-a)² with a = exp(-1/scale), the same double on every machine."""
    with localcontext(Context(prec=60)):
        a = (-Decimal(scale.denominator) / Decimal(scale.numerator)).exp()
        return float(2 * a / (1 - a) ** 2)


def _rounded_up(variance: Fraction) -> Fraction:
    """At least ``variance`` and at least 1, with a denominator that samplers like."""
    return max(Fraction(1), Fraction(math.ceil(variance * _SIGNIFICANT), _SIGNIFICANT))

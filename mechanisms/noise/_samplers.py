"""Discrete Gaussian and Laplace samplers of any rational scale, out of small tables.

A `Sampler` turns a few independent 128-bit uniforms, one per table, into one integer.

*Gaussian.* Up to variance 2¹⁸ one table. Above, with k = 64 and v₁ = 8k²: X₁ + k·X₂, X₁ of
variance v₁ and X₂ of variance v₂ = (v-v₁)/k², both discrete Gaussian and independent. Completing
the square, P(X₁ = z-kx, X₂ = x) ∝ exp(-z²/2v)·exp(-(x-c_z)²/2τ²) with 1/τ² = k²/v₁ + 1/v₂; by
Poisson summation the sum over x of the second factor is τ√(2π)(1 ± ε), ε = 2Σ_{j≥1} exp(-2π²τ²j²),
whatever c_z is. So every probability of the sum is within a factor (1+ε)/(1-ε) of the discrete
Gaussian of variance v. Here v₂ ≥ (2¹⁸-2¹⁵)/2¹² = 56, τ² ≥ 7, ε < 2⁻¹⁹⁷: negligible beside the
tables' own 2⁻¹¹⁴. (The argument is Peikert's convolution of discrete Gaussians, CRYPTO 2010, in one
dimension.) The step is repeated for X₂ while its variance exceeds 2¹⁸.

*Laplace.* With a = exp(-1/s): the sign (z < 0 or not) and the magnitude G (z, or -1-z) are
independent, P(z < 0) = a/(1+a), P(G = g) = (1-a)·a^g. The digits of G to the base k = 4096 are
independent as well: a^g is a product over digits (cf. Canonne, Kamath and Steinke 2020, Algorithm
2). Scales up to 128 need one table, which also holds the sign; larger ones need a table per digit
and one for the signed rest. This decomposition is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from . import _tables as tables
from ._tables import I64, U64, Positions, Table

CACHED = 128  # tables and samplers kept: mostly below 0.2 MB each, at most 1.3 MB
_GAUSS_ONE = Fraction(1 << 18)  # largest variance of one table
_GAUSS_STEP = 64
_GAUSS_FINE = Fraction(8 * _GAUSS_STEP**2)
_CONVOLUTION = Fraction(1, 1 << 190)  # bound on (1+ε)/(1-ε) - 1
_LAPLACE_ONE = Fraction(128)  # largest scale of one table
_LAPLACE_BASE = 4096

Low = Callable[[int, Positions], U64]
"""``low(stage, positions)``: the trailing 64 bits of a stage's uniforms at some positions."""


@dataclass(frozen=True, eq=False)
class Sampler:
    """Independent tables and how their values make one integer.

    Attributes:
        stages: finest first.
        base: weight of each stage relative to the previous one.
        folded: whether the last stage carries the sign of a magnitude (Laplace).
        distance: bound on the total variation distance to the ideal distribution.
    """

    stages: tuple[Table, ...]
    base: int
    folded: bool
    distance: Fraction

    def draw(self, high: list[U64], low: Low) -> I64:
        """(m,) integers, one per position.

        Args:
            high: the leading 64 bits of the uniforms of each stage, (m,) per stage.
            low: the trailing 64 bits, asked for on ties only.
        """
        last = len(self.stages) - 1
        total = self._stage(last, high, low).astype(np.int64)
        sign = total >> 63 if self.folded and last else None
        if sign is not None:
            total ^= sign
        for stage in range(last - 1, -1, -1):
            total *= self.base
            total += self._stage(stage, high, low)
        if sign is not None:
            total ^= sign
        return total

    def _stage(self, stage: int, high: list[U64], low: Low) -> NDArray[np.int16]:
        return self.stages[stage].draw(high[stage], lambda ties: low(stage, ties))


@lru_cache(CACHED)
def gaussian(variance: Fraction) -> Sampler:
    """The sampler of ``P(z) ∝ exp(-z²/(2·variance))``."""
    stages: list[Table] = []
    while variance > _GAUSS_ONE:
        stages.append(_gaussian_table(_GAUSS_FINE))
        variance = (variance - _GAUSS_FINE) / _GAUSS_STEP**2
    stages.append(_gaussian_table(variance))
    return _sampler(stages, _GAUSS_STEP, False, (len(stages) - 1) * _CONVOLUTION)


@lru_cache(CACHED)
def laplace(scale: Fraction) -> Sampler:
    """The sampler of ``P(z) ∝ exp(-|z|/scale)``."""
    stages, rest = [], scale
    while rest > _LAPLACE_ONE:
        digit = list(tables.powers(1 / rest, 1 << tables.BITS, _LAPLACE_BASE))
        stages.append(tables.build(0, digit))
        rest /= _LAPLACE_BASE
    stages.append(_signed_table(scale, rest))
    return _sampler(stages, _LAPLACE_BASE, True, Fraction(0))


def _sampler(stages: list[Table], base: int, folded: bool, composed: Fraction) -> Sampler:
    distance = sum((table.distance for table in stages), composed)
    return Sampler(tuple(stages), base, folded, distance)


@lru_cache(CACHED)
def _gaussian_table(variance: Fraction) -> Table:
    right = tables.gaussian_weights(variance)
    return tables.build(1 - len(right), right[:0:-1] + right)


def _signed_table(scale: Fraction, rest: Fraction) -> Table:
    """Sign and leading digits: q ≥ 0 weighs exp(-q/rest), -1-q weighs exp(-1/scale) as much."""
    right = list(tables.powers(1 / rest, 1 << tables.BITS))
    left = list(tables.powers(1 / rest, tables.exp_minus(1 / scale)))
    return tables.build(-len(left), left[::-1] + right)

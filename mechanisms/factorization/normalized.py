"""A Toeplitz factorisation with normalised columns: for windows too long for dense matrices.

The columns of a lower triangular Toeplitz matrix L get shorter towards the last trigger, but only
the longest one determines the sensitivity. Dividing each column by its norm, C = L·diag(s), costs
no privacy and makes noise smaller, most of all at the last trigger.

*Source.* Henzinger, Kalinin & Upadhyay (2025, arXiv 2509.14334, "normalized square root") take
c(x) = (1-x)^-½ for L. The largest error is then 0.846 + ln(T)/π + o(1), against 1 + ln(T)/π without
normalisation. Here c(x) = (1-x)^-0.53: at T = 2000 the deviation at the last trigger is 7 % less
than with ½, and the largest one 1.5 % more; both are below those of √-Toeplitz.

*Sensitivity.* Neighbours differ in all records of one privacy unit. L holds the integers `core` and
s the integers `scale`, so C is exact on the grid 2^-bits of the noise, and y = Cx + z lies on it. A
unit's m records in a key move Cx there by the sum of m columns, in Euclidean norm by at most m
times the largest. Its square, the largest s_j² Σ_{k ≤ T-j} core_k² (k from 0, j from 1), is
computed in integers (`Scaled.sensitivity2`); as s is rounded down, it is at most 1 record². C is
lower triangular: each entry of Cx depends only on triggers up to its own. So the bound also holds
for contributions chosen in reaction to releases. C has no negative entry, so two columns are at
most √2 norms apart: first sightings of distinct values keep their bound.

*Rows.* B = A·C⁻¹ = A·diag(1/s)·L⁻¹ is not Toeplitz, but s has few values. With b the series of
1/((1-x)·c(x)) and e_1 < e_2 < … the last steps of the values of s before step t, Abel summation
gives B_ti = Σ_l (1/s_{e_l} - 1/s_{e_l + 1})·b_{e_l - i} + b_{t-i}/s_t. The sum is stored for each
value of s. So memory is O(T) for each of some 80 values, and a row is the sum of two vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

import numpy as np

from ..columns import F64, I64
from . import _exact, toeplitz

POWER = 0.53
"""c(x) = (1-x)^-POWER."""

BITS = 16
"""Default bits of the grid: 8 for the Toeplitz part, and 8 for the scale of the columns."""


@dataclass(frozen=True, eq=False)
class Scaled:
    """C = L·diag(s) and B, without the dense matrices.

    Attributes:
        core: (T,) first column of L in units of 2^-half, non-negative.
        scale: (T,) s in units of 2^-rest, non-decreasing.
        rest: bits of ``scale``.
        series: (T,) doubles near 1/((1-x)·c(x)).
        before: (values, T) for each value of s, what earlier values add to the rows of B.
        value: (T,) the value of s at each step, counted from 0.
    """

    core: I64
    scale: I64
    rest: int
    series: F64
    before: F64
    value: I64

    @classmethod
    def made(cls, horizon: int, bits: int) -> Scaled:
        """The matrices for a horizon, on the grid 2^-bits."""
        rest = bits // 2
        core = encoder(horizon, bits - rest)
        scale = scales(core, rest)
        series = toeplitz.series(core, bits - rest)
        value = np.concatenate([[0], np.cumsum(np.diff(scale) > 0)]).astype(np.int64)
        before, row = np.zeros((int(value[-1]) + 1, horizon)), np.zeros(horizon)
        for place, last in enumerate(np.flatnonzero(np.diff(scale)).tolist(), start=1):
            one, other = (Fraction(1 << rest, int(scale[last + step])) for step in (0, 1))
            row[: last + 1] += float(one - other) * series[last::-1]
            before[place] = row
        return cls(core, scale, rest, series, before, value)

    @property
    def C(self) -> I64:
        """(T, T) the dense matrix: 8T² bytes."""
        return toeplitz.banded(self.core) * self.scale

    @property
    def B(self) -> F64:
        """(T, T) the dense matrix: 8T² bytes."""
        return self.rows(np.arange(1, len(self.core) + 1))

    @property
    def inverse(self) -> F64:
        """(T,) 1/s."""
        inverse: F64 = 2.0**self.rest / self.scale
        return inverse

    def rows(self, triggers: I64) -> F64:
        """(k, T) rows of B."""
        at = triggers - 1
        shifted = toeplitz.banded(self.series)[at]
        shifted *= self.inverse[at, None]
        shifted += self.before[self.value[at]]
        return shifted

    def block(self, begin: int, end: int) -> list[list[int]]:
        """Rows begin…end of C from column ``begin`` to the diagonal."""
        backward = self.core[: end - begin][::-1]
        return [
            (backward[end - 1 - row :] * self.scale[begin : row + 1]).tolist()
            for row in range(begin, end)
        ]

    def sensitivity2(self) -> int:
        """The largest squared column norm in units of 4^-bits."""
        squares = np.cumsum(self.core * self.core)[::-1]  # of columns
        return max(int(s) ** 2 * int(n) for s, n in zip(self.scale, squares, strict=True))

    def norms(self) -> tuple[F64, F64]:
        """(T,) ‖B_t‖₂ and ‖B_t‖₁ of the doubles, summed from first to last."""
        norms, sums, inverse = np.empty(len(self.core)), np.empty(len(self.core)), self.inverse
        for t in range(1, len(self.core) + 1):
            row = self.before[self.value[t - 1], :t] + inverse[t - 1] * self.series[t - 1 :: -1]
            norms[t - 1] = _exact.running_sum(row * row)
            sums[t - 1] = _exact.running_sum(np.abs(row))
        return np.sqrt(norms), sums

    def slack(self, bits: int) -> F64:
        """(T,) bound of the Euclidean distance of the rows from the exact ones.

        The weights of b in a row add up to 1/s_1. Each of its terms, and their sum, are rounded
        once for each value of s, and three more times.
        """
        wrong = toeplitz.series_error(self.series, self.core, bits - self.rest)
        size = float(np.sqrt(_exact.running_sum(self.series * self.series)))
        rounding = (len(self.before) + 4) * 2.0**-53 * size
        return np.full(len(self.core), float(self.inverse[0]) * (wrong + rounding) * 1.001)


def encoder(horizon: int, bits: int) -> I64:
    """(T,) c in units of 2^-bits.

    >>> encoder(6, 8).tolist()
    [256, 136, 104, 88, 77, 70]
    """
    k = np.arange(1, horizon, dtype=np.float64)
    return toeplitz.encoder(np.concatenate([np.ones(1), np.cumprod((k - 1 + POWER) / k)]), bits)


def scales(core: I64, bits: int) -> I64:
    """(T,) the largest s, in units of 2^-bits, for which no column is longer than the last.

    >>> scales(np.array([4, 3]), 4).tolist()
    [12, 16]
    """
    squares = np.cumsum(core * core)[::-1].tolist()
    return np.array([isqrt((squares[-1] << 2 * bits) // n) for n in squares], np.int64)

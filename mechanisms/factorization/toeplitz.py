"""Toeplitz factorisations: C is given by its first column c, B by the series 1/((1-x)·c(x)).

*√-Toeplitz* uses c(x) = (1-x)^-½ (Henzinger & Upadhyay 2022; Fichtenberger, Henzinger & Upadhyay
2022), for which B and C are the same matrix before the columns are normalised.

*BLT*, a buffered linear Toeplitz matrix (McMahan, Xu & Zhang 2024; Dvijotham, McMahan, Pillutla,
Steinke & Thakurta 2024), uses a rational c with a few poles, so that streaming the noise needs only
a few numbers of memory. The poles here come from the quadrature of Hale, Higham & Trefethen
(2008) for 1/√y on [3/T, 1], y = 1-x: after an elliptic substitution the midpoint rule with d nodes
converges geometrically. With c_0 = 1, three buffers are as good as √-Toeplitz at T = 100, four at
T = 1000 (to 0.05 %), five at T = 10,000.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...errors import ParameterError
from ..columns import F64, I64
from ..validate import at_least
from . import _exact

Number = TypeVar("Number", np.float64, np.int64)

_GRID = 2.0**30


class Buffers(NamedTuple):
    """A BLT: c_0 = 1 and c_k = Σ_i weight_i·decay_i^(k-1) for k ≥ 1."""

    weight: F64
    decay: F64


def sqrt_column(horizon: int) -> F64:
    """(T,) c_k = binom(2k, k)/4^k, normalised to a unit column."""
    k = np.arange(1, horizon, dtype=np.float64)
    return _unit(np.concatenate([np.ones(1), np.cumprod((2 * k - 1) / (2 * k))]))


def buffers(horizon: int) -> Buffers:
    """The BLT parameters for a horizon, rounded to 2^-30 so that all machines agree."""
    from scipy.special import ellipj, ellipk  # here: it takes long to load

    low = min(3 / at_least("horizon", horizon, 1), 0.5)
    number = max(3, 1 + len(str(horizon - 1 or 1)))
    quarter = ellipk(1 - low)
    sn, cn, dn, _ = ellipj((np.arange(number) + 0.5) * quarter / number, 1 - low)
    weight = 2 * quarter * np.sqrt(low) / (np.pi * number) * dn / cn**2
    decay = 1 / (1 + low * (sn / cn) ** 2)
    rounded = np.rint(weight * decay**2 * _GRID) / _GRID
    return Buffers(rounded, np.rint(decay * _GRID) / _GRID)


def blt_column(horizon: int) -> F64:
    """(T,) first column of the BLT, normalised to a unit column."""
    column, (power, decay) = np.ones(horizon), buffers(horizon)
    for k in range(1, horizon):
        column[k] = _exact.running_sum(power)
        power = power * decay
    return _unit(column)


def encoder(column: F64, bits: int) -> I64:
    """(T,) the first column in units of 2^-bits."""
    return np.rint(column * 2.0**bits).astype(np.int64)


def series(core: I64, bits: int) -> F64:
    """(T,) 1/((1-x)·c(x)) for c in units of 2^-bits, as multiples of 2^-50."""
    return _exact.on_grid(_exact.series_solve(core.astype(np.float64) * 2.0**-bits))


def series_error(b: F64, core: I64, bits: int) -> float:
    """Bound of the Euclidean distance of the first T coefficients ``b`` from the exact series.

    With the residual r = 1/(1-x) - b·c, the error is r/c, and 1/c = (1-x)·b/(1 - (1-x)·r). Young's
    inequality bounds the products.

    Raises:
        ParameterError: the series is too ill-conditioned.
    """
    high = np.rint(b * 2.0**25) * 2.0**-25
    c, size = core.astype(np.float64), len(core)
    parts = np.convolve(high, c)[:size], np.convolve(b - high, c)[:size]
    residual = (2.0**bits - parts[0] - parts[1]) * 2.0**-bits
    gap = 2 * float(np.abs(residual).sum())
    if gap > 0.5:
        raise ParameterError("horizon", size, "the factorisation is too ill-conditioned")
    inverse = float(np.abs(np.diff(b, prepend=0.0)).sum()) / (1 - gap)
    return (float(np.linalg.norm(residual)) + 2.0**-60) * inverse * 1.001


def banded(column: NDArray[Number]) -> NDArray[Number]:
    """(T, T) read-only lower triangular Toeplitz view: a window sliding over 2T numbers."""
    size = len(column)
    padded = np.concatenate([column[::-1], np.zeros(size - 1, column.dtype)])
    return np.lib.stride_tricks.sliding_window_view(padded, size)[::-1]


def _unit(column: F64) -> F64:
    norm: float = np.sqrt(_exact.running_sum(column * column))
    return column / norm

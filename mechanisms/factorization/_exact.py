"""Linear algebra whose results are exact, or at least the same on every machine.

Optimised matrix products and sums differ between machines in their last bits, because the order
of summation differs. There are two remedies. A product of integer-valued doubles whose partial sums
all stay below 2^53 is exact in any order; wider integers are first split into limbs. And
element-wise IEEE operations (+, -, ·, /, √) in a fixed order are deterministic: elimination by
outer products and running sums use nothing else.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..columns import F64, I64

LIMB = 19
_B_BITS = 50
_MASK = (1 << LIMB) - 1


def running_sum(values: F64) -> float:
    """The sum of a vector, added from first to last."""
    return float(np.cumsum(values)[-1]) if len(values) else 0.0


def row_sums(matrix: F64) -> F64:
    """(rows,) sums along each row, added from first to last."""
    total = np.zeros(len(matrix))
    for column in range(matrix.shape[1]):
        total += matrix[:, column]
    return total


def prefix_solve(C: F64) -> F64:
    """B = A C⁻¹, where A sums prefixes and C (T, T) is lower triangular; deterministic.

    Columns are eliminated from the last to the first: O(T³/6) element-wise operations.
    """
    size = len(C)
    B = np.zeros((size, size))
    rest = np.tril(np.ones((size, size)))
    for j in range(size - 1, -1, -1):
        column = rest[j:, j] / C[j, j]
        B[j:, j] = column
        rest[j:, :j] -= column[:, None] * C[j, :j]
    return B


def series_solve(c: F64) -> F64:
    """The first T coefficients of 1/((1-x)·c(x)): the Toeplitz case of `prefix_solve`."""
    size = len(c)
    b, rest = np.empty(size), np.ones(size)
    for k in range(size):
        b[k] = rest[k] / c[0]
        rest[k:] -= b[k] * c[: size - k]
    return b


def on_grid(values: F64) -> F64:
    """Round to multiples of 2^-50."""
    return np.rint(values * 2.0**_B_BITS) * 2.0**-_B_BITS


def product(left: F64, right: I64) -> tuple[F64, F64]:
    """``left @ right`` as an unevaluated sum of two exact products.

    ``left`` holds multiples of 2^-50 below 4 in size; each partial sum of 27-bit limbs with the
    integers of ``right`` must stay below 2^53, which the caller ensures.
    """
    high = np.rint(left * 2.0**25) * 2.0**-25
    other = right.astype(np.float64)
    return high @ other, (left - high) @ other


def limbs(matrix: I64) -> tuple[F64, F64, F64]:
    """Integers below 2^56 in size as three limbs of 19 bits, the first one signed."""
    return (
        (matrix >> (2 * LIMB)).astype(np.float64),
        ((matrix >> LIMB) & _MASK).astype(np.float64),
        (matrix & _MASK).astype(np.float64),
    )


def gram_residual(high: I64, low: I64, factor: I64) -> F64:
    """high·2^76 + low·2^57 - factorᵀ·factor, exact but for one final rounding.

    The products of limbs are sums of T terms below 2^38, hence exact for T ≤ 2^13. They are
    subtracted from the most significant weight downwards, so that everything cancels before it is
    shifted. The residual must be below 2^62.
    """
    a, b, c = limbs(factor)
    rest = high - _symmetric(a, a)
    rest = (rest << LIMB) + low - _symmetric(a, b)
    rest = (rest << LIMB) - _symmetric(a, c) - _symmetric(b, b)
    rest = (rest << LIMB) - _symmetric(b, c)
    return ((rest << LIMB) - _symmetric(c, c)).astype(np.float64)


def _symmetric(left: F64, right: F64) -> NDArray[np.int64]:
    """leftᵀ·right, plus its transpose unless both are the same limb."""
    one = (left.T @ right).astype(np.int64)
    return one if left is right else one + one.T


def times(left: F64, right: F64) -> tuple[F64, F64]:
    """left·right element-wise as a rounded product and its exact error (Dekker 1971)."""
    rounded = left * right
    a, b = _halves(left)
    c, d = _halves(right)
    return rounded, ((a * c - rounded) + a * d + b * c) + b * d


def _halves(values: F64) -> tuple[F64, F64]:
    shifted = values * 134217729.0  # 2^27 + 1
    high = shifted - (shifted - values)
    return high, values - high

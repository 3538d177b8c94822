"""A Toeplitz factorisation for an unknown number of triggers.

C is one infinite lower triangular Toeplitz matrix, and T triggers use its first T rows: the draws
and their cost do not depend on T. So the last trigger need not be stated.

*Source.* Jacobsen & Fawaz (2025, arXiv 2506.15018) divide the column of (1-x)^-½ by a power of a
logarithm. Here c_k = binom(2k, k)/4^k / √(1 + h·λ(k)) with h = `SLOWER`, and λ(k) = j + k/2^j - 1
for k = 2^j … 2^(j+1) - 1, which is log₂ k between powers of two and needs no logarithm. For h = 0,
C would be √-Toeplitz, whose columns have no common bound. The variance at trigger T is below 1.5
times the largest one of √-Toeplitz *for T triggers* from T = 1024 up to 2^24, and 1.6 times from
256 on (`benchmarks/endless.py`).

*Sensitivity.* Neighbours differ in all records of one privacy unit. A unit's m records in a key
move Cx by the sum of m columns, in Euclidean norm by at most m times a column, adaptively too, as C
is lower triangular. A column of T ≤ `LONGEST` triggers has the squares of the first T integers of
`encoder`, whose sum `sensitivity2` bounds: exactly below 2^14, then by octaves. For k in octave j,
c_k² ≤ 1/(πk(1 + hj)), and Σ 1/k ≤ ln 2 + 2^-j. With u_k the error of the k-th prefix sum of
integers, |u_k| ≤ 1 (½ of rounding, and less than ½ of doubles), an octave of the integers has
Σ (c_k + u_k - u_(k-1))² ≤ Σ c_k² + 4c_(2^j) + 4·2^j in squared steps, by Abel summation as c falls.
C has no negative entry, so two columns are at most √2 norms apart.

*Rounding.* Prefix sums of c are rounded to 2^-16, rather than c itself: accumulated errors would
exceed c where c is small.

*Rows.* B is Toeplitz too. With f = (1-x)·c in steps, b = 1/f follows from b_k = -Σ f_i b_(k-i)/f_0.
Each b_k is rounded to 2^-`FINE`, and everything else is exact in integers (`convolved`), so all
machines have the same b. With ρ_k the rounding, f·b̂ = 1 + f_0·ρ, so b̂ - b = f_0·ρ·b, and each
|b̂_k - b_k| ≤ 2^-`FINE`·Σ|b|.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from ..columns import F64, I64
from . import toeplitz

BITS = 16
"""Its grid is 2^-16."""
LONGEST = 1 << 24
"""Most triggers."""
SLOWER = Fraction(5, 32)
"""h: a larger h makes early triggers more accurate and late ones less."""
LEAST = 1024
"""Triggers of the smallest table of b."""

_EXACT = 1 << 14  # up to here columns are summed exactly
_LIMB, _LIMBS = 30, 3
FINE = _LIMB * _LIMBS
_PART = 10  # bits of a limb that are convolved at a time
_LEAF = 64
_LN2, _PI = Fraction(693148, 10**6), Fraction(314159, 10**5)  # above, and below


def encoder(horizon: int) -> I64:
    """(T,) the first T entries of c, in units of 2^-16.

    >>> encoder(6).tolist()
    [65536, 32768, 22855, 18434, 15642, 13872]
    """
    k = np.arange(1, horizon, dtype=np.int64)
    below = np.frexp(k.astype(np.float64))[1] - 1  # ⌊log₂ k⌋
    slower = np.concatenate([np.zeros(1), below + k / 2.0**below - 1])
    falling = np.concatenate([np.ones(1), np.cumprod((2 * k - 1) / (2 * k))])
    summed = np.cumsum(falling / np.sqrt(1 + float(SLOWER) * slower))
    return np.diff(np.rint(summed * 2.0**BITS), prepend=0.0).astype(np.int64)


@lru_cache(maxsize=1)
def sensitivity2() -> Fraction:
    """A bound of the squared norm of each column, for every T up to `LONGEST`, in records²."""
    core = encoder(_EXACT)
    total = Fraction(int((core * core).sum()))
    total += sum(octave(j) for j in range(_EXACT.bit_length() - 1, LONGEST.bit_length() - 1))
    return total / (1 << 2 * BITS)


def octave(j: int) -> Fraction:
    """A bound of the sum of squares of c from 2^j to 2^(j+1) - 1, j ≥ 1, in squared steps."""
    squares = (_LN2 + Fraction(1, 1 << j)) / (_PI * (1 + SLOWER * j))
    return squares * (1 << 2 * BITS) + 4 * (1 << BITS) + (4 << j)


def table(trigger: int) -> int:
    """Triggers of the table that a trigger needs: tables double in size, so few are computed."""
    return max(LEAST, 1 << (trigger - 1).bit_length())


@dataclass(frozen=True, eq=False)
class Shifted:
    """C and B, each as one column.

    Attributes:
        core: (T,) first column of C in units of 2^-16.
        fine: (3, T) first column of B in limbs of 30 bits, the first one signed.
        column: (T,) the same numbers as doubles.
        wrong: bound of the distance of each entry of ``fine`` from the exact one.
    """

    core: I64
    fine: I64
    column: F64
    wrong: float

    @classmethod
    def made(cls, horizon: int) -> Shifted:
        """The columns for ``horizon`` triggers."""
        core = encoder(horizon)
        fine = series(np.diff(core, prepend=0))
        high, middle, low = fine.astype(np.float64)
        column = (high + middle * 2.0**-_LIMB + low * 4.0**-_LIMB) * 2.0**-_LIMB
        # The sum over b exceeds that of its doubles by less than one in a thousand.
        wrong = 2.0**-FINE * float(np.abs(column).sum()) * 1.001
        return cls(core, fine, column, wrong)

    @property
    def C(self) -> I64:
        """(T, T) a view."""
        return toeplitz.banded(self.core)

    @property
    def B(self) -> F64:
        """(T, T) a view."""
        return toeplitz.banded(self.column)

    def rows(self, triggers: I64) -> F64:
        """(k, T) rows of B, copied."""
        rows: F64 = self.B[triggers - 1]
        return rows

    def block(self, begin: int, end: int) -> list[list[int]]:
        """Rows begin…end of C from column ``begin`` to the diagonal."""
        return [self.core[row - begin :: -1].tolist() for row in range(begin, end)]

    def total(self, z: list[int]) -> tuple[int, int]:
        """(Bz)_t of t numbers in units of 2^-`FINE`, and a bound of its error."""
        most = max(map(abs, z), default=0)
        sums = [sum(map(operator.mul, limb[len(z) - 1 :: -1].tolist(), z)) for limb in self.fine]
        whole = sum(one << _LIMB * (_LIMBS - 1 - n) for n, one in enumerate(sums))
        error = Fraction(self.wrong) * (1 << FINE) * most * len(z)
        return whole, int(error) + 1

    def slack(self) -> F64:
        """(T,) bound of the Euclidean distance of the rows of doubles from the exact ones."""
        terms = np.arange(1, len(self.core) + 1)
        norms = np.sqrt(np.cumsum(self.column * self.column))
        slack: F64 = (self.wrong * np.sqrt(terms) + 2.0**-51 * norms) * 1.001
        return slack


def series(f: I64) -> I64:
    """(3, T) 1/f in limbs of 30 bits: a power series with f_0 = 2^16, by halves.

    Args:
        f: (T,) integers up to 2^16 in size.
    """
    size = len(f)
    whole = 1 << (size - 1).bit_length()
    f = np.concatenate([f, np.zeros(whole - size, np.int64)])
    fine, seen = np.zeros((_LIMBS, whole), np.int64), np.zeros((_LIMBS, whole), np.int64)
    lead = f[1:_LEAF].tolist()
    # Leaves are solved in order; the effect of a solved half on the other is a convolution.
    for begin in range(0, size, _LEAF):
        end = min(begin + _LEAF, whole)
        _leaf(lead, fine, seen, begin, end)
        done = end // _LEAF
        width = (done & -done) * _LEAF
        if end < size:
            upto = min(end + width, whole)
            for limb in range(_LIMBS):
                seen[limb, end:upto] += convolved(fine[limb, end - width : end], f[: 2 * width])[
                    width : width + upto - end
                ]
    return fine[:, :size]


def _leaf(lead: list[int], fine: I64, seen: I64, begin: int, end: int) -> None:
    """Solve a few coefficients; ``seen`` holds the effect of all earlier ones."""
    solved: list[int] = []
    for place, rest in enumerate(zip(*seen[:, begin:end].tolist(), strict=True), begin):
        known = sum(one << _LIMB * (_LIMBS - 1 - n) for n, one in enumerate(rest))
        known += sum(map(operator.mul, lead, reversed(solved)))
        wanted = (1 << FINE + BITS) * (place == 0) - known
        solved.append((wanted + (1 << BITS - 1)) >> BITS)
    for limb in range(_LIMBS):
        shift = _LIMB * (_LIMBS - 1 - limb)
        mask = -1 if limb == 0 else (1 << _LIMB) - 1
        fine[limb, begin:end] = [(one >> shift) & mask for one in solved]


def convolved(left: I64, right: I64) -> I64:
    """(2n,) the first terms of left·right, exactly, by Fourier transforms of doubles.

    Parts of 10 bits keep the rounding error of a transform of 2^25 terms below 1/100: it is at most
    ‖left‖·‖right‖·6·log₂(2n)·2^-53 (Higham 2002, Theorem 24.2), with ‖left‖ ≤ 2^10·√n and
    ‖right‖ ≤ 2^17.

    Args:
        left: (n,) integers below 2^31 in size; ``right``: (2n,) integers up to 2^16.
    """
    size = 2 * len(left)
    other = np.fft.rfft(right, 2 * size)
    out = np.zeros(size, np.int64)
    for shift in range(0, _LIMB, _PART):
        mask = -1 if shift + _PART >= _LIMB else (1 << _PART) - 1
        part = (left >> shift) & mask
        product = np.fft.irfft(np.fft.rfft(part, 2 * size) * other, 2 * size)[:size]
        out += np.rint(product).astype(np.int64) << shift
    return out

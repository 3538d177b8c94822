"""Factorisations A = BC of prefix sums, from their papers, rounded as the product documents.

C has integer entries, and B follows from C. A dense C is kept whole. Of a C that its first column
determines, only that column is kept, so time and memory are at most quadratic in the triggers.
"""

import itertools
from collections.abc import Sequence
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from math import ceil, isqrt, lcm
from operator import mul

from .gaussian import DIGITS, normal_quantile, root
from .optimal import PRECISION, factor, quadrature
from .overlapping import of_windows

BITS = 12  # matrices and noise are multiples of 2^-12 of a record
FINE = 320  # bits of a row of B
COMPARED = 2048  # up to so many triggers, all columns are compared; beyond, √2 norms is the bound
POWER = Decimal("0.53")  # of the normalised factorisation


class Matrix:
    """A = BC: noise (Bz)(t), with z independent, hides prefix sums; C is in units of 2^-12."""

    bits = BITS

    def __init__(self, name: str, horizon: int, hops: int = 1) -> None:
        self.horizon = horizon
        self.tree = name in ("tree", "honaker")
        self.honaker = name == "honaker"
        steps = range(1, horizon + 1)
        if self.tree:  # one draw per complete node (height, place), sorted by completion
            self.nodes = [(i, (t >> i) - 1) for t in steps for i in range((t & -t).bit_length())]
            self.width = [0, *(2 * t - t.bit_count() for t in steps)]
            self.sensitivity2 = Fraction(horizon.bit_length())
        else:
            self.C = _encoder(name, horizon, hops)
            self.columns = [[row[j] if j < len(row) else 0 for row in self.C]
                            for j in range(horizon)]  # fmt: skip
            self.width = [0, *steps]
            columns = (sum(row[j] ** 2 for row in self.C[j:]) for j in range(horizon))
            self.sensitivity2 = Fraction(max(columns), 4**BITS)
        self.draws = self.width[-1]
        self.row = lru_cache(None)(self._row)

    @property
    def further(self) -> Fraction:
        """The largest squared distance of two columns of C, divided by the largest squared norm."""
        if self.tree:
            columns = [[int(j >> i == p) for i, p in self.nodes] for j in range(self.horizon)]
        else:
            columns = [
                [row[j] if j < len(row) else 0 for row in self.C] for j in range(self.horizon)
            ]
        norm = max(sum(x * x for x in column) for column in columns)
        apart = (
            sum((x - y) ** 2 for x, y in zip(one, other, strict=True))
            for one, other in itertools.combinations(columns, 2)
        )
        return Fraction(max(norm, *apart, 0), norm)

    def _row(self, t: int) -> tuple[list[int], int]:
        """Row t of B: numerators of its first ``width[t]`` entries, and their denominator."""
        if not self.tree:
            return self._solved_row(t), 1 << FINE
        exact = self._tree_row(t)
        common = lcm(*(x.denominator for x in exact))
        return [int(x * common) for x in exact], common

    def _tree_row(self, t: int) -> list[Fraction]:
        """The nodes that partition 1…t; with Honaker, each averaged with its descendants."""
        row = [Fraction(0)] * self.width[t]
        place = {node: n for n, node in enumerate(self.nodes[: self.width[t]])}
        for i in (i for i in range(t.bit_length()) if t >> i & 1):
            top = (t >> i) - 1
            for k in range(i + 1) if self.honaker else (0,):
                share = Fraction(1 << (i - k), (2 << i) - 1) if self.honaker else Fraction(1)
                for j in range(top << k, (top + 1) << k):
                    row[place[i - k, j]] = share
        return row

    def _solved_row(self, t: int) -> list[int]:
        """b with bC = (1, …, 1, 0, …), t ones, in units of 2^-FINE; its last digits are inexact."""
        row, one = [0] * t, 1 << self.bits + FINE
        for j in reversed(range(t)):
            column = self.columns[j]
            rest = one - sum(map(mul, row[j + 1 :], column[j + 1 : t]))
            row[j] = (2 * rest + column[j]) // (2 * column[j])
        return row

    def norm2(self, t: int, known: int = 0) -> Fraction:
        """Sum of the squares of row t without its first ``known`` entries."""
        row, common = self.row(t)
        return Fraction(sum(b * b for b in row[known:]), common**2)

    def quantile(self, t: int, beta: Fraction, variance: Fraction) -> Fraction:
        """x with P((Bz)(t) ≥ x) ≤ beta; both norms are rounded up to 2^-30."""
        row, common = self.row(t)
        norm = Fraction(ceil(root(self.norm2(t)) * 2**30), 2**30)
        norm1 = Fraction(ceil(Fraction(sum(map(abs, row)), common) * 2**30), 2**30)
        kept = 1 - self.terms(t) / (24 * variance)
        far = normal_quantile(beta * kept)
        return (root(variance) * norm * far + norm1 / 2) / 2**self.bits

    def terms(self, t: int) -> int:
        """The number of draws in the noise of trigger t, at most."""
        return self.draws


class Series:
    """The power series 1/f in units of 2^-FINE, computed as far as needed.

    Args:
        f: coefficients of f, in units of 2^-bits.
    """

    def __init__(self, f: Sequence[int], bits: int) -> None:
        self.f, self.one = f, 1 << FINE + bits
        self.known: list[int] = []

    def upto(self, t: int) -> list[int]:
        """The first t coefficients, and possibly more."""
        f, out = self.f, self.known
        for k in range(len(out), t):
            rest = self.one * (k == 0) - sum(map(mul, f[1 : k + 1], reversed(out)))
            out.append((2 * rest + f[0]) // (2 * f[0]))
        return out


class Shifted(Matrix):
    """C and B are Toeplitz: the first column of each determines the whole matrix.

    Args:
        core: the first column of C, in units of 2^-bits; none is negative.
    """

    def __init__(self, core: list[int], horizon: int) -> None:
        self.horizon, self.core, self.scale = horizon, core, [1] * len(core)
        self.tree, self.width, self.draws = False, range(horizon + 1), horizon
        self.sensitivity2 = Fraction(sum(c * c for c in core), 4**self.bits)
        self._series = Series([a - b for a, b in zip(core, [0, *core], strict=False)], self.bits)
        self._squares = [0]  # prefix sums of the squared entries of B's column

    @property
    def further(self) -> Fraction:
        """The same, from sums of products of entries at equal distances; 2 if T > COMPARED."""
        T, core, scale = self.horizon, self.core, self.scale
        if T > COMPARED:
            return Fraction(2)
        apart = [list(itertools.accumulate(map(mul, core, core[lag:]))) for lag in range(T)]
        norms = [scale[j] ** 2 * apart[0][T - 1 - j] for j in range(T)]
        most = max(norms[i] + norms[j] - 2 * scale[i] * scale[j] * apart[j - i][T - 1 - j]
                   for j in range(T) for i in range(j + 1))  # fmt: skip
        return Fraction(max(most, *norms), max(norms))

    def row(self, t: int) -> tuple[list[int], int]:  # type: ignore[override]
        """The first t entries of B's column, in reverse order."""
        return self._series.upto(t)[t - 1 :: -1] if t else [], 1 << FINE

    def norm2(self, t: int, known: int = 0) -> Fraction:
        column, sums = self._series.upto(t), self._squares
        for b in column[len(sums) - 1 : t]:
            sums.append(sums[-1] + b * b)
        return Fraction(sums[max(t - known, 0)], 4**FINE)


class Scaled(Shifted):
    """C = L·diag(s), L Toeplitz in units of 2^-8; no column is longer than the last one.

    Henzinger, Kalinin & Upadhyay (2025), with another power: L is (1-x)^-POWER.
    """

    bits, half = 16, 8

    def __init__(self, horizon: int) -> None:
        column = [Decimal(1)]
        for k in range(1, horizon):
            column.append(column[-1] * (k - 1 + POWER) / k)
        super().__init__([nearest(x, self.half) for x in column], horizon)
        squares = list(itertools.accumulate(c * c for c in self.core))[::-1]
        self.scale = [isqrt((squares[-1] << 2 * self.half) // n) for n in squares]
        longest = max(s * s * n for s, n in zip(self.scale, squares, strict=True))
        self.sensitivity2 = Fraction(longest, 4**self.bits)
        self._series = Series(self.core, self.half)
        self._rows: list[list[int]] = [[]]

    def row(self, t: int) -> tuple[list[int], int]:  # type: ignore[override]
        """The sum over j of 1/s_j times row j of the inverse of L; row t of B adds term t."""
        for done in range(len(self._rows), t + 1):
            s = self.scale[done - 1]
            own = [((one << self.half + 1) + s) // (2 * s)
                   for one in self._series.upto(done)[done - 1 :: -1]]  # fmt: skip
            self._rows.append(list(map(sum, zip([*self._rows[-1], 0], own, strict=True))))
        return self._rows[t], 1 << FINE

    def norm2(self, t: int, known: int = 0) -> Fraction:
        return Matrix.norm2(self, t, known)


@lru_cache(None)
def matrix(name: str, horizon: int, hops: int = 1) -> Matrix:
    """The factorisation called ``name`` for so many triggers, or for windows of so many hops."""
    if name == "auto":
        name = "terminal" if horizon <= 1024 else "blt"
    with localcontext(DIGITS):
        if name == "normalized":
            return Scaled(horizon)
        if name in COLUMNS:
            column = COLUMNS[name](horizon)
            norm = sum(c * c for c in column).sqrt()
            return Shifted([nearest(c / norm, BITS) for c in column], horizon)
    return Matrix(name, horizon, hops)


def nearest(x: Decimal, bits: int) -> int:
    """The integer nearest to x in units of 2^-bits."""
    return int((x * 2**bits + Decimal("0.5")).to_integral_value(ROUND_FLOOR))


def _encoder(name: str, horizon: int, hops: int) -> list[list[int]]:
    """C, lower triangular with unit columns, rounded to the nearest multiple of 2^-12."""
    with localcontext(DIGITS):
        make = of_windows(horizon, hops) if name == "hopping" else _optimal(name, horizon)
        return [[nearest(x, BITS) for x in row] for row in make]


def _root(horizon: int) -> list[Decimal]:
    """c_k = binom(2k, k)/4^k (Henzinger & Upadhyay 2022)."""
    column = [Decimal(1)]
    for k in range(1, horizon):
        column.append(column[-1] * (2 * k - 1) / (2 * k))
    return column


def _buffers(horizon: int) -> list[Decimal]:
    """c_0 = 1; the later c_k are a sum of a few decaying powers (McMahan, Xu & Zhang 2024).

    The sum is that of the quadrature of 1/√y on [3/T, 1] at y = 1 - x. As 1/(y + ν) is d/(1 - d·x)
    for d = 1/(1 + ν), each term adds weight·d^(k+1); d and weight·d² are rounded to 2^-30.
    """
    number, low = max(3, 1 + len(str(horizon - 1 or 1))), min(Decimal(3) / horizon, Decimal("0.5"))
    with localcontext(PRECISION):
        found = quadrature(low, Decimal(1), number)
        terms = [(weight / (1 + shift) ** 2, 1 / (1 + shift)) for shift, weight in found]
        fine = [[(x * 2**30).to_integral_value(ROUND_HALF_EVEN) / 2**30 for x in one]
                for one in zip(*terms, strict=True)]  # fmt: skip
    (now, decay), column = fine, [Decimal(1)]
    for _ in range(1, horizon):
        column.append(sum(now, Decimal(0)))
        now = [power * d for power, d in zip(now, decay, strict=True)]
    return column


COLUMNS = {"toeplitz": _root, "blt": _buffers}
"""First columns of C, before C is scaled to unit columns."""


def _optimal(name: str, horizon: int) -> list[list[Decimal]]:
    """Denisov et al. (2022), Theorem 3.2, v by a formula: XᵀX-optimal for a heavy last row."""
    last, T, v = {"terminal": 1, "final": 16}[name], Decimal(horizon), []
    for t in range(1, horizon + 1):
        late, early = (T / (T - t + 1)).sqrt(), (T / t).sqrt()
        v.append(1 + Decimal("4.3125") * early + 10 * early.sqrt() + Decimal("1.28125") * late
                 + late * late / 16)  # fmt: skip
    return factor([round(32 * x.sqrt()) for x in v], last)

"""Matrix factorisations of prefix sums, A = BC: the noise of a whole stream of releases at once.

Let x_t be the arrivals of micro-batch t. Then y = Cx + z is private, and the release is
S + Bz = B·y: Ax with correlated noise, post-processing of y (Denisov, McMahan, Rush, Smith &
Thakurta 2022). C is a matrix of integers on a dyadic grid, in units of 2^-bits, and so is z; hence
y lies on that grid and discrete Gaussian noise hides it. That integer matrix determines B = AC⁻¹
exactly; the doubles in `Factorization.B` approximate it with a proved error.

=================  ======================================================================
``tree``           binary tree, plain popcount estimator (Chan, Shi & Song 2011)
``honaker``        binary tree, bottom-up estimator (Honaker 2015)
``sqrt-toeplitz``  c(x) = (1-x)^-½ (Henzinger & Upadhyay 2022)
``blt``            buffered linear Toeplitz (McMahan, Xu & Zhang 2024)
``normalized``     c(x) = (1-x)^-0.53, unit columns (Henzinger, Kalinin & Upadhyay 2025)
``terminal``       optimal for errors weighted towards the last trigger (Denisov et al. 2022)
``final``          the same with 16 times the weight on the last trigger
``endless``        Toeplitz for triggers without end (Jacobsen & Fawaz 2025), see `reaching`
=================  ======================================================================

*Sensitivity.* Records of one unit in one key, m in all, however spread over time, move Cx by at
most m times the largest column norm in Euclidean norm, by the triangle inequality; the bound is
attained at a single time. With C lower triangular (in the order of noise coordinates) this holds
for adaptively chosen contributions too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import ContractError, ParameterError
from ..columns import F64, I64
from ..validate import at_least, one_of
from . import _exact, endless, normalized, terminal, toeplitz, tree

BITS = 12
"""Default grid of C and the noise: 2^-12. Finer grids need slower samplers."""

_NORM_GRID = 2.0**30


class Dense(NamedTuple):
    """C (m, T) and B (T, m) as arrays."""

    C: I64
    B: F64

    def rows(self, triggers: I64) -> F64:
        """(k, m) rows of B."""
        rows: F64 = self.B[triggers - 1]
        return rows

    def block(self, begin: int, end: int) -> list[list[int]]:
        """Rows begin…end of C from column ``begin`` to the diagonal."""
        return [self.C[row, begin : row + 1].tolist() for row in range(begin, end)]


@dataclass(frozen=True, eq=False)
class Factorization:
    """One factorisation A = BC for a public horizon T, with m noise coordinates.

    Attributes:
        name: name of the factorisation, see `NAMES`.
        horizon: T, the number of triggers.
        bits: C and the noise are multiples of 2^-bits.
        matrices: C and B, dense or by a rule that needs less memory.
        slack: (T,) bound of the Euclidean distance of each row of ``B`` from the exact row.
        row_norms: (T,) ‖B_t‖₂ of the exact rows, rounded up to 2^-30; noise of variance σ² per
            coordinate gives releases of standard deviation σ·row_norms.
        row_sums: (T,) ‖B_t‖₁ of the exact rows, rounded up to 2^-30.
        width: (T,) number of leading noise coordinates on which trigger t depends.
        sensitivity2: the largest squared column norm of C, exact, in records².
        core: the integers that determine C; C has a negative entry only if they do.
        rational: the exact row of B at a trigger where it is simple and rational, else None.
        total: (Bz)_t of t numbers in units of 2^-`endless.FINE`, and a bound of its error, where
            there is a faster way than solving Cw = z; else None.
    """

    name: str
    horizon: int
    bits: int
    matrices: Dense | normalized.Scaled | endless.Shifted
    slack: F64
    row_norms: F64
    row_sums: F64
    width: I64
    sensitivity2: Fraction
    core: I64
    rational: Callable[[int], tree.Row | None]
    total: Callable[[list[int]], tuple[int, int]] | None = None

    @property
    def C(self) -> I64:
        """(m, T) integers in units of 2^-bits."""
        return self.matrices.C

    @property
    def B(self) -> F64:
        """(T, m) doubles near AC⁻¹."""
        return self.matrices.B

    def rows(self, triggers: I64) -> F64:
        """(k, m) rows of ``B`` for k triggers in 1…T.

        Raises:
            ContractError: a trigger lies outside the horizon.
        """
        if len(triggers) and not 1 <= triggers.min() <= triggers.max() <= self.horizon:
            raise ContractError(f"triggers must lie between 1 and {self.horizon}")
        return self.matrices.rows(triggers)

    def block(self, begin: int, end: int) -> list[list[int]]:
        """Rows begin…end of a lower triangular ``C`` from column ``begin`` to the diagonal."""
        return self.matrices.block(begin, end)

    def norm2(self, trigger: int) -> Fraction:
        """‖B_t‖₂² of the exact row, rounded up."""
        return Fraction(float(self.row_norms[trigger - 1])) ** 2

    def norm1(self, trigger: int) -> Fraction:
        """‖B_t‖₁ of the exact row, rounded up."""
        return Fraction(float(self.row_sums[trigger - 1]))

    @property
    def noises(self) -> int:
        """m, the number of noise coordinates, all of which one unit can touch in a key."""
        return int(self.width[-1])

    def errors(self) -> F64:
        """(T,) row norms at unit sensitivity, for comparing factorisations."""
        column: float = float(self.sensitivity2) ** 0.5
        return self.row_norms * column

    def digest(self) -> str:
        """SHA-256 of everything that shapes the noise: equal digests, equal releases.

        It is part of the configuration that a charge pays for, so that a machine that computes
        another C stops instead of putting the same noise on two contents.
        """
        head = f"{self.name}:{self.horizon}:{self.bits}:".encode()
        norms = np.ascontiguousarray(self.row_norms, "<f8").tobytes()
        return hashlib.sha256(
            head + np.ascontiguousarray(self.core, "<i8").tobytes() + norms
        ).hexdigest()


@lru_cache(maxsize=8)
def build(name: str, horizon: int, bits: int | None = None) -> Factorization:
    """The factorisation ``name`` for ``horizon`` triggers.

    >>> f = build("honaker", 8)
    >>> [round(float(norm) ** 2, 4) for norm in f.row_norms]
    [1.0, 0.6667, 1.6667, 0.5714, 1.5714, 1.2381, 2.2381, 0.5333]
    >>> f.sensitivity2, f.noises
    (Fraction(4, 1), 15)

    Args:
        name: name, one of `NAMES`.
        horizon: T ≥ 1, at most `LONGEST` of the name.
        bits: 4…16, the grid 2^-bits of C and of the noise; `BITS` if None, or `normalized.BITS`.

    Raises:
        ParameterError: the name is unknown, or a number is out of range.
    """
    one_of("name", name, NAMES)
    if at_least("horizon", horizon, 1) > LONGEST[name]:
        raise ParameterError("horizon", horizon, f"at most {LONGEST[name]} for {name!r}")
    bits = (normalized.BITS if name == "normalized" else BITS) if bits is None else bits
    if not 4 <= at_least("bits", bits, 4) <= 16:
        raise ParameterError("bits", bits, "must lie between 4 and 16")
    return _frozen(_BUILDERS[name](name, horizon, bits))


def of_encoder(name: str, C: I64, bits: int) -> Factorization:
    """The factorisation with a lower triangular C (T, T) of integers in units of 2^-bits.

    Raises:
        ParameterError: C is too ill-conditioned for the exact rounding of its noise.
    """
    return _frozen(_of_encoder(name, C, bits))


def reaching(trigger: int) -> Factorization:
    """The part of the endless factorisation that a trigger needs, or a larger part.

    Raises:
        ParameterError: the trigger is beyond `endless.LONGEST`.
    """
    horizon = endless.table(at_least("trigger", trigger, 1))
    return _endless(horizon)


@lru_cache(maxsize=2)
def _endless(horizon: int) -> Factorization:
    if horizon > endless.LONGEST:
        raise ParameterError("horizon", horizon, f"must be at most {endless.LONGEST}")
    made = endless.Shifted.made(horizon)
    rows = made.slack(), np.sqrt(np.cumsum(made.column**2)), np.cumsum(np.abs(made.column))
    exact = endless.sensitivity2()
    found = _triangular(("endless", horizon, endless.BITS), made, rows, exact, made.core)
    return _frozen(replace(found, total=made.total))


def _frozen(made: Factorization) -> Factorization:
    arrays = [one for one in vars(made).values() if isinstance(one, np.ndarray)]
    for array in [*arrays, *_arrays(made.matrices)]:
        array.flags.writeable = False
    return made


def _arrays(matrices: Dense | normalized.Scaled | endless.Shifted) -> list[NDArray[Any]]:
    parts = matrices if isinstance(matrices, Dense) else vars(matrices).values()
    return [one for one in parts if isinstance(one, np.ndarray)]


def _of_tree(name: str, horizon: int, bits: int) -> Factorization:
    row_of = tree.popcount_row if name == "tree" else tree.honaker_row
    C = tree.encoder(horizon, bits)
    B, norms, sums = np.zeros(C.T.shape), np.empty(horizon), np.empty(horizon)
    for step in range(1, horizon + 1):
        numerators, common = row_of(step)
        places, values = list(numerators), np.array(list(numerators.values()), np.float64)
        B[step - 1, places] = values / common
        norms[step - 1] = float(tree.norm2((numerators, common))) ** 0.5
        sums[step - 1] = sum(numerators.values()) / common
    width = np.array([2 * t - t.bit_count() for t in range(1, horizon + 1)], np.int64)
    # Each entry is correctly rounded: relative error 2^-53, or exact where all are 0 or 1.
    slack = norms * (2.0**-52 if name == "honaker" else 0.0)
    exact = Fraction(horizon.bit_length())
    return Factorization(
        name, horizon, bits, Dense(C, B), slack, _up(norms), _up(sums), width, exact, C, row_of
    )


def _of_toeplitz(name: str, horizon: int, bits: int) -> Factorization:
    column = toeplitz.sqrt_column if name == "sqrt-toeplitz" else toeplitz.blt_column
    core = toeplitz.encoder(column(horizon), bits)
    b = toeplitz.series(core, bits)
    slack = np.full(horizon, toeplitz.series_error(b, core, bits))
    norms, sums = np.sqrt(np.cumsum(b * b)), np.cumsum(np.abs(b))
    exact = Fraction(sum(int(c) ** 2 for c in core), 4**bits)
    matrices = Dense(toeplitz.banded(core), toeplitz.banded(b))
    return _triangular((name, horizon, bits), matrices, (slack, norms, sums), exact, core)


def _of_terminal(name: str, horizon: int, bits: int) -> Factorization:
    return _of_encoder(name, terminal.encoder(horizon, bits, LAST[name]), bits)


def _of_encoder(name: str, C: I64, bits: int) -> Factorization:
    B = _exact.on_grid(_exact.prefix_solve(C.astype(np.float64) * 2.0**-bits))
    slack, sums = _row_errors(B, C, bits), _exact.row_sums(np.abs(B))
    exact = Fraction(int((C * C).sum(axis=0).max()), 4**bits)
    norms = np.sqrt(_exact.row_sums(B * B))
    return _triangular((name, len(C), bits), Dense(C, B), (slack, norms, sums), exact, C)


def _of_normalized(name: str, horizon: int, bits: int) -> Factorization:
    made = normalized.Scaled.made(horizon, bits)
    exact, core = Fraction(made.sensitivity2(), 4**bits), np.concatenate([made.core, made.scale])
    return _triangular((name, horizon, bits), made, (made.slack(bits), *made.norms()), exact, core)


def _triangular(
    head: tuple[str, int, int],
    matrices: Dense | normalized.Scaled | endless.Shifted,
    rows: tuple[F64, F64, F64],
    sensitivity2: Fraction,
    core: I64,
) -> Factorization:
    name, horizon, bits = head
    slack, norms, sums = rows
    width = np.arange(1, horizon + 1, dtype=np.int64)
    norms, sums = _up(norms + slack), _up(sums + slack * np.sqrt(width))
    first = ({0: 1 << bits}, matrices.block(0, 1)[0][0])

    def rational(trigger: int) -> tree.Row | None:
        return first if trigger == 1 else None

    return Factorization(
        name, horizon, bits, matrices, slack, norms, sums, width, sensitivity2, core, rational
    )


def _up(values: F64) -> F64:
    # 1e-12 covers the rounding errors of sums of up to 2^13 doubles, and as much for each more.
    spare = 1e-12 * (1 + (len(values) >> 13))
    return np.ceil(values * (1 + spare) * _NORM_GRID) / _NORM_GRID


def _row_errors(B: F64, C: I64, bits: int) -> F64:
    """Bound of ‖B_t - (AC⁻¹)_t‖₂ for each row of B.

    With the residual R = A - BC, AC⁻¹ - B = RC⁻¹. The differences X of successive rows of B satisfy
    XC = I - DR, so ‖C⁻¹‖ ≤ ‖X‖_F/(1 - ‖DR‖_F), and ‖DR‖_F ≤ 2‖R‖_F.
    """
    high, low = _exact.product(B, C)
    residual = (np.tril(np.full(C.shape, 2.0**bits)) - high - low) * 2.0**-bits
    size = float(np.linalg.norm(residual))
    if size > 0.25:
        raise ParameterError("horizon", len(C), "the factorisation is too ill-conditioned")
    inverse = float(np.linalg.norm(np.diff(B, axis=0, prepend=0.0))) / (1 - 2 * size)
    lengths: F64 = np.linalg.norm(residual, axis=1)
    return (lengths + 2.0**-60) * inverse * 1.001


_BUILDERS: dict[str, Callable[[str, int, int], Factorization]] = {
    "tree": _of_tree,
    "honaker": _of_tree,
    "sqrt-toeplitz": _of_toeplitz,
    "blt": _of_toeplitz,
    "normalized": _of_normalized,
    "terminal": _of_terminal,
    "final": _of_terminal,
}
NAMES = tuple(_BUILDERS)
LONGEST = {
    "tree": 2048, "honaker": 2048, "sqrt-toeplitz": 16384, "blt": 16384, "normalized": 16384,
    "terminal": 2048, "final": 1024,
}  # fmt: skip
"""Longest horizon of each: a dense matrix, or the columns that determine one."""
LAST = {"terminal": 1, "final": 16}
"""κ of each terminal-weighted factorisation: the weight of the last trigger is ω = κT."""

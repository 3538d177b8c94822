"""The public numbers of a histogram: matrices, noise variances, thresholds, all from their rules.

Every number here follows from the configuration alone. Rationals are exact; what is irrational is
computed with a hundred digits and then rounded by the stated rule.
"""

import itertools
from decimal import ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from math import ceil, lcm
from operator import mul

from .gaussian import DIGITS, epsilon_of, gdp, mu_of, normal_quantile, root
from .optimal import factor, of_windows

BITS = 12  # matrices and noise are multiples of 2^-12 of a record
FINE = 320  # bits of a row of B
STEPS = 256  # noise is rounded down to 1/256 of a record before it is used


class Matrix:
    """A = BC: noise (Bz)(t) hides prefix sums, z independent, C in units of 2^-12."""

    bits = BITS

    def __init__(self, name: str, horizon: int, hops: int = 1) -> None:
        self.horizon = horizon
        if name == "auto":
            name = "terminal" if horizon <= 1024 else "blt"
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
        """The largest squared distance of two columns of C, over the largest squared norm."""
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
        """The nodes that partition 1…t; after Honaker each is averaged with its descendants."""
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
        """b with bC = (1, …, 1, 0, …): t ones; in units of 2^-FINE, the last ones of it unsure."""
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
        """The draws on which the noise of trigger t may rest."""
        return self.draws


def floored(total: int, common: int, bits: int = BITS) -> int:
    """Noise B·z, a fraction in steps of 2^-bits, rounded down to 1/STEPS.

    What lies within 2^-100 below a step is that step: rows of B are not known further.
    """
    unit = common << bits
    return (total * STEPS + (unit >> 100)) // unit


def limited(x: int) -> int:
    """The exact total of a micro-batch, as far as 64 bits hold it."""
    return min(max(x, 1 - 2**63), 2**63 - 1)


def wrapped(x: int) -> int:
    """A noisy total whose exact part is known modulo 2^64."""
    return (x + 2**63) % 2**64 - 2**63


def held(x: int) -> int:
    """A released number."""
    return min(max(x, -(2**62)), 2**62)


@lru_cache(None)
def matrix(name: str, horizon: int, hops: int = 1) -> Matrix:
    """The factorisation called ``name`` for so many triggers, or windows of so many hops."""
    return Matrix(name, horizon, hops)


def _encoder(name: str, horizon: int, hops: int) -> list[list[int]]:
    """C, lower triangular with unit columns, rounded to the nearest multiple of 2^-12."""
    if name not in ("terminal", "final", "toeplitz", "hopping"):
        raise NotImplementedError(f"the judge does not know the factorisation {name!r}")
    with localcontext(DIGITS):
        if name == "hopping":
            make = of_windows(horizon, hops)
        else:
            make = _toeplitz(horizon) if name == "toeplitz" else _optimal(name, horizon)
        return [
            [int((x * 2**BITS + Decimal("0.5")).to_integral_value(ROUND_FLOOR)) for x in row]
            for row in make
        ]


def _toeplitz(horizon: int) -> list[list[Decimal]]:
    """c_k = binom(2k, k)/4^k (Henzinger & Upadhyay 2022)."""
    column = [Decimal(1)]
    for k in range(1, horizon):
        column.append(column[-1] * (2 * k - 1) / (2 * k))
    norm = sum(c * c for c in column).sqrt()
    return [[column[i - j] / norm if i >= j else Decimal(0) for j in range(horizon)]
            for i in range(horizon)]  # fmt: skip


def _optimal(name: str, horizon: int) -> list[list[Decimal]]:
    """Denisov et al. (2022), Theorem 3.2, with v by formula: XᵀX-optimal for a heavy last row."""
    last, T, v = {"terminal": 1, "final": 16}[name], Decimal(horizon), []
    for t in range(1, horizon + 1):
        late, early = (T / (T - t + 1)).sqrt(), (T / t).sqrt()
        v.append(1 + Decimal("4.3125") * early + 10 * early.sqrt() + Decimal("1.28125") * late
                 + late * late / 16)  # fmt: skip
    return factor([round(32 * x.sqrt()) for x in v], last)


def sampling(epsilon: Fraction, touched: int, processes: int) -> Fraction:
    """The δ that draws cost which are not quite exact, each by 2^-110, in both worlds."""
    return (1 + 3 ** ceil(epsilon)) * (2 * touched * processes * Fraction(1, 2**110))


def spent(
    need: tuple[Fraction, ...], variance: Fraction, touched: int
) -> tuple[Fraction, Fraction]:
    """μ² of one process, and the pure part: discrete noise is not quite Gaussian.

    A need with a third number moves with another one, whose μ² is that of both.
    """
    mu2 = need[0] / variance
    pure = (14 * root(touched * mu2) + mu2) / (4 * variance) + 4 * touched / (24 * variance - 1)
    return mu2 * (len(need) == 2), pure


@lru_cache(None)
def variances(
    budget: tuple[Fraction, Fraction],
    needs: tuple[tuple[Fraction, ...], ...],
    touched: int,
    selecting: Fraction,
) -> list[Fraction]:
    """The noise that (ε, δ) buys for each process, in squared steps of 2^-12.

    Args:
        budget: ε and δ of one unit and epoch.
        needs: of each process the largest squared shift by one unit, and its share of μ².
        touched: the most draws of one process that a unit can shift.
        selecting: the part of δ that thresholds use.
    """
    epsilon, delta = budget
    delta -= selecting + sampling(epsilon, touched, len(needs))
    while epsilon > 0:
        mu2 = mu_of(epsilon, delta) ** 2
        found = [up(shift / (mu2 * share)) for shift, share, *_ in needs]
        costs = [spent(need, s2, touched) for need, s2 in zip(needs, found, strict=True)]
        pure, mu2 = sum(one for _, one in costs), sum(one for one, _ in costs)
        left, mu = delta - len(needs) * Fraction(touched, 2**129), root(mu2)
        first, second = gdp(budget[0] - pure, mu)
        if pure + epsilon_of(mu, left) <= budget[0] and first <= 5 * second:
            return found
        epsilon -= pure * Fraction(17, 16)
    raise ValueError("ε does not pay for noise on this grid")


def parts(row: int, hops: int, horizon: int) -> list[tuple[int, int, int]]:
    """Of the window that ends ``row`` hops into an epoch: epochs back, first hop less 1, last."""
    found, back = [], 0
    while (before := max(0, row + back * horizon - hops)) < horizon:
        found.append((back, before, min(row + back * horizon, horizon)))
        back += 1
    return found


def hopping(
    factors: Matrix, hops: int, variance: Fraction, delta: Fraction, unit: tuple[Fraction, int]
) -> list[int]:
    """Thresholds of windows by their place in the epoch: a unit is in H + n - 1 of them."""
    (budget, most), H, out = unit, factors.horizon, []
    epochs = 1 + -(-(hops - 1) // H)
    for row in range(1, H + 1):
        rows = [weights(factors, before, last) for _, before, last in parts(row, hops, H)]
        norm = root(sum((b * b for one in rows for b in one), Fraction(0)))
        norm1, kept = sum(abs(b) for one in rows for b in one), 1 - len(rows) * H / (24 * variance)
        worst = Fraction(0)
        for total in range(1, epochs * most + 1):
            split = [total // epochs + (n < total % epochs) for n in range(epochs)]
            beta = delta / (H + hops - 1) * sum(m * m for m in split) / budget
            far = root(variance) * norm * normal_quantile(beta * kept) + norm1 / 2
            worst = max(worst, total + far / 2**BITS + Fraction(len(rows), STEPS))
        out.append(ceil(worst * STEPS))
    return out


def weights(factors: Matrix, before: int, last: int) -> list[Fraction]:
    """What each draw of an epoch weighs in the sum of hops ``before`` + 1 … ``last``."""
    found = [Fraction(0)] * last
    for end, sign in ((last, 1), (before, -1)):
        row, common = factors.row(end) if end else ([], 1)
        for place, b in enumerate(row):
            found[place] += sign * Fraction(b, common)
    return found


def up(value: Fraction) -> Fraction:
    """Rounded up to 40 bits or one more, as the bits of numerator and denominator say."""
    scale = Fraction(2) ** (40 - value.numerator.bit_length() + value.denominator.bit_length())
    return ceil(value * scale) / scale


def thresholds(
    factors: Matrix,
    variance: Fraction,
    shares: list[Fraction],
    unit: tuple[Fraction, int],
    least: int,
) -> list[int]:
    """K(t) in 1/256 of a record: no key of one unit alone reaches it, but with probability δ.

    Args:
        shares: of δ, for each trigger.
        unit: Q and the most records of one unit in one key.
        least: distinct units that a key needs.
    """
    budget, most = unit
    out = []
    for t, beta in enumerate(shares, 1):
        alone = (
            m + factors.quantile(t, beta * m * m / budget, variance) for m in range(1, most + 1)
        )
        out.append(ceil((max(alone) + least - 1) * STEPS))
    return out

"""Public numbers of a histogram: noise variances and thresholds, from their rules.

Every number follows from the configuration alone. Rationals are exact; irrational numbers are
computed to a hundred digits and then rounded by the stated rule.
"""

from fractions import Fraction
from functools import lru_cache
from math import ceil

from .gaussian import epsilon_of, gdp, mu_of, normal_quantile, root
from .matrices import BITS, Matrix

STEPS = 256  # noise is rounded down to 1/256 of a record before it is used


def floored(total: int, common: int, bits: int = BITS) -> int:
    """Noise B·z, a fraction in steps of 2^-bits, rounded down to 1/STEPS.

    A number less than 2^-100 below a step is taken for that step: rows of B are no more exact.
    """
    unit = common << bits
    return (total * STEPS + (unit >> 100)) // unit


def limited(x: int) -> int:
    """The exact total of a micro-batch, limited to 64 bits."""
    return min(max(x, 1 - 2**63), 2**63 - 1)


def wrapped(x: int) -> int:
    """A noisy total whose exact part is known modulo 2^64."""
    return (x + 2**63) % 2**64 - 2**63


def held(x: int) -> int:
    """A released number, limited to ±2^62."""
    return min(max(x, -(2**62)), 2**62)


def sampling(epsilon: Fraction, touched: int, processes: int) -> Fraction:
    """The δ that inexact draws cost, each by 2^-110, in both neighbouring worlds."""
    return (1 + 3 ** ceil(epsilon)) * (2 * touched * processes * Fraction(1, 2**110))


def spent(
    need: tuple[Fraction, ...], variance: Fraction, touched: int
) -> tuple[Fraction, Fraction]:
    """μ² of one process, and the pure part of its cost: discrete noise is not quite Gaussian.

    A need with a third number moves together with another need, whose μ² covers both.
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
        needs: for each process, its largest squared shift by one unit, and its share of μ².
        touched: largest number of draws of one process that a unit can shift.
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
    """Parts of a window that ends ``row`` hops into an epoch: epochs back, first hop - 1, last."""
    found, back = [], 0
    while (before := max(0, row + back * horizon - hops)) < horizon:
        found.append((back, before, min(row + back * horizon, horizon)))
        back += 1
    return found


def hopping(
    factors: Matrix, hops: int, variance: Fraction, delta: Fraction, unit: tuple[Fraction, int]
) -> list[int]:
    """Thresholds of windows by their place in the epoch; a unit is in H + n - 1 windows."""
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
    """The weight of each draw of an epoch in the sum of hops ``before`` + 1 … ``last``."""
    found = [Fraction(0)] * last
    for end, sign in ((last, 1), (before, -1)):
        row, common = factors.row(end) if end else ([], 1)
        for place, b in enumerate(row):
            found[place] += sign * Fraction(b, common)
    return found


def up(value: Fraction) -> Fraction:
    """Round up to 40 or 41 bits; the bits of numerator and denominator decide which."""
    scale = Fraction(2) ** (40 - value.numerator.bit_length() + value.denominator.bit_length())
    return ceil(value * scale) / scale


def thresholds(
    factors: Matrix,
    variance: Fraction,
    shares: list[Fraction],
    unit: tuple[Fraction, int],
    least: int,
) -> list[int]:
    """K(t) in 1/256 of a record: a key of one unit alone reaches it with probability at most δ.

    Args:
        shares: share of δ for each trigger.
        unit: Q, and the largest number of records of one unit with one key.
        least: number of distinct units that a key needs.
    """
    budget, most = unit
    out = []
    for t, beta in enumerate(shares, 1):
        alone = (
            m + factors.quantile(t, beta * m * m / budget, variance) for m in range(1, most + 1)
        )
        out.append(ceil((max(alone) + least - 1) * STEPS))
    return out

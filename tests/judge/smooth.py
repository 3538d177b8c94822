"""PAK's threshold from smooth sensitivity, by definition: all pairs of values are compared.

The K-th largest value x_P is raised by κ·S/a·(z/Λ + G), where S is the largest of all
(x_j - x_i)·e^(-b(j-i-1)), i ≤ P ≤ j. Real numbers are decimals here. The product's bounds are
wider by 2^-41, but no threshold lies in between.
"""

import math
from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction

from .gaussian import DIGITS

SLACK, SPARE, LAMBDA = Fraction(1, 1 << 14), Fraction(1, 1 << 20), 1 << 49


def decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / value.denominator


def smooth_delta(epsilon: Fraction, delta: Fraction, bound: int) -> Fraction:
    """δ of one record: all records of a unit cost δ, or half of it if there are several."""
    share = delta * (1 - SPARE) / min(bound, 2)
    small = share / (bound * 3 ** math.ceil(epsilon))
    with localcontext(DIGITS):
        times = sum(decimal(n * epsilon / bound).exp() for n in range(bound))
    return share / Fraction(times) * (1 - SPARE) if small else Fraction(0)


def smooth_threshold(
    values: Sequence[int], thetas: Sequence[int], rank: int, factor: Fraction,
    private: tuple[Fraction, Fraction, Fraction], drawn: int,
) -> int:  # fmt: skip
    """The least public threshold that is not below the noisy quantile.

    Args:
        values: values of the warm-up, rounded up to thresholds, largest first.
        private: ε, δ, and the probability that the result is below the quantile.
        drawn: discrete Laplace draw, in units of 1/Λ.
    """
    epsilon, delta, beta = private
    row = [0] * max(0, rank - len(values)) + sorted(values)
    row = [0, *row, thetas[-1]]  # missing records are zeros, and more of them change nothing
    place = len(row) - 1 - rank
    low = {x: i for i, x in enumerate(row[: place + 1])}  # the last index of each value
    high = {x: len(row) - 1 - j for j, x in enumerate(row[: place - 1 : -1])}  # the first index
    with localcontext(DIGITS):
        a = epsilon * (1 - SLACK) / 2
        b = decimal(a) / (1 / decimal(delta * (1 - SLACK))).ln()
        offset = max((1 / decimal(2 * beta)).ln(), Decimal(0))
        kappa = 1 / (1 - (b.exp() - 1) * offset / decimal(a))
        near = b - Decimal(2) ** -40
        pairs = ((y - x) * (-near * (j - i - 1)).exp()
                 for x, i in low.items() for y, j in high.items() if i < j)  # fmt: skip
        spread = max(max(pairs) * (1 + Decimal(2) ** -42), Decimal(2) ** -20)
        noise = Decimal(drawn) / LAMBDA + offset
        target = decimal(factor) * (row[place] + kappa * spread / decimal(a) * noise)
    return next((theta for theta in thetas if theta >= target), thetas[-1])

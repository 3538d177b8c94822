"""The rank, the factor and the split of ε that PAK uses if no setting states them.

They have the least mean error over three shapes of tails. A shape gives the quantile that a share p
of the values exceeds: s·(offset + L + curve·L²), L = ln(1/p). The choice is public and has no
effect on the guarantee. It is computed to eighteen digits, as the rule states, because some choices
are equally good.
"""

from collections.abc import Iterator
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import NamedTuple

DIGITS = Context(prec=18, Emin=-(10**17), Emax=10**17)
TAILS = [Fraction(1, n) for n in (1000, 500, 300, 200, 100, 50, 20)]
SAFETY = [Fraction(n, 20) for n in (20, 18, 15)]
SPLITS = [Fraction(n, 10) for n in (3, 5, 7, 8, 9)]
RAISES = [Fraction(n, 10) for n in (7, 8, 9, 10, 11, 12, 14)]
DRAWS = [Decimal(n) for n in ("-2.30", "-0.92", "0", "0.92", "2.30")]
SHAPES = [(Decimal(0), Decimal(0)), (Decimal(2), Decimal(0)), (Decimal(0), Decimal("0.0625"))]
CANDIDATES, DOUBT = 200, 4

Level = tuple[Decimal, Decimal]  # L of the noisy quantile, and what noise adds to it in units of s


class Problem(NamedTuple):
    """Public facts that the choice depends on."""

    records: int  # of a window
    top: int  # B
    epsilon: Fraction  # of one record
    delta: Fraction  # of the smooth threshold
    scale: Fraction  # s
    smooth: bool
    published: bool  # whether the warm-up's sum is published
    noise: float  # of a late prefix sum, for a threshold of 1
    beta: Fraction


class Choice(NamedTuple):
    """The choice with the least predicted error."""

    tail: Fraction
    safety: Fraction
    factor: Fraction
    split: Fraction


def plain(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / value.denominator


@lru_cache(64)
def optimum(problem: Problem, records: int) -> Choice:
    """The best choice for a warm-up with so many records."""
    with localcontext(DIGITS):
        return min(candidates(problem, records), key=lambda pair: pair[0])[1]


def candidates(problem: Problem, records: int) -> Iterator[tuple[Decimal, Choice]]:
    """Every choice, with its error relative to the error of an ideal threshold."""
    rest, noise = problem.records - records, Decimal(problem.noise)
    ideal = max((Decimal(rest) / noise).ln(), Decimal(1))
    for split in SPLITS if problem.published else [Fraction(1)]:
        for tail, safety in product(TAILS, SAFETY):
            rank = int(safety * tail * records) + 1
            found = levels(problem, records, rank, split * problem.epsilon)
            for factor in factors(ideal, found[2][0]) if found else ():
                each = [
                    error(problem, (records, rest), split, factor, found, shape)
                    / (shape[0] + ideal + shape[1] * ideal * ideal)
                    for shape in SHAPES
                ]
                total = Decimal(sum(each))
                if not problem.smooth:  # noise may choose a threshold far above the data
                    exponent = plain(split * problem.epsilon) * (rank - 1) / 2
                    total += CANDIDATES * (-exponent).exp() / 2 * noise * problem.top
                yield total, Choice(tail, safety, factor, split)


def factors(ideal: Decimal, level: Decimal) -> set[Fraction]:
    """Factors near the one that balances noise and bias; the order of the set breaks ties."""
    middle = ideal / level if level > 0 else Decimal(1)
    near = {Fraction(int(20 * middle * plain(one)), 20) for one in RAISES}
    return {max(Fraction(1), min(one, Fraction(16))) for one in near}


def levels(problem: Problem, records: int, rank: int, epsilon: Fraction) -> list[Level]:
    """A level for each draw of the threshold; none if the rank is impossible."""
    if rank > records:
        return []
    if not problem.smooth:
        ranks = [rank - 2 * z / plain(epsilon) for z in DRAWS]
        return [((Decimal(records) / max(one, Decimal("0.5"))).ln(), Decimal(0)) for one in ranks]
    a = plain(epsilon) / 2
    b = a / (1 / plain(problem.delta)).ln()
    offset = (1 / (2 * plain(problem.beta))).ln()
    c = (b.exp() - 1) * offset / a
    if c > Decimal("0.9"):
        return []
    gap = DOUBT * problem.top / plain(problem.scale)
    far = gap * (-b * (rank - 1)).exp()
    for up in {min(rank - 1, int(part / b)) for part in (Decimal(1), Decimal("0.5"))}:
        down = max(0, int(1 / b) - up)
        spacing = (Decimal(rank + down) / max(rank - up, 1)).ln()
        far = max(far, spacing * (-b * (up + down - 1)).exp())
    spread = far / a / (1 - c)
    return [((Decimal(records) / rank).ln(), spread * (z + offset)) for z in DRAWS]


def error(
    problem: Problem, records: tuple[int, int], split: Fraction, factor: Fraction,
    found: list[Level], shape: tuple[Decimal, Decimal],
) -> Decimal:  # fmt: skip
    """Mean error over the draws of the threshold, in units of s."""
    (warm, rest), (offset, curve) = records, shape
    noise, clipped, total = Decimal(problem.noise), Decimal(rest), Decimal(0)
    if problem.published:
        noise += Decimal(2).sqrt() / plain((1 - split) * problem.epsilon)
        clipped += warm
    top = Decimal(problem.top) / plain(problem.scale)
    for level, added in found:
        value = (offset + level + curve * level * level) + added * (1 + 2 * curve * level)
        tau = min(plain(factor) * max(value, Decimal(0)), top)
        beyond = max(tau - offset, Decimal(0))
        if curve:
            beyond = ((1 + 4 * curve * beyond).sqrt() - 1) / (2 * curve)
        total += noise * tau + clipped * ((-beyond).exp() * (1 + 2 * curve * beyond))
    return total / len(found)

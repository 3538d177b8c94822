"""Choose PAK's public numbers before any data: m, p, λ, r and the split of ε.

The predicted error is that of the last prefix sum: ``noise·τ + n'·E[(v-τ)₊]``, plus the warm-up's
share of both. If only n, B, ε and δ are known, three shapes of tails stand in for the data, with a
public guess s of their scale: the (1-p)-quantile is s·g(ln(1/p)) with g(L) = L (exponential),
L + 2 (as for a sum of several exponentials) and L + L²/16 (heavier). The choice has the least mean
error over the three, each relative to its ideal threshold, so it does not extrapolate too far. This
affects accuracy only; no guarantee depends on it. It is computed in decimals, so that every machine
makes the same choice.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

from ...errors import ParameterError
from ..accounting import normal, tree_levels
from ..validate import at_least, positive

_TAILS = tuple(Fraction(1, n) for n in (1000, 500, 300, 200, 100, 50, 20))
_SAFETY = (Fraction(1), Fraction(9, 10), Fraction(3, 4))
_SPLITS = tuple(Fraction(n, 10) for n in (3, 5, 7, 8, 9))
_RAISES = tuple(Fraction(n, 10) for n in (7, 8, 9, 10, 11, 12, 14))
_WARMUPS = tuple(Fraction(1, n) for n in (200, 100, 50, 20, 10, 5, 3))
_DRAWS = tuple(map(Decimal, ("-2.30", "-0.92", "0", "0.92", "2.30")))  # Laplace: 5, 20, 50 … %
_DOUBT = 4  # s may be smaller than guessed by this factor, and B higher above the data
_CANDIDATES = 200  # approximate number of thresholds
_DIGITS = 18
_PI = Decimal("3.14159265358979324")


@dataclass(frozen=True)
class TailShape:
    """A tail: the (1-p)-quantile is s·g(L), g(L) = offset + L + curve·L², L = ln(1/p)."""

    offset: Decimal
    curve: Decimal

    def quantile(self, level: Decimal) -> Decimal:
        """g(L)."""
        return self.offset + level + self.curve * level * level

    def slope(self, level: Decimal) -> Decimal:
        """g'(L)."""
        return 1 + 2 * self.curve * level

    def excess(self, tau: Decimal) -> Decimal:
        """E[(v-τ)₊]/s, approximately: probability of exceeding τ times the slope there."""
        level = max(tau - self.offset, Decimal(0))
        if self.curve:
            level = ((1 + 4 * self.curve * level).sqrt() - 1) / (2 * self.curve)
        return (-level).exp() * self.slope(level)


_SHAPES = (
    TailShape(Decimal(0), Decimal(0)),
    TailShape(Decimal(2), Decimal(0)),
    TailShape(Decimal(0), Decimal(1) / 16),
)


@dataclass(frozen=True)
class Choice:
    """The optimiser's proposal."""

    records: int  # m, records of the warm-up
    tail: Fraction  # p
    safety: Fraction  # λ ≤ 1; the rank from the top is ⌊λpm⌋ + 1
    factor: Fraction  # r ≥ 1
    split: Fraction  # share of ε for the threshold; 1 where the warm-up's sum is withheld
    error: float  # predicted error of the last prefix sum, in grid steps

    @property
    def rank(self) -> int:
        """K, the rank from the top."""
        return int(self.safety * self.tail * self.records) + 1


@dataclass(frozen=True)
class ThresholdProblem:
    """Public knowledge about a stream."""

    records: int  # n, records of a window
    top: int  # B, in grid steps
    # epsilon, delta: of one record; only the smooth threshold uses ``delta``
    epsilon: Fraction
    delta: Fraction
    scale: Fraction  # s, the guessed scale of the tail, in grid steps
    smooth: bool = False  # whether the threshold comes from smooth sensitivity
    published: bool = True  # whether the warm-up's sum is released
    # noise of a late prefix sum for θ = 1; None: that of the binary tree
    unit_error: float | None = None
    beta: Fraction = Fraction(1, 10)  # see `SmoothQuantile`

    def __post_init__(self) -> None:
        at_least("records", self.records, 2)
        at_least("top", self.top, 1)
        positive("epsilon", self.epsilon)
        positive("scale", self.scale)
        positive("beta", self.beta)
        if self.smooth:
            positive("delta", self.delta)

    def noise(self, records: int) -> Decimal:
        """Noise of a late prefix sum of ``records`` steps for θ = 1."""
        if self.unit_error is not None:
            return Decimal(self.unit_error)
        levels = Decimal(tree_levels(records))
        return levels * levels.sqrt() / normal.decimal(self.epsilon)


def optimise(problem: ThresholdProblem, warmups: Sequence[int] = ()) -> Choice:
    """The choice of least predicted error.

    Args:
        warmups: numbers of warm-up records to choose from; if empty, shares of n.

    Raises:
        ParameterError: no choice satisfies the conditions of the smooth threshold.
    """
    return _optimum(problem, tuple(warmups))


@lru_cache(64)
def _optimum(problem: ThresholdProblem, warmups: tuple[int, ...]) -> Choice:
    """`optimise`, cached: a plan asks about the same pipeline again and again."""
    tried = warmups or [max(1, int(share * problem.records)) for share in _WARMUPS]
    with localcontext(normal.precision(_DIGITS)):
        best = min(_candidates(problem, tried), key=lambda pair: pair[0], default=None)
        if best is None:
            raise ParameterError("beta", problem.beta, "kappa exceeds its cap for every split")
        records, tail, safety, factor, split = best[1]
        scale = normal.decimal(problem.scale)
        rank = int(safety * tail * records) + 1
        levels = _levels(problem, records, rank, split * problem.epsilon)
        error = scale * _error(problem, records, split, factor, levels or [], _SHAPES[0])
    return Choice(records, tail, safety, factor, split, float(error))


def predicted(
    problem: ThresholdProblem, records: int, tail: Fraction, safety: Fraction, factor: Fraction,
    split: Fraction,
) -> float | None:  # fmt: skip
    """Expected absolute error of the last prefix sum, in grid steps, for exponential tails.

    ``E|N + b| ≈ √(2σ²/π + b²)``, exact if either noise or bias is zero. Unlike `Choice.error` it
    does not add standard deviations, so it is comparable with `fixed`. None where the rank exceeds
    the records of the warm-up, or the smooth threshold has no noise scale.
    """
    with localcontext(normal.precision(_DIGITS)):
        rank = int(safety * tail * records) + 1
        levels = _levels(problem, records, rank, split * problem.epsilon)
        if levels is None:
            return None
        rest = problem.records - records
        square, clipped = _square(problem, rest, 1 - split), Decimal(rest)
        clipped += records if problem.published else 0
        errors = [
            (square * tau * tau + (clipped * _SHAPES[0].excess(tau)) ** 2).sqrt()
            for tau in _taus(problem, factor, levels, _SHAPES[0])
        ]
        return float(normal.decimal(problem.scale) * sum(errors) / len(errors))


def error_of(problem: ThresholdProblem, records: int, share: Fraction, tau: Decimal) -> float:
    """`predicted` for a threshold in units of s; ``share`` of ε goes to the warm-up's sum."""
    with localcontext(normal.precision(_DIGITS)):
        rest = problem.records - records
        clipped = Decimal(problem.records if problem.published else rest)
        square = _square(problem, rest, share) * tau * tau
        bias = clipped * _SHAPES[0].excess(tau)
        return float(normal.decimal(problem.scale) * (square + bias * bias).sqrt())


def fixed(problem: ThresholdProblem) -> float:
    """`predicted` for B itself; all of ε goes to the warm-up's sum."""
    with localcontext(normal.precision(_DIGITS)):
        return float(_square(problem, problem.records, Fraction(1)).sqrt() * problem.top)


def _square(problem: ThresholdProblem, steps: int, share: Fraction) -> Decimal:
    """2σ²/π of a late prefix sum for θ = 1; ``share`` of ε goes to the warm-up's sum."""
    variance = problem.noise(steps) ** 2
    if problem.published:
        variance += 2 / normal.decimal(share * problem.epsilon) ** 2
    return variance * 2 / _PI


def _astray(problem: ThresholdProblem, rank: int, split: Fraction) -> Decimal:
    """Probability that the noisy maximum ends far above the data, where all scores are -(K-1)."""
    if problem.smooth:
        return Decimal(0)
    exponent = normal.decimal(split * problem.epsilon) * (rank - 1) / 2
    return _CANDIDATES * (-exponent).exp() / 2


_Level = tuple[Decimal, Decimal]
_Numbers = tuple[int, Fraction, Fraction, Fraction, Fraction]


def _candidates(
    problem: ThresholdProblem, warmups: Sequence[int]
) -> Iterator[tuple[Decimal, _Numbers]]:
    splits = _SPLITS if problem.published else (Fraction(1),)
    for records, split in itertools.product(warmups, splits):
        rest = problem.records - records
        if rest < 1:
            continue
        ideal = max((Decimal(rest) / problem.noise(rest)).ln(), Decimal(1))
        for tail, safety in itertools.product(_TAILS, _SAFETY):
            rank = int(safety * tail * records) + 1
            levels = _levels(problem, records, rank, split * problem.epsilon)
            if levels is None:
                continue
            for factor in _factors(ideal, levels[len(levels) // 2][0]):
                error = sum(
                    _error(problem, records, split, factor, levels, shape) / shape.quantile(ideal)
                    for shape in _SHAPES
                )
                error += _astray(problem, rank, split) * problem.noise(rest) * problem.top
                yield Decimal(error), (records, tail, safety, factor, split)


def _factors(ideal: Decimal, level: Decimal) -> set[Fraction]:
    """Factors r around the one that balances noise and bias, in twentieths, at least 1."""
    middle = ideal / level if level > 0 else Decimal(1)
    rounded = {Fraction(int(20 * middle * normal.decimal(raised)), 20) for raised in _RAISES}
    return {max(Fraction(1), min(factor, Fraction(16))) for factor in rounded}


def _error(
    problem: ThresholdProblem,
    records: int,
    split: Fraction,
    factor: Fraction,
    levels: Sequence[_Level],
    shape: TailShape,
) -> Decimal:
    """Mean error over the draws of the threshold, in units of s."""
    rest = problem.records - records
    noise, clipped = problem.noise(rest), Decimal(rest)
    if problem.published:
        noise += Decimal(2).sqrt() / normal.decimal((1 - split) * problem.epsilon)
        clipped += records
    total = Decimal(0)
    for tau in _taus(problem, factor, levels, shape):
        total += noise * tau + clipped * shape.excess(tau)
    return total / len(levels)


def _taus(
    problem: ThresholdProblem, factor: Fraction, levels: Sequence[_Level], shape: TailShape
) -> Iterator[Decimal]:
    """Thresholds in units of s, one per draw."""
    top = Decimal(problem.top) / normal.decimal(problem.scale)
    for level, added in levels:
        value = shape.quantile(level) + added * shape.slope(level)
        yield min(normal.decimal(factor) * max(value, Decimal(0)), top)


def _levels(
    problem: ThresholdProblem, records: int, rank: int, epsilon: Fraction
) -> list[_Level] | None:
    """ln(1/p) of the noisy quantile and the addition to it, for three draws; None if impossible.

    The addition is in units of s at slope 1 of the tail.
    """
    if rank > records:
        return None
    level = (Decimal(records) / rank).ln()
    if not problem.smooth:
        ranks = [rank - 2 * z / normal.decimal(epsilon) for z in _DRAWS]
        # Noise can lower a rank to 0 or below, where ln(1/p) is undefined: use half a record.
        shifted = [(Decimal(records) / max(r, Decimal("0.5"))).ln() for r in ranks]
        return [(one, Decimal(0)) for one in shifted]
    a = normal.decimal(epsilon) / 2
    b = a / (1 / normal.decimal(problem.delta)).ln()
    offset = (1 / (2 * normal.decimal(problem.beta))).ln()
    c = (b.exp() - 1) * offset / a
    if c > Decimal("0.9"):
        return None
    gap = _DOUBT * problem.top / normal.decimal(problem.scale)
    spread = _smooth_scale(rank, b, gap) / a / (1 - c)
    return [(level, spread * (z + offset)) for z in _DRAWS]


def _smooth_scale(rank: int, b: Decimal, gap: Decimal) -> Decimal:
    """S/s of exponential tails: spacings around the rank, or the distance to B."""
    best = gap * (-b * (rank - 1)).exp()
    for up in {min(rank - 1, int(share / b)) for share in (Decimal(1), Decimal("0.5"))}:
        down = max(0, int(1 / b) - up)
        spacing = (Decimal(rank + down) / max(rank - up, 1)).ln()
        best = max(best, spacing * (-b * (up + down - 1)).exp())
    return best

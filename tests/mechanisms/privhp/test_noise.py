from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms import accounting
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.parts.sketch import Sketch
from hushstream.mechanisms.privhp.layout import SumLayout
from hushstream.mechanisms.privhp.noise import MatrixNoise, TreeNoise
from scipy.optimize import linprog
from scipy.stats import norm

from ...oracles.privhp import keyed

SHAPE = SumLayout(1, 4, 2, 4, Sketch(width=8, rows=3))
SMALL = SumLayout(1, 1, 0, 1, Sketch(width=2))


class Labels:
    """Zero noise that records which draws it was asked for."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, bytes, int]] = set()

    def laplace(
        self, purpose: str, key: Keys, index: np.ndarray, scale: Fraction, first: np.ndarray
    ) -> np.ndarray:
        self.seen |= {(purpose, name, i) for name in key for i in index.tolist()}
        return np.zeros((len(key), len(index)), np.int64)

    gauss = laplace

    def bits(self, purpose: str, key: Keys, index: np.ndarray, first: np.ndarray) -> np.ndarray:
        raise AssertionError("not needed")


def labels(counter: TreeNoise, t: int) -> set[tuple[str, bytes, int]]:
    noise = Labels()
    counter.draw(noise, t)
    return noise.seen


def loss(counter: TreeNoise, level: int) -> Fraction:
    """Worst privacy loss of one record in one sum of a level, from the draws alone.

    Whatever is published is a function of S_t + (sum of the draws of t's labels), t = 1 … T. A
    record at trigger τ adds a step; the draws must be shifted by some x with M x = step, and
    the cheapest such shift costs |x|_1 / scale.
    """
    every = sorted({label for t in range(1, counter.horizon + 1) for label in labels(counter, t)})
    mine = [label for label in every if label[1][0] == level and label[2] == 0]
    matrix = np.array(
        [[label in labels(counter, t) for label in mine] for t in range(1, counter.horizon + 1)],
        float,
    )
    worst = 0.0
    for tau in range(counter.horizon):
        step = (np.arange(counter.horizon) >= tau).astype(float)
        both = np.hstack([matrix, -matrix])
        found = linprog(np.ones(both.shape[1]), A_eq=both, b_eq=step)
        assert found.status == 0
        worst = max(worst, found.fun)
    return Fraction(round(worst)) / counter.scales[level]


@pytest.mark.parametrize("horizon", [1, 2, 3, 4, 7, 8])
def test_loss_over_all_triggers_is_at_most_epsilon(horizon: int) -> None:
    counter = TreeNoise.calibrated(SMALL, horizon, 1, Fraction(1))
    total = loss(counter, 0) + loss(counter, 1)
    assert total <= 1
    assert total > Fraction(9, 10), "more than a tenth of epsilon is wasted"
    assert sum(cost.epsilon for cost in counter.costs()) <= 1


@pytest.mark.parametrize("horizon", [2, 4, 8])
def test_audit_catches_log2_levels(horizon: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With log2 T instead of ⌊log2 T⌋+1 levels the first record loses (1 + 1/log2 T)·ε."""
    monkeypatch.setattr(accounting, "tree_levels", lambda t: max(1, round(math.log2(t))))
    counter = TreeNoise.calibrated(SMALL, horizon, 1, Fraction(1))
    total = loss(counter, 0) + loss(counter, 1)
    assert total > 1
    assert float(total) == pytest.approx(1 + 1 / math.log2(horizon), abs=1e-4)


def test_triggers_share_the_draws_of_the_dyadic_tree() -> None:
    counter = TreeNoise.calibrated(SMALL, 8, 1, Fraction(1))
    sums = counter.shape.sums
    for t in range(1, 9):
        assert len(labels(counter, t)) == t.bit_count() * sums, "some sum has no noise"
    for first, second, shared in ((3, 2, 1), (6, 4, 1), (7, 4, 1), (8, 7, 0), (7, 6, 2)):
        assert len(labels(counter, first) & labels(counter, second)) == shared * sums


def test_scales_by_hand() -> None:
    """The scale covers j = 3 rows, H(8) = 4 nodes and 2 records per unit."""
    counter = TreeNoise.calibrated(SHAPE, 8, 2, Fraction(1))
    for level, cost in enumerate(counter.costs()):
        share = cost.epsilon
        touched = 1 if level <= 2 else 3
        assert counter.scales[level] == touched * 4 * 2 / share
    variance = counter.variance(7)
    for level, scale in enumerate(counter.scales):
        a = math.exp(-1 / float(scale))
        assert variance[level] == pytest.approx(3 * 2 * a / (1 - a) ** 2, rel=1e-9)


def distance(draws: np.ndarray, scale: float) -> float:
    """Kolmogorov's distance to the discrete Laplace distribution."""
    values, counts = np.unique(draws, return_counts=True)
    a = math.exp(-1 / scale)
    tail = a ** np.abs(values) / (1 + a)
    model = np.where(values >= 0, 1 - a * tail, tail)
    return float(np.abs(np.cumsum(counts) / len(draws) - model).max())


@pytest.mark.spread(3)
@pytest.mark.parametrize("level", range(5))
def test_noise_of_each_level_has_its_scale(level: int) -> None:
    """The test accepts σ and rejects ⅔σ and 1.5σ, at triggers 2^h, which use one draw per sum."""
    counter = TreeNoise.calibrated(SHAPE, 1 << 20, 1, Fraction(4))
    draws = np.concatenate([
        SHAPE.part(counter.draw(keyed(window), 1 << height), level)
        for window in range(120)
        for height in range(0, 21, 1 + (level > 0) * 2)
    ])  # fmt: skip
    assert len(draws) >= 700
    scale, critical = float(counter.scales[level]), 1.63 / math.sqrt(len(draws))
    assert distance(draws, scale) < critical
    assert distance(draws, scale * 2 / 3) > critical
    assert distance(draws, scale * 3 / 2) > critical


def matrix_noise(horizon: int = 6, bound: int = 2, epsilon: int = 2) -> MatrixNoise:
    setting = Setting(Fraction(epsilon), Fraction(1, 10**6), horizon)
    return MatrixNoise.calibrated(SHAPE, setting, bound, "auto")


@pytest.mark.thorough
def test_gaussian_noise_of_each_level_has_its_scale() -> None:
    counter = matrix_noise()
    draws = np.stack([counter.draw(keyed(window), 4) for window in range(600)])
    for level in range(5):
        begin, end = SHAPE.offsets[level : level + 2]
        mine = np.sort(draws[:, begin:end].reshape(-1) / math.sqrt(counter.variance(4)[level]))
        critical = 1.63 / math.sqrt(len(mine)) + 0.01  # rounding to whole records
        place = np.arange(1, len(mine) + 1) / len(mine)
        gap = [np.abs(place - norm.cdf(mine * factor)).max() for factor in (1, 1.5, 2 / 3)]
        assert gap[0] < critical < min(gap[1:])


@pytest.mark.parametrize("horizon", [1, 6, 40])
def test_gaussian_cost_fits_into_the_budget(horizon: int) -> None:
    counter = matrix_noise(horizon)
    delta = Fraction(1, 10**6)
    assert accounting.total(counter.costs(), delta)[0] <= 2
    assert accounting.total(counter.costs(), delta)[0] > Fraction(19, 10)
    joint = accounting.add(counter.costs())
    factor = counter.processes[0].factor
    per_level = [
        (1 if level <= 2 else 3) * 4 * float(factor.sensitivity2) * 4**factor.bits
        / float(process.variance)
        for level, process in enumerate(counter.processes)
    ]  # fmt: skip
    assert float(joint.mu2) == pytest.approx(sum(per_level))


def test_noise_of_untouched_sums_is_there() -> None:
    table = TreeNoise.calibrated(SHAPE, 1, 1, Fraction(1)).draw(keyed(), 1)
    assert len(table) == SHAPE.sums
    assert (table != 0).mean() > 0.8


def test_bad_parameters_are_refused() -> None:
    scales = (Fraction(1),) * 5
    TreeNoise(SHAPE, 1, 1, scales)
    for wrong in (
        (scales[:4], 1, 1),
        (scales, 0, 1),
        (scales, 1, 0),
        ((*scales[:4], Fraction(0)), 1, 1),
    ):
        with pytest.raises(ParameterError):
            TreeNoise(SHAPE, wrong[1], wrong[2], wrong[0])

"""Two-neighbour audits: the optimal attacker against the real noise, and published flaws put back.

Every audit draws noise under fixed labels, so it is deterministic; bounds hold at 1 - 10⁻⁶ per
audit (Clopper and Pearson, with a correction for the thresholds that were tried).
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hushstream.mechanisms import accounting
from hushstream.mechanisms.parts.sketch import Sketch
from hushstream.mechanisms.privhp.layout import SumLayout
from hushstream.mechanisms.privhp.noise import TreeNoise
from hushstream.mechanisms.privhp.tree import Pruning, Reading, grow
from scipy.stats import beta

from ..oracles.privhp import keyed

CONFIDENCE = 1e-4


def least_loss(first: np.ndarray, second: np.ndarray) -> float:
    """A lower bound of ε from a statistic under both neighbours, for both directions."""
    best = 0.0
    tried = np.unique(np.quantile(np.concatenate([first, second]), np.linspace(0.02, 0.98, 25)))
    for level in (np.greater_equal, np.less):
        for bar in tried:
            for one, other in ((first, second), (second, first)):
                hits, misses = int(level(one, bar).sum()), int(level(other, bar).sum())
                error = CONFIDENCE / (4 * len(tried))
                low = beta.ppf(error, hits, len(one) - hits + 1) if hits else 0.0
                high = beta.ppf(1 - error, misses + 1, len(other) - misses)
                if low > 0:
                    best = max(best, math.log(low / min(1.0, high)))
    return best


LEVELS = 12
SHAPE = SumLayout(1, LEVELS, LEVELS, 1, Sketch(width=4))
EPSILON = Fraction(LEVELS + 1)  # one for each level


def attack(counter: TreeNoise, change: list[int]) -> float:
    """The likelihood-ratio attack on one sum of the last level, at all triggers.

    The sums of a level are independent and alike, so each is one trial. ``change`` (T,) is how
    its prefix sums differ between neighbours; the level may lose ε / (number of levels) = 1.
    """
    scale, step = float(counter.scales[-1]), np.array(change)[:, None]

    def statistic(window: int, shift: int) -> np.ndarray:
        noise, triggers = keyed(window, "audit"), range(1, counter.horizon + 1)
        draws = [counter.shape.part(counter.draw(noise, t), LEVELS) for t in triggers]
        seen = np.stack(draws) + shift * step
        return ((np.abs(seen) - np.abs(seen - step)) / scale).sum(axis=0)

    first = np.concatenate([statistic(window, 1) for window in range(4)])
    second = np.concatenate([statistic(window, 0) for window in range(4, 8)])
    return least_loss(first, second)


ONE = [1]
BOTH = [1, 1]  # a record of the first of two triggers
UNIT = [3, 2]  # one unit: three records, then one of them deleted


@pytest.mark.parametrize(("bound", "change"), [(1, ONE), (1, BOTH), (4, UNIT)], ids=str)
def test_the_best_attack_stays_below_epsilon(bound: int, change: list[int]) -> None:
    counter = TreeNoise.calibrated(SHAPE, len(change), bound, EPSILON)
    assert 0.3 < attack(counter, change) <= 1, "sound, and the attack is not blind"


def test_catches_log2_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounting, "tree_levels", lambda t: max(1, round(math.log2(t))))
    assert attack(TreeNoise.calibrated(SHAPE, 2, 1, EPSILON), BOTH) > 1


def test_catches_a_forgotten_contribution_bound() -> None:
    assert attack(TreeNoise.calibrated(SHAPE, 2, 1, EPSILON), UNIT) > 1


def test_catches_a_share_of_the_budget_that_is_spent_twice() -> None:
    assert attack(TreeNoise.calibrated(SHAPE, 1, 1, 2 * EPSILON), ONE) > 1


TRIALS = 500


def steps(shape: SumLayout, horizon: int, events: list[tuple[int, int, int]]) -> np.ndarray:
    """(T, cells) prefix sums of (trigger, finest code, sign)."""
    out = np.zeros((horizon, shape.sums), np.int64)
    for t, code, sign in events:
        out[t - 1 :] += shape.sum_leaves(np.array([code], np.uint64), np.array([sign]))
    return out


LATE = SumLayout(1, 3, 1, 2, Sketch(width=64))
CELL = 13  # the record of trigger 2 lies here
BAR = 6


def refined(counter: TreeNoise, arrives: bool, promote: bool, window: int) -> float:
    """Whether the level-1 node above `CELL` has been refined after trigger 2, which sees a record.

    ``promote``: as published for continual release, a node is promoted when a record arrives
    below it and its noisy count exceeds the bar. Otherwise the tree is grown from all sums.
    """
    events = [(1, CELL, 1)] * 6 + ([(2, CELL, 1)] if arrives else [])
    table = steps(counter.shape, 2, events)[1] + counter.draw(keyed(window, "promotion"), 2)
    node = CELL >> 2
    if promote:
        return float(arrives and counter.shape.part(table, 1)[node - 2] >= BAR)
    pruning = Pruning("threshold", 2, (BAR,) * 4)
    tree = grow(counter.shape, table, pruning, Reading("joint", counter.variance(2)))
    return float(not tree.leaf[tree.code == node][0])


@pytest.mark.spread(2)
@pytest.mark.parametrize("promote", [True, False])
def test_catches_promotion_that_waits_for_a_record(promote: bool) -> None:
    counter = TreeNoise.calibrated(LATE, 2, 1, Fraction(2))
    with_it = np.array([refined(counter, True, promote, i) for i in range(TRIALS)])
    without = np.array([refined(counter, False, promote, i) for i in range(TRIALS, 2 * TRIALS)])
    assert 0.2 < with_it.mean() < 0.95
    assert (least_loss(with_it, without) > 2) == promote

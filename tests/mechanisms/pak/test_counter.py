"""Counters: scales, levels, variances; and the published number of levels caught."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hushstream.mechanisms.noise import STEADY, KeyedNoise, zero
from hushstream.mechanisms.pak.counter import (
    HierarchyPrefix,
    MatrixPrefix,
    PrefixCounter,
    TreePrefix,
)
from hushstream.mechanisms.parts.trees.hierarchy import Chunks, laplace_variance

from ...oracles.pak_views import (
    average_weights,
    counter_variance,
    decayed_weights,
    sliding_weights,
    view,
)

HORIZON = 20
COUNTERS: list[PrefixCounter] = [
    TreePrefix(HORIZON, Fraction(1)),
    HierarchyPrefix(Chunks(4, 3, Fraction(1))),
    MatrixPrefix("honaker", HORIZON, Fraction(40 << 24)),
    MatrixPrefix("terminal", HORIZON, Fraction(40 << 24)),
]


def keyed(window: str) -> KeyedNoise:
    return KeyedNoise(
        b"k" * 32,
        charge=b"c" * 32,
        mechanism="pak",
        config=b"",
        pipeline="p",
        window=window,
        nonces=STEADY,
    )


@pytest.mark.parametrize("horizon", [1, 2, 7, 8, 100, 1024])
def test_a_step_pays_epsilon_over_its_nodes(horizon: int) -> None:
    """A step touches at most H(T) nodes, step 1 all of them; ⌈log2 T⌉ levels would not pay."""
    counter = TreePrefix(horizon, Fraction(1, 2))
    touched: dict[int, set[tuple[int, int]]] = {}
    for end in range(1, horizon + 1):
        for level, index in counter.nodes(end):
            for step in range(index << level, (index + 1) << level):
                touched.setdefault(step, set()).add((level, index))
    loss = [len(nodes) * 7 / counter.scale(7) for nodes in touched.values()]
    assert max(loss) == Fraction(1, 2)
    assert loss[0] == max(loss)
    if horizon & (horizon - 1) == 0 and horizon > 1:
        assert len(touched[0]) / math.log2(horizon) > 1  # the published scale overspends


def test_variances_of_the_tree() -> None:
    counter = TreePrefix(8, Fraction(1))
    one = laplace_variance(Fraction(5 * 4))
    assert [counter.variance(5, 0, t) / one for t in range(1, 9)] == [1, 1, 2, 1, 2, 2, 3, 1]
    # Cov(S_3, S_2) = Cov(S_6, S_4) = Cov(S_7, S_4) = v, Cov(S_8, S_7) = 0.
    for i, j, shared in ((2, 3, 1), (4, 6, 1), (4, 7, 1), (7, 8, 0)):
        both = counter.variance(5, 0, i) + counter.variance(5, 0, j) - counter.variance(5, i, j)
        assert both / 2 / one == pytest.approx(shared)
    assert TreePrefix(1, Fraction(1)).variance(5, 0, 1) > 0


@pytest.mark.spread(4)
@pytest.mark.parametrize("counter", COUNTERS, ids=["tree", "hierarchy", "honaker", "terminal"])
def test_stated_variances_are_the_measured_ones(counter: PrefixCounter) -> None:
    """For prefixes, ranges and views, the test accepts σ and rejects ⅔σ and 1.5σ."""
    ends = np.arange(1, HORIZON + 1)
    drawn = np.array([counter.noise(keyed(str(i)), 6, ends) for i in range(400)], float)
    drawn /= counter.steps
    views = [{7: 1.0}, sliding_weights(11, 4), average_weights(20, 8)]
    views += [decayed_weights(9, Fraction(1, 2)), sliding_weights(3, 5)]
    for weights in views:
        measured = np.mean([view(row, weights) ** 2 for row in drawn])
        ratio = measured / counter_variance(counter, 6, weights)
        assert 0.75 < ratio < 1.32
        assert not 0.75 < ratio * 9 / 4 < 1.32 and not 0.75 < ratio * 4 / 9 < 1.32


@pytest.mark.parametrize("counter", COUNTERS, ids=["tree", "hierarchy", "honaker", "terminal"])
def test_noise_depends_on_labels_alone(counter: PrefixCounter) -> None:
    ends = np.array([3, 9, 20])
    together = counter.noise(keyed("a"), 11, ends)
    apart = [counter.noise(keyed("a"), 11, ends[i : i + 1])[0] for i in (2, 0, 1)]
    assert together == [apart[1], apart[2], apart[0]]
    assert together != counter.noise(keyed("b"), 11, ends)
    assert not any(counter.noise(zero, 11, ends)) and not any(counter.noise(keyed("a"), 0, ends))


def test_views_of_known_sums() -> None:
    values = np.array([4.0, 1.0, 7.0, 2.0, 5.0])
    prefix = np.cumsum(values)
    assert view(prefix, sliding_weights(5, 3)) == 14
    assert view(prefix, sliding_weights(2, 3)) == 5
    assert view(prefix, average_weights(5, 2)) == 3.5
    assert view(prefix, average_weights(1, 2)) == 4
    expected = sum(v * 0.5 ** (5 - i) for i, v in enumerate(values, 1))
    assert view(prefix, decayed_weights(5, Fraction(1, 2))) == pytest.approx(expected)

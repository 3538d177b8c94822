"""Online consistency is offline consistency, exactly; variances against linear algebra."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hushstream.errors import ContractError
from hushstream.mechanisms.parts.trees.consistency import (
    covariance_weights,
    forest,
    repunits,
    span_variance,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from ....oracles.consistency import offline

SHAPES = st.sampled_from([(2, 1), (2, 2), (2, 4), (3, 3), (4, 2), (5, 2), (16, 1), (16, 2)])


def tree(seed: int, fanout: int, levels: int, size: int = 1000) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [
        generator.integers(-size, size + 1, fanout ** (levels - level)) for level in range(levels)
    ]


@settings(derandomize=True, deadline=None)
@given(SHAPES, st.integers(0, 10**6), st.sampled_from([1, 1000, 1 << 58]))
def test_online_equals_offline_exactly(shape: tuple[int, int], seed: int, size: int) -> None:
    fanout, levels = shape
    noise = tree(seed, fanout, levels, size)
    ready = forest(noise, fanout)
    prefix = [ready.prefix(end) for end in range(fanout**levels + 1)]
    online = [after - before for before, after in itertools.pairwise(prefix)]
    assert online == offline([level.tolist() for level in noise], fanout)[0]


@settings(derandomize=True, deadline=None)
@given(SHAPES, st.integers(0, 10**6))
def test_truth_plus_consistent_noise_is_the_consistent_noisy_tree(
    shape: tuple[int, int], seed: int
) -> None:
    fanout, levels = shape
    noise = tree(seed, fanout, levels)
    truth = np.random.default_rng(seed + 1).integers(0, 50, fanout**levels)
    sums = [truth.reshape(-1, fanout**level).sum(axis=1) for level in range(levels)]
    noisy = [(a + b).tolist() for a, b in zip(sums, noise, strict=True)]
    separate = offline([level.tolist() for level in noise], fanout)
    for level, values in enumerate(offline(noisy, fanout)):
        assert values == [z + int(x) for z, x in zip(separate[level], sums[level], strict=True)]
    for low, high in itertools.pairwise(separate):
        parts = [sum(low[i * fanout : (i + 1) * fanout]) for i in range(len(high))]
        assert parts == high


def test_offline_is_least_squares() -> None:
    for fanout, levels in ((2, 3), (3, 2), (4, 2)):
        noise = tree(1, fanout, levels)
        n = fanout**levels
        rows = [np.kron(np.eye(n // fanout**i), np.ones((1, fanout**i))) for i in range(levels)]
        solved = np.linalg.lstsq(np.concatenate(rows), np.concatenate(noise), rcond=None)[0]
        exact = [float(x) for x in offline([level.tolist() for level in noise], fanout)[0]]
        np.testing.assert_allclose(exact, solved, atol=1e-8)


@pytest.mark.parametrize(
    "fanout,levels,variance",
    [(2, 2, "2/3"), (2, 3, "13/21"), (2, 4, "64/105"), (4, 2, "4/5"), (16, 2, "16/17")],
)
def test_variance_of_a_consistent_leaf(fanout: int, levels: int, variance: str) -> None:
    assert sum(covariance_weights(fanout, levels)) == Fraction(variance)
    assert span_variance(fanout, levels, 0, 1) == pytest.approx(float(Fraction(variance)))


@settings(derandomize=True, deadline=None)
@given(SHAPES, st.data())
def test_variances_of_ranges_and_weighted_blocks(
    shape: tuple[int, int], data: st.DataObject
) -> None:
    fanout, levels = shape
    n = fanout**levels
    rows = [np.kron(np.eye(n // fanout**i), np.ones((1, fanout**i))) for i in range(levels)]
    stacked = np.concatenate(rows)
    covariance = np.linalg.inv(stacked.T @ stacked)
    first, end = sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n))))
    extra = data.draw(st.dictionaries(st.integers(0, n - 1), st.floats(-2, 2), max_size=3))
    weights = np.zeros(n)
    weights[first:end] = 1
    for block, weight in extra.items():
        weights[block] += weight
    found = span_variance(fanout, levels, first, end, extra)
    assert found == pytest.approx(weights @ covariance @ weights, abs=1e-9)


def test_misshapen_trees_and_ends_are_refused() -> None:
    assert repunits(16, 3) == [1, 17, 273]
    with pytest.raises(ContractError, match="tree"):
        offline([[1, 2, 3], [1]], 2)
    with pytest.raises(ContractError, match="beyond"):
        forest(tree(0, 2, 2), 2).prefix(5)

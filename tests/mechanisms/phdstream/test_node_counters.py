"""Counters at nodes: exact sums without noise, the stated noise with it, and its cost.

Covers: mechanisms/phdstream/matrix_counter.py
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms import accounting
from hushstream.mechanisms.contract import Cost, Noise
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import STEADY, KeyedNoise, ZeroNoise
from hushstream.mechanisms.phdstream.matrix_counter import MatrixCounter
from hushstream.mechanisms.phdstream.node_counters import (
    BlockCounter,
    NodeCounter,
    Now,
    SimpleCounter,
    TreeCounter,
    laplace_variance,
)
from hushstream.mechanisms.phdstream.tree import NODE

HALF = Fraction(1, 2)
MATRIX = MatrixCounter.calibrated("auto", 40, 1, Fraction(1), Fraction(1, 10**6))
COUNTERS = [SimpleCounter(HALF), BlockCounter(HALF, 4), TreeCounter(HALF, 16), MATRIX]
every = pytest.mark.parametrize("counter", COUNTERS, ids=lambda c: c.name)


def keyed(name: str = "w") -> KeyedNoise:
    return KeyedNoise(
        b"n" * 32,
        charge=bytes(32),
        mechanism="m",
        config=b"",
        pipeline="",
        window=name,
        nonces=STEADY,
    )


def outputs(counter: NodeCounter, changes: np.ndarray, noise: Noise) -> np.ndarray:
    """(n, steps) outputs of n nodes that are active at every step."""
    nodes = np.arange(1, len(changes) + 1, dtype=np.uint64)
    cell, out = np.zeros(len(nodes), NODE), []
    for t, change in enumerate(changes.T, 1):
        cell = counter.step(cell, nodes, change, Now(t), noise)
        out.append(cell["out"].copy())
    return np.stack(out, axis=1)


@every
def test_without_noise_outputs_are_prefix_sums(counter: NodeCounter) -> None:
    changes = np.random.default_rng(0).integers(-9, 10, (7, 37))
    np.testing.assert_array_equal(outputs(counter, changes, ZeroNoise()), changes.cumsum(axis=1))


@every
def test_noise_does_not_depend_on_the_changes(counter: NodeCounter) -> None:
    changes = np.random.default_rng(1).integers(-9, 10, (50, 33))
    noisy = outputs(counter, changes, keyed()) - changes.cumsum(axis=1)
    np.testing.assert_array_equal(noisy, outputs(counter, changes * 0, keyed()))


@every
def test_nodes_may_be_active_at_different_triggers(counter: NodeCounter) -> None:
    """Selective counting: sum and noise depend only on a node's own activations."""
    nodes, cell = np.array([5, 9], np.uint64), np.zeros(2, NODE)
    for t in range(1, 13):
        rows = np.array([0, 1] if t % 3 else [0])
        ones = np.ones(len(rows), int)
        cell[rows] = counter.step(cell[rows], nodes[rows], ones, Now(t), ZeroNoise())
    assert cell["out"].tolist() == [12, 8] and cell["steps"].tolist() == [12, 8]


@every
@pytest.mark.parametrize("step", [1, 3, 4, 7, 16, 19])
def test_variance_is_the_declared_one(counter: NodeCounter, step: int) -> None:
    """Chi-square of 4,000 independent nodes: accepts σ, rejects ⅔σ and 1.5σ."""
    nodes = 4000
    noisy = outputs(counter, np.zeros((nodes, step), int), keyed())[:, -1]
    sigma = math.sqrt(counter.variance(np.array([step], np.int32))[0])
    scale = np.array([1, 2 / 3, 1.5]) * sigma
    ratio = np.sqrt((noisy.astype(float) ** 2).mean()) / scale
    # Kurtosis of one Laplace term is 6: the ratio's standard deviation is at most √(5/4n).
    accepted = np.abs(ratio - 1) < 4 * math.sqrt(5 / (4 * nodes)) + 0.01
    assert accepted.tolist() == [True, False, False]
    assert abs(noisy.mean()) < 4 * sigma / math.sqrt(nodes) + 0.01


def variances(counter: NodeCounter, *steps: int) -> list[float]:
    return counter.variance(np.array(steps, np.int32)).tolist()


def test_simple_variance_grows_with_every_activation() -> None:
    one = laplace_variance(2 / Fraction(1))
    assert variances(SimpleCounter(HALF), 0, 1, 5) == pytest.approx([0, one, 5 * one])


def test_block_variance_counts_whole_blocks_and_open_steps() -> None:
    one = laplace_variance(Fraction(4))
    assert variances(BlockCounter(HALF, 4), 3, 4, 7, 8) == pytest.approx(
        [3 * one, one, 4 * one, 2 * one]
    )


def test_tree_variance_is_the_popcount_and_trees_chain() -> None:
    one = laplace_variance(5 / HALF)
    expected = [1, 1, 2, 1, 4, 1, 2, 2, 5]
    tree = TreeCounter(HALF, 16)
    assert variances(tree, 1, 2, 3, 8, 15, 16, 17, 32, 39) == pytest.approx(
        [one * count for count in expected]
    )


@pytest.mark.parametrize(
    ("horizon", "levels"), [(1, 1), (2, 2), (7, 3), (8, 4), (100, 7), (1024, 11)]
)
def test_tree_levels_are_one_more_than_the_rounded_down_logarithm(
    horizon: int, levels: int
) -> None:
    assert TreeCounter(HALF, horizon).levels == levels


class Recorder(ZeroNoise):
    """Zero noise that remembers how often each label was drawn."""

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "labels", set())

    def laplace(
        self, purpose: str, key: Keys, index: np.ndarray, scale: Fraction, first: np.ndarray
    ) -> np.ndarray:
        for one in key:
            words = np.frombuffer(one, ">u8").tolist()
            self.labels.update((*words, int(i), scale) for i in index)
        return super().laplace(purpose, key, index, scale, first)


def epsilon_of_first_step(horizon: int, scale: Fraction) -> Fraction:
    """Pure loss of one change at step 1: the number of released sums that hold it, over scale."""
    recorder, counter = Recorder(), TreeCounter(HALF, horizon)
    outputs(counter, np.zeros((1, horizon), int), recorder)
    holding = {label for label in recorder.labels if label[4] == 0}
    return len(holding) / scale


@pytest.mark.parametrize("horizon", [1, 2, 3, 8, 20, 64])
def test_first_step_lies_in_one_sum_per_level(horizon: int) -> None:
    counter = TreeCounter(HALF, horizon)
    assert epsilon_of_first_step(horizon, counter.levels / HALF) <= HALF
    if horizon in (2, 8, 64):  # log2 T levels, as published, lose more than ε
        published = Fraction(horizon.bit_length() - 1)
        assert epsilon_of_first_step(horizon, published / HALF) > HALF


def test_tree_noise_of_neighbouring_steps_is_shared() -> None:
    """Cov(S3,S2) = v, Cov(S6,S4) = v, Cov(S7,S4) = v, Cov(S8,S7) = 0."""
    noisy = outputs(TreeCounter(HALF, 8), np.zeros((6000, 8), int), keyed()).astype(float)
    covariance = noisy.T @ noisy / len(noisy) / laplace_variance(4 / HALF)
    for (s, t), expected in {(3, 2): 1, (6, 4): 1, (7, 4): 1, (8, 7): 0, (7, 6): 2}.items():
        assert covariance[s - 1, t - 1] == pytest.approx(expected, abs=0.15)


@pytest.mark.parametrize("counter", COUNTERS[:3], ids=lambda c: c.name)
def test_pure_costs_add_up(counter: NodeCounter) -> None:
    assert counter.cost(3) == Cost(epsilon=3 * HALF)


@pytest.mark.parametrize("events", [1, 4])
def test_matrix_noise_is_calibrated_for_all_events_of_a_unit(events: int) -> None:
    delta = Fraction(1, 10**6)
    counter = MatrixCounter.calibrated("auto", 40, events, Fraction(1), delta)
    assert accounting.total([counter.cost(events)], delta)[0] <= 1
    assert accounting.total([counter.cost(events + 1)], delta)[0] > 1
    single = MATRIX.variance(np.array([7], np.int32))[0]
    ratio = counter.variance(np.array([7], np.int32))[0] / single
    assert ratio == pytest.approx(events**2, rel=0.05)


def test_bad_parameters_are_named() -> None:
    for name, make in (
        ("count epsilon", lambda: SimpleCounter(Fraction(0))),
        ("block size", lambda: BlockCounter(HALF, 0)),
        ("tree horizon", lambda: TreeCounter(HALF, 0)),
        ("factorization", lambda: MatrixCounter.calibrated("magic", 9, 1, HALF, HALF)),
    ):
        with pytest.raises(ParameterError) as error:
            make()
        assert error.value.name == name


class Asked(ZeroNoise):
    """Zero noise that keeps the labels of all draws."""

    def laplace(self, purpose, key, index, scale, first):
        self.labels.extend((purpose, name, i) for name in key for i in index.tolist())
        return super().laplace(purpose, key, index, scale, first)


def test_trees_of_one_node_share_no_draw() -> None:
    """Ten steps make five trees; each has a draw per step and one for the sum of two."""
    noise = Asked()
    object.__setattr__(noise, "labels", [])
    outputs(TreeCounter(HALF, 2), np.ones((1, 10), np.int64), noise)
    assert len(noise.labels) == len(set(noise.labels)) == 10

"""Counters: exactness without noise, variances, levels, chaining, sensitivity of the noisy sums.

Covers: mechanisms/validate.py
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hushstream.errors import ContractError, ParameterError
from hushstream.mechanisms import accounting
from hushstream.mechanisms.contract import I64, Noise
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import KeyedNoise, zero
from hushstream.mechanisms.parts.counters import (
    Block,
    Counter,
    Law,
    Matrix,
    Simple,
    State,
    Tree,
    labelled,
)
from hypothesis import given, settings
from hypothesis import strategies as st

LAPLACE = Law("laplace", Fraction(1, 2))
GAUSS = Law("gauss", Fraction(1, 400))
COUNTERS: list[Counter] = [
    Simple(LAPLACE),
    Simple(GAUSS),
    Block(LAPLACE, 4),
    Block(GAUSS, 1),
    Tree(LAPLACE, 8),
    Tree(GAUSS, 5),
    Tree(LAPLACE, 1),
    Matrix(GAUSS, 6),
    Matrix(GAUSS, 5, "honaker"),
]
NOISE = KeyedNoise(
    bytes(range(32)), charge=bytes(32), mechanism="m", config=b"", pipeline="p", window="w"
)


def keys_of(n: int) -> Keys:
    return Keys.of([b"k%d" % i for i in range(n)])


def run(counter: Counter, changes: I64, noise: Noise, keys: Keys | None = None) -> I64:
    """(n, steps) outputs for (n, steps) changes."""
    keys = keys or keys_of(len(changes))
    state, outputs = counter.init(len(changes)), []
    for column in changes.T:
        state, out = counter.step(state, keys, column, noise)
        outputs.append(out)
    return np.stack(outputs, axis=1)


@pytest.mark.parametrize("counter", COUNTERS, ids=str)
def test_without_noise_every_total_is_exact(counter: Counter) -> None:
    changes = np.random.default_rng(1).integers(-9, 10, (5, 27))
    np.testing.assert_array_equal(run(counter, changes, zero), changes.cumsum(axis=1))


@pytest.mark.parametrize("counter", COUNTERS, ids=str)
def test_noise_does_not_depend_on_data(counter: Counter) -> None:
    changes = np.random.default_rng(2).integers(0, 50, (4, 21))
    difference = run(counter, changes, NOISE) - run(counter, np.zeros_like(changes), NOISE)
    np.testing.assert_array_equal(difference, changes.cumsum(axis=1))


@pytest.mark.parametrize("counter", COUNTERS, ids=str)
def test_variance_is_the_stated_one(counter: Counter) -> None:
    counters = 4000
    outputs = run(counter, np.zeros((counters, 19), np.int64), NOISE)
    for t in range(1, 20):
        ratio = (outputs[:, t - 1].astype(float) ** 2).mean() / counter.variance(t)
        # 4000 draws of kurtosis at most 6: standard deviation of the ratio ≤ √(5/4000) = 0.036.
        assert abs(ratio - 1) < 0.16, (t, ratio)
        assert counter.variance(t) > 0


@pytest.mark.parametrize("counter", COUNTERS, ids=str)
def test_counters_may_be_stepped_in_any_company(counter: Counter) -> None:
    changes = np.random.default_rng(3).integers(0, 9, (6, 11))
    whole = run(counter, changes, NOISE)
    alone = run(counter, changes[2:3], NOISE, keys_of(6)[2:3])
    np.testing.assert_array_equal(alone[0], whole[2])
    early, late = counter.init(2), counter.init(2)
    keys = keys_of(2)
    for t in range(5):
        early, _ = counter.step(early, keys, changes[:2, t], NOISE)
    mixed = State(*(np.array([a[0], b[1]]) for a, b in zip(early, late, strict=True)))
    _, out = counter.step(mixed, keys, np.array([changes[0, 5], changes[1, 0]]), NOISE)
    assert out.tolist() == [whole[0, 5], whole[1, 0]]


@pytest.mark.parametrize("counter", COUNTERS, ids=str)
def test_stepping_is_pure(counter: Counter) -> None:
    keys, state = keys_of(3), counter.init(3)
    for part in state:
        part.flags.writeable = False
    first = counter.step(state, keys, np.arange(3), NOISE)
    again = counter.step(state, keys, np.arange(3), NOISE)
    np.testing.assert_array_equal(first[1], again[1])
    assert all((a == b).all() for a, b in zip(first[0], again[0], strict=True))
    empty, out = counter.step(counter.init(0), keys_of(0), np.zeros(0, np.int64), NOISE)
    assert len(out) == len(empty.step) == 0


@pytest.mark.parametrize(("horizon", "levels"), [(1, 1), (2, 2), (7, 3), (8, 4), (100, 7)])
def test_tree_pays_for_every_level(horizon: int, levels: int) -> None:
    tree = Tree(Law("laplace", Fraction(1)), horizon)
    assert tree.terms == levels
    assert tree.law.scale(tree.terms) == levels
    assert tree.variance(horizon) == horizon.bit_count() * tree.law.variance(levels)
    assert tree.cost().epsilon == 1


def test_tree_covariances() -> None:
    outputs = run(Tree(LAPLACE, 8), np.zeros((6000, 8), np.int64), NOISE).astype(float)
    found = outputs.T @ outputs / 6000 / LAPLACE.variance(4)
    for a, b, expected in ((3, 2, 1), (6, 4, 1), (7, 4, 1), (8, 7, 0)):
        assert found[a - 1, b - 1] == pytest.approx(expected, abs=0.15)


class Recorder:
    """Draws whose values identify their label, so that noisy sums can be told apart."""

    def __init__(self) -> None:
        self.labels: dict[tuple[str, bytes, int], int] = {}

    def laplace(self, purpose: str, key: Keys, index: I64, scale: Fraction) -> I64:
        base = len(self.labels)
        for k in key:
            self.labels.setdefault((purpose, k, 0), 1 << (base + len(self.labels)))
        return np.array([[self.labels[purpose, k, 0]] for k in key], np.int64).reshape(-1, 1)

    gauss = laplace

    def bits(self, purpose: str, key: Keys, index: I64) -> np.ndarray:
        raise AssertionError("counters draw no words")


def noisy_sums(counter: Counter, steps: int) -> np.ndarray:
    """(steps, labels) which noise terms each output holds."""
    recorder = Recorder()
    outputs = run(counter, np.zeros((1, steps), np.int64), recorder)[0]
    marks = sorted(recorder.labels.values())
    return np.array([[bool(int(out) & mark) for mark in marks] for out in outputs])


@pytest.mark.parametrize("horizon", [1, 2, 3, 4, 7, 8])
def test_no_step_enters_more_dyadic_sums_than_are_paid_for(horizon: int) -> None:
    """From the outputs alone: the released sums are recovered and the loss of each step counted."""
    counter = Tree(LAPLACE, horizon)
    held = noisy_sums(counter, horizon)
    # Each output is the sum of disjoint noisy sums; a new noise term at step t is the node that
    # ends there and covers what the other terms of t do not.
    cover: dict[int, set[int]] = {}
    for t in range(1, horizon + 1):
        terms = set(np.flatnonzero(held[t - 1]))
        fresh = [label for label in terms if label not in cover]
        assert len(fresh) <= 1
        old = set().union(*(cover[label] for label in terms if label in cover), set())
        for label in fresh:
            cover[label] = set(range(1, t + 1)) - old
    entered = [sum(step in node for node in cover.values()) for step in range(1, horizon + 1)]
    assert max(entered) <= counter.terms


def test_block_steps_enter_at_most_two_sums() -> None:
    held = noisy_sums(Block(LAPLACE, 3), 6)
    assert held.sum(axis=1).tolist() == [1, 2, 1, 2, 3, 2]


def test_scales_and_costs() -> None:
    assert Block(Law("laplace", Fraction(1)), 4).law.scale(2) == 2
    assert Law("laplace", Fraction(1, 2), 3).scale(4) == 24
    assert Law("gauss", Fraction(1, 2), 3).scale(4) == 72
    gauss = Tree(Law("gauss", Fraction(1, 10**6)), 8).cost()
    assert gauss.mu2 == Fraction(1, 10**6)
    assert gauss.epsilon < Fraction(1, 10**4)
    matrix = Matrix(GAUSS, 6)
    assert matrix.cost().mu2 == GAUSS.loss
    assert accounting.total([matrix.cost()], 1e-6)[0] < 1


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.binary(max_size=4), st.integers(0, 300)), unique=True, max_size=12))
def test_labels_are_injective(pairs: list[tuple[bytes, int]]) -> None:
    keys = Keys.of([key for key, _ in pairs])
    made = labelled(keys, np.array([number for _, number in pairs], np.int64))
    assert made.tolist() == [key + number.to_bytes(8, "big") for key, number in pairs]
    assert len(set(made.tolist())) == len(pairs)


def test_contract_is_enforced() -> None:
    for make in (
        lambda: Law("laplace", Fraction(0)),
        lambda: Law("normal", Fraction(1)),  # type: ignore[arg-type]
        lambda: Block(LAPLACE, 0),
        lambda: Tree(LAPLACE, 0),
        lambda: Matrix(LAPLACE, 4),
        lambda: Simple(LAPLACE).variance(-1),
    ):
        with pytest.raises(ParameterError):
            make()
    for counter in COUNTERS:
        with pytest.raises(ContractError):
            counter.step(counter.init(2), keys_of(3), np.zeros(3, np.int64), NOISE)

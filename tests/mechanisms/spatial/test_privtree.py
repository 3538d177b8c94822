"""Private splitting: its constants, its exact probabilities and its guarantee by enumeration."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.noise import STEADY, KeyedNoise
from hushstream.mechanisms.spatial.privtree import STEPS, Selection
from hypothesis import given, settings
from hypothesis import strategies as st

from ...oracles.privtree import probability

QUARTER = Fraction(1, 4)


@pytest.mark.parametrize("bits", [1, 2, 3])
@pytest.mark.parametrize("epsilon", [Fraction(1, 10), QUARTER, Fraction(1)])
def test_constants(bits: int, epsilon: Fraction) -> None:
    """λ = (2β-1)/((β-1)ε), 3/ε for halves; δ = λ ln β; both rounded up by less than a step."""
    selection = Selection(bits, epsilon, depth=20)
    beta = 2**bits
    scale = (2 * beta - 1) / (beta - 1) / float(epsilon) * STEPS
    assert scale <= selection.scale < scale + 1
    delta = float(selection.scale) * math.log(beta)
    assert delta <= selection.delta < delta + 1
    if bits == 1:
        assert scale == pytest.approx(3 / float(epsilon) * STEPS)


def test_epsilon_beyond_the_proof_is_refused() -> None:
    """Halves need λ ≥ 1/ln 2, that is ε ≤ 3 ln 2 = 2.079…."""
    Selection(1, Fraction("2.07"), depth=20)
    with pytest.raises(ParameterError, match="split epsilon"):
        Selection(1, Fraction("2.2"), depth=20)


def test_floor_and_cap_do_not_depend_on_scores() -> None:
    noise = KeyedNoise(
        bytes(32),
        charge=bytes(32),
        mechanism="m",
        config=b"",
        pipeline="",
        window="",
        nonces=STEADY,
    )
    selection = Selection(1, QUARTER, depth=4, floor=2)
    scores, nodes = np.array([-(10**6), 10**6]), np.array([2, 3], np.uint64)
    assert selection.splits(scores, 1, nodes, 1, noise).tolist() == [True, True]
    assert selection.splits(scores, 4, nodes, 1, noise).tolist() == [False, False]
    assert probability(selection, scores, 1).tolist() == [1, 1]
    assert probability(selection, scores, 4).tolist() == [0, 0]


def draws(selection: Selection, score: int, level: int, n: int = 20_000) -> float:
    noise = KeyedNoise(
        b"k" * 32,
        charge=bytes(32),
        mechanism="m",
        config=b"",
        pipeline="",
        window="",
        nonces=STEADY,
    )
    nodes = np.arange(1, n + 1, dtype=np.uint64)
    return float(selection.splits(np.full(n, score), level, nodes, 1, noise).mean())


@pytest.mark.parametrize("score", [-500, 0, 133, 134, 135, 300, 1000])
def test_probabilities_are_those_of_the_sampler(score: int) -> None:
    selection = Selection(1, QUARTER, depth=9)
    chance = float(probability(selection, np.array([score]), 1)[0])
    error = math.sqrt(chance * (1 - chance) / 20_000)
    assert abs(draws(selection, score, 1) - chance) < 4 * error


def test_clamped_nodes_split_with_probability_half_over_beta() -> None:
    for bits in (1, 2):
        selection = Selection(bits, QUARTER, depth=9)
        chance = float(probability(selection, np.array([0]), 3)[0])
        assert chance == pytest.approx(0.5 / 2**bits, rel=0.02)


def path_law(selection: Selection, scores: list[int]) -> np.ndarray:
    """Probability that a path of nodes stops splitting at each depth."""
    chances = [
        float(probability(selection, np.array([score]), level)[0])
        for level, score in enumerate(scores)
    ]
    alive = np.cumprod([1.0, *chances])
    return np.append(alive[:-1] * (1 - np.array(chances)), alive[-1])


def loss(selection: Selection, scores: list[int]) -> float:
    """Largest |ln ratio| when one record adds 1 to every score of the path."""
    more = [score + STEPS for score in scores]
    first, second = path_law(selection, scores), path_law(selection, more)
    possible = (first > 0) & (second > 0)
    return float(np.abs(np.log(first[possible] / second[possible])).max())


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.sampled_from([(1, "0.1"), (1, "0.25"), (1, "2"), (2, "0.25"), (2, "1"), (3, "0.5")]),
    st.lists(st.integers(0, 4000), min_size=1, max_size=16),
    st.integers(-5, 60),
)
def test_one_record_on_a_path_costs_at_most_epsilon(
    shape: tuple[int, str], scores: list[int], theta: int
) -> None:
    """Non-negative scores that never grow downwards, any grid values, both directions."""
    bits, epsilon = shape
    selection = Selection(bits, Fraction(epsilon), depth=16, theta=theta)
    assert loss(selection, sorted(scores, reverse=True)) <= float(selection.epsilon)


def test_worst_monotone_path_is_close_to_the_bound() -> None:
    """Every node is just above the clamp of its child: the proof is nearly tight."""
    selection = Selection(1, QUARTER, depth=16)
    worst = 0.0
    for score in range(0, 16 * selection.delta, 8):
        for depth in (2, 8, 16):
            worst = max(worst, loss(selection, [score] * depth))
    assert 0.6 * float(QUARTER) < worst <= float(QUARTER)


def test_scores_that_grow_downwards_lose_one_unit_per_level() -> None:
    """Raw released counts are unsafe scores: negative siblings allow b = θ on every level."""
    selection = Selection(1, QUARTER, depth=20)
    scores = [level * selection.delta - STEPS for level in range(20)]
    expected = 20 * STEPS / float(selection.scale)
    assert loss(selection, scores) == pytest.approx(expected, rel=1e-6)
    assert loss(selection, scores) > 6 * float(QUARTER)


def test_minimum_of_ancestors_moves_nodes_off_the_path() -> None:
    """Clamping the sum of counts and changes along the path does not repair this."""
    released, insert = {"root": 5, "left": 9, "right": 9}, {"root": 1, "left": 1, "right": 0}
    before = min(released["root"], released["right"])
    after = min(released["root"] + insert["root"], released["right"] + insert["right"])
    assert after - before == 1  # although the record lies on the left

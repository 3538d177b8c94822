"""Candidates, scores and the noisy maximum."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.noise import STEADY, KeyedNoise, zero
from hushstream.mechanisms.parts.thresholds.clip import (
    exceedance_scores,
    exceeding,
    geometric_thresholds,
    noise_penalty,
    noisy_max,
    rank_scores,
    scale_free_penalty,
)
from hypothesis import given, settings
from hypothesis import strategies as st

HISTOGRAMS = st.lists(st.integers(0, 30), min_size=2, max_size=8).map(np.array)


def keyed(window: str) -> KeyedNoise:
    return KeyedNoise(
        b"t" * 32,
        charge=b"c" * 32,
        mechanism="m",
        config=b"",
        pipeline="p",
        window=window,
        nonces=STEADY,
    )


@given(st.integers(1, 10**6), st.integers(1, 64))
def test_thresholds_rise_to_the_top(top: int, resolution: int) -> None:
    found = geometric_thresholds(top, resolution)
    assert found[0] == 1 and found[-1] == top
    assert all(a < b <= a + max(1, a // resolution + 1) for a, b in itertools.pairwise(found))


def test_exceeding_counts_records_above_each_threshold() -> None:
    values, thresholds = np.array([1, 1, 2, 5, 9, 9]), (1, 4, 9)
    histogram = np.bincount(np.searchsorted(thresholds, values), minlength=3)
    assert exceeding(histogram).tolist() == [int((values > x).sum()) for x in thresholds]


def test_the_penalty_is_the_published_one() -> None:
    """(m0·θ/(20·r·ε))·√W with c = 60, in whole records; no count term at B."""
    slots, height, epsilon = 65_536, 5, Fraction(1, 20)
    thresholds = (1, 60, 700, 1440)
    weight = 2 * 15 * height**3
    expected = [
        math.floor(slots * x / (20 * 16**height * float(epsilon)) * math.sqrt(weight))
        for x in thresholds
    ]
    penalty = noise_penalty(thresholds, slots, 16, height, epsilon, Fraction(60))
    assert penalty.tolist() == expected
    scores = exceedance_scores(np.array([5, 4, 3, 2]), penalty)
    assert scores[-1] == -penalty[-1]
    assert scores[0] == -9 - penalty[0]


def test_the_scale_free_penalty_follows_its_formula() -> None:
    """36·K·√(θ/B) in whole records, K = √(6V)·m0/n, whatever the unit of values."""
    thresholds, variance = (1, 16, 81, 4096), Fraction(700)
    rank = math.sqrt(6 * 700) * 50 / 400
    expected = [math.floor(36 * rank * (x / 4096) ** 0.5) for x in thresholds]
    assert scale_free_penalty(thresholds, 50, 400, variance).tolist() == expected
    finer = tuple(1000 * x for x in thresholds)
    assert scale_free_penalty(finer, 50, 400, variance).tolist() == expected


@pytest.mark.parametrize("unit", [1, 100])
@pytest.mark.parametrize("top", [300, 3000, 30_000])
@pytest.mark.parametrize("law", ["exponential", "pareto", "uniform"])
def test_a_threshold_without_noise_is_near_the_best_whatever_the_largest_value(
    law: str, top: int, unit: int
) -> None:
    """For any B and unit the error of ranges is within 2.5 times the best threshold's."""
    draw = np.random.default_rng(11)
    values = {
        "exponential": draw.exponential(20, 8000),
        "pareto": 20 * draw.pareto(2.5, 8000),
        "uniform": 100 * draw.random(8000),
    }[law]
    top *= unit
    values = np.minimum(np.rint(unit * values), top)
    thresholds, variance, rest = geometric_thresholds(top), 200.0, 56_000
    above = np.array([int((values > x).sum()) for x in thresholds])
    lost = np.array([float(np.maximum(values - x, 0).sum()) / 8000 for x in thresholds])
    error = variance * np.array(thresholds) ** 2.0 + rest**2 / 6 * lost**2
    penalty = scale_free_penalty(thresholds, 8000, rest, Fraction(200))
    found = error[int(np.argmax(-above - penalty))]
    assert found <= 2.5 * error.min()


@settings(derandomize=True, deadline=None)
@given(HISTOGRAMS, st.data())
def test_scores_move_as_the_proof_says(histogram: np.ndarray, data: st.DataObject) -> None:
    """Exceedance scores all move in one direction by at most 1, rank scores by at most 1 in any."""
    bucket = data.draw(st.integers(0, len(histogram) - 1))
    more = histogram.copy()
    more[bucket] += 1
    none = np.zeros(len(histogram), np.int64)
    moved = exceedance_scores(more, none) - exceedance_scores(histogram, none)
    assert set(moved.tolist()) <= {-1, 0}
    ranked = rank_scores(more, 5) - rank_scores(histogram, 5)
    assert np.abs(ranked).max() <= 1
    other = data.draw(st.integers(0, len(histogram) - 1))
    replaced = more.copy()
    replaced[other] += 1
    change = exceedance_scores(replaced, none) - exceedance_scores(more, none)
    assert set((moved - change).tolist()) <= {-1, 0} or set((moved - change).tolist()) <= {0, 1}


def test_without_noise_the_first_of_equal_scores_wins() -> None:
    assert noisy_max(np.array([1, 7, 7, 3]), Fraction(2), zero, 1) == 1
    histogram = np.array([10, 5, 4, 3, 2, 1])
    assert noisy_max(rank_scores(histogram, 4), Fraction(2), zero, 1) == 3
    assert noisy_max(rank_scores(histogram, 1), Fraction(2), zero, 1) == 5


def frequencies(scores: np.ndarray, scale: Fraction, runs: int) -> np.ndarray:
    """How often `noisy_max` chooses each candidate, over ``runs`` windows."""
    won = [noisy_max(scores, scale, keyed(str(i)), 1) for i in range(runs)]
    return np.bincount(won, minlength=len(scores)) / runs


def exact_win(scores: list[int], scale: float) -> list[float]:
    """Probabilities of winning by enumeration of the discrete Laplace noise."""
    a, reach = math.exp(-1 / scale), 60
    law = {z: (1 - a) / (1 + a) * a ** abs(z) for z in range(-reach, reach + 1)}

    def below(x: int, strict: bool) -> float:
        return sum(p for z, p in law.items() if (z < x if strict else z <= x))

    out = []
    for i, own in enumerate(scores):
        total = 0.0
        for z, p in law.items():
            rest = 1.0
            for j, other in enumerate(scores):
                if j != i:
                    rest *= below(own + z - other, strict=j < i)
            total += p * rest
        out.append(total)
    return out


@pytest.mark.parametrize("epsilon", [0.5, 1.0])
def test_the_noisy_maximum_costs_epsilon_and_no_more(epsilon: float) -> None:
    """Exact probabilities over neighbours; half the noise would cost more than ε."""
    base = np.array([4, 2, 3, 1])
    none = np.zeros(4, np.int64)

    def worst(scale: float, rank: bool) -> float:
        ratio = 0.0
        for bucket in range(4):
            more = base.copy()
            more[bucket] += 1
            pair = [rank_scores(h, 5) if rank else exceedance_scores(h, none) for h in (base, more)]
            p, q = (exact_win(scores.tolist(), scale) for scores in pair)
            ratio = max(ratio, *(abs(math.log(a / b)) for a, b in zip(p, q, strict=True)))
        return ratio

    assert worst(1 / epsilon, rank=False) <= epsilon + 1e-6
    assert worst(0.5 / epsilon, rank=False) > epsilon
    assert worst(2 / epsilon, rank=True) <= epsilon + 1e-6
    assert worst(0.5 / epsilon, rank=True) > epsilon


def test_the_drawn_frequencies_are_the_exact_ones() -> None:
    scores, runs = np.array([0, 1, -1]), 3000
    expected = np.array(exact_win(scores.tolist(), 2.0))
    spread = np.sqrt(expected * (1 - expected) / runs)
    assert (np.abs(frequencies(scores, Fraction(2), runs) - expected) < 4.5 * spread).all()
    wrong = np.array(exact_win(scores.tolist(), 3.0))
    assert (np.abs(frequencies(scores, Fraction(2), runs) - wrong) > 4.5 * spread).any()


def test_wrong_parameters_are_named() -> None:
    for call, name in (
        (lambda: rank_scores(np.zeros(3, np.int64), 0), "rank"),
        (lambda: noisy_max(np.zeros(0, np.int64), Fraction(1), zero, 1), "candidates"),
        (lambda: noisy_max(np.zeros(2, np.int64), Fraction(0), zero, 1), "scale"),
        (lambda: geometric_thresholds(0), "top"),
        (lambda: noise_penalty((1,), 4, 2, 2, Fraction(1), Fraction(0)), "excess"),
        (lambda: scale_free_penalty((1,), 4, 2, Fraction(0)), "variance"),
        (lambda: scale_free_penalty((1,), 4, 0, Fraction(1)), "rest"),
    ):
        with pytest.raises(ParameterError, match=name):
            call()

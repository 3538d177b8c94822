"""Distributions and thresholds from reports; simulation of many devices from the same tables."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hushstream.client.channels import Hybrid, TwoPoint, Window, hybrid, square_wave
from hushstream.client.survey import RANGE, VALUE, Survey
from hushstream.errors import ContractError
from hushstream.mechanisms.topl import fit as local
from hypothesis import given, settings
from hypothesis import strategies as st

SURVEY = Survey(Fraction(1), Fraction(100), "s", buckets=64, levels=32)


def words(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 64, (n, 3), dtype=np.uint64)


def matrix(channel: Window) -> np.ndarray:
    """(outputs, inputs) probabilities."""
    rows = [channel.weights(level) for level in range(channel.inputs)]
    return np.array(rows, float).T / channel.total


# Simulation


@pytest.mark.parametrize("channel", [Window(5, 3, 7, 2), TwoPoint(5, 7, 2)], ids=["w", "t"])
def test_vectorised_draws_are_the_scalar_ones(channel: Window | TwoPoint) -> None:
    draw = local._draw_window if isinstance(channel, Window) else local._draw_two_point
    place = np.arange(channel.total, dtype=np.uint64)
    both = np.stack([place, place], axis=1)
    for level in range(channel.inputs):
        got = draw(channel, np.full(channel.total, level), both)  # type: ignore[arg-type]
        expected = [channel.draw(level, lambda n, u=u: u) for u in range(channel.total)]
        assert got.tolist() == expected


def test_vectorised_hybrid_draws_are_the_scalar_ones() -> None:
    made: Hybrid = hybrid(Fraction(2), 9)
    drawn = words(500)
    level = np.arange(500) % 9
    got = local._draw_hybrid(made, level.astype(float), drawn)

    def scalar(i: int) -> int:
        branch, place = int(drawn[i, 0]) & 0xFFFF, int(drawn[i, 1])
        feed = iter([branch * made.mix.denominator >> 16, place])
        return made.draw(int(level[i]), lambda n: next(feed) % n)

    assert got.tolist() == [scalar(i) for i in range(500)]


def test_words_beyond_the_last_multiple_are_refused() -> None:
    n = (1 << 63) + 1  # nearly half of all words are
    high, low = np.uint64((1 << 64) - 1), np.uint64(5)
    got = local._below(n, np.array([[high, low], [low, high], [1, 2]], np.uint64))
    assert got.tolist() == [5, 5, 1]


def test_simulated_reports_are_unbiased_with_the_variance_of_the_table() -> None:
    n, theta = 200_000, 48
    for value, epsilon in ((20.0, "1/2"), (75.0, "1"), (33.3, "2")):
        survey = Survey(Fraction(epsilon), Fraction(100), "s", buckets=64, levels=32)
        group = np.full(n, VALUE)
        codes = local.simulate(survey, np.full(n, value), group, theta, words(n))
        says = np.array([float(survey.estimate(j, theta)) for j in range(survey.hybrid.outputs)])
        level = value / 75 * 32
        low, rest = int(level), level - int(level)
        top = float(survey.threshold(theta)) / 2
        step = rest * (1 - rest) * (2 * top / 32) ** 2
        rows = [float(survey.hybrid.variance(min(i, 32))) * top**2 for i in (low, low + 1)]
        variance = rows[0] * (1 - rest) + rows[1] * rest + step
        assert says[codes].mean() == pytest.approx(value, abs=4.5 * (variance / n) ** 0.5)
        assert says[codes].var() == pytest.approx(variance, rel=0.02)


def test_simulated_values_are_clipped() -> None:
    group = np.array([RANGE, RANGE, VALUE, VALUE] * 50)
    drawn = words(200)
    inside = local.simulate(SURVEY, np.tile([0.0, 100.0], 100), group, 32, drawn)
    outside = local.simulate(SURVEY, np.tile([-1e300, 1e300], 100), group, 32, drawn)
    np.testing.assert_array_equal(inside, outside)


def test_simulation_refuses_what_is_no_number() -> None:
    with pytest.raises(ContractError):
        local.simulate(SURVEY, np.array([np.nan]), np.array([RANGE]), 1, words(1))
    with pytest.raises(ContractError):
        local.simulate(SURVEY, np.array([1.0]), np.array([RANGE]), 1, words(2))


# Expectation maximisation


def test_a_round_is_the_textbook_one() -> None:
    channel = square_wave(Fraction(1), 12)
    counts = np.random.default_rng(1).integers(0, 50, channel.outputs)
    dense, x = matrix(channel), np.full(12, 1 / 12)
    for rounds in range(1, 4):
        x = x * (dense.T @ (counts / (dense @ x))) / counts.sum()
        got = local.fit(counts, channel, smooth=False, rounds=rounds)
        np.testing.assert_allclose(got.density, x, rtol=1e-10)


def test_the_likelihood_never_falls() -> None:
    channel = square_wave(Fraction(2), 32)
    counts = np.random.default_rng(2).integers(0, 500, channel.outputs)
    likelihoods = [local.fit(counts, channel, False, rounds).likelihood for rounds in range(1, 60)]
    assert (np.diff(likelihoods) >= -1e-9).all()


SHAPES = {
    "rising": np.arange(1, 33, dtype=float),
    "bump": np.exp(-((np.arange(32) - 10.0) ** 2) / 30),
    "two": np.exp(-((np.arange(32) - 6.0) ** 2) / 8) + np.exp(-((np.arange(32) - 24.0) ** 2) / 8),
}


@pytest.mark.spread(3)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("smooth", [False, True])
def test_it_recovers_the_distribution(shape: str, smooth: bool) -> None:
    truth = SHAPES[shape] / SHAPES[shape].sum()
    survey = Survey(Fraction(2), Fraction(1), "s", buckets=32)
    generator = np.random.default_rng(3)
    n = 1_000_000
    value = (generator.choice(32, n, p=truth) + generator.random(n)) / 32
    codes = local.simulate(survey, value, np.full(n, RANGE), 1, words(n, 4))
    counts = np.bincount(codes, minlength=survey.square_wave.outputs)
    got = local.fit(counts, survey.square_wave, smooth)
    assert got.density.sum() == pytest.approx(1) and (got.density >= 0).all()
    assert got.rounds < 10_000
    # Wasserstein distance, in units of the range; the filter blurs features of a few buckets
    assert np.abs(np.cumsum(got.density - truth)).sum() / 32 < (0.03 if smooth else 0.012)


def test_the_exact_expectation_is_a_fixed_point() -> None:
    channel = square_wave(Fraction(1), 16)
    truth = np.arange(16.0) + 1
    truth /= truth.sum()
    counts = np.rint(matrix(channel) @ truth * 1e15).astype(np.int64)
    fitted = local.fit(counts, channel, smooth=False, rounds=4000)
    seen = matrix(channel) @ fitted.density
    np.testing.assert_allclose(seen, counts / counts.sum(), atol=1e-4)


def test_without_reports_it_is_uniform() -> None:
    channel = square_wave(Fraction(1), 8)
    got = local.fit(np.zeros(channel.outputs, np.int64), channel)
    np.testing.assert_allclose(got.density, 1 / 8)


def test_counts_must_fit_the_channel() -> None:
    channel = square_wave(Fraction(1), 8)
    with pytest.raises(ContractError):
        local.fit(np.zeros(3, np.int64), channel)
    with pytest.raises(ContractError):
        local.fit(np.full(channel.outputs, -1), channel)


# Thresholds


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0.001, 1), min_size=1, max_size=40))
def test_mean_excess_is_its_definition(weights: list[float]) -> None:
    density = np.array(weights) / np.sum(weights)
    d = len(density)
    middle = (np.arange(d) + 0.5) / d
    expected = [(density * np.maximum(middle - i / d, 0)).sum() for i in range(1, d + 1)]
    np.testing.assert_allclose(local.mean_excess(density), expected, atol=1e-12)


def test_a_short_range_gets_a_low_threshold_and_a_full_one_none() -> None:
    d = 512
    short = np.exp(-np.arange(d) / 10.0)
    short /= short.sum()
    low = local.choose_threshold(short, 16.7, 90_000)
    assert 20 <= low <= 80
    assert local.choose_threshold(short, 1.0, 90_000) > low  # less noise makes less bias worthwhile
    assert local.choose_threshold(short, 16.7, 9e7) > low  # so do more reports
    assert local.choose_threshold(np.full(d, 1 / d), 16.7, 90_000) == d
    assert local.choose_threshold(short, 16.7, 0) == d


@pytest.mark.parametrize("epsilon", ["1/1000", "1/2", "1", "3", "16"])
@pytest.mark.parametrize("inputs", [2, 9, 33])
def test_the_worst_variance_bounds_every_row(epsilon: str, inputs: int) -> None:
    made = hybrid(Fraction(epsilon), inputs)
    bound = local.worst_variance(made)
    rows = [made.variance(level) for level in range(inputs)]
    rounding = Fraction(1, (inputs - 1) ** 2)
    assert max(rows) <= bound
    assert float(bound) <= float(max(rows) + rounding) * (1 + 1e-6)
    for low, high in itertools.pairwise(rows):  # half-way between two levels
        assert (low + high) / 2 + rounding <= bound * (1 + Fraction(1, 10**9))


def test_the_worst_variance_of_square_wave_bounds_every_row() -> None:
    wave = square_wave(Fraction(1), 33)
    alone = Hybrid(wave, TwoPoint(33, wave.high), Fraction(1))
    rows = [alone.variance(level) for level in range(33)]
    assert max(rows) <= local.worst_variance(wave)

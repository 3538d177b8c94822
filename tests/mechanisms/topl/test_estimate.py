"""Estimates of mean, sum and threshold: correct, as accurate as stated, and within 64 bits."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hushstream.client import Survey
from hushstream.client.survey import VALUE
from hushstream.mechanisms.topl.mechanism import ToPL

from .bench import columns, feed, survey_run


def test_mean_sum_and_threshold_of_a_skewed_stream() -> None:
    value = np.minimum(np.random.default_rng(1).exponential(40, 60_000), 3000)
    survey = Survey(Fraction(1), Fraction(3000), "s")
    mechanism, releases = survey_run(survey, value)
    theta = int(releases[-1].public["theta"][0])
    assert (
        all(r.public["theta"][0] == theta for r in releases[1:])
        and "theta" not in releases[0].public
    )
    assert float(survey.threshold(theta)) < 1500
    mean = releases[-1].value[0, 0] / 1000
    clipped = np.minimum(value, float(survey.threshold(theta))).mean()
    assert mean == pytest.approx(clipped, abs=5 * releases[-1].variance[0, 0] ** 0.5 / 1000)
    assert mean == pytest.approx(value.mean(), rel=0.2)
    # the forecast assumes the whole range, so it is far higher
    assert releases[-1].variance[0, 0] ** 0.5 < mechanism.error(6)[0] / 2
    assert {"distribution"} <= releases[1].public.keys() & releases[5].public.keys()
    assert "distribution" not in releases[2].public
    assert abs(int(releases[5].public["distribution"].sum()) - 1_000_000) <= survey.buckets


@pytest.mark.thorough
def test_the_forecast_error_is_reached_by_the_worst_case() -> None:
    """All values are in the middle of the range, where the two-point channel is noisiest."""
    survey = Survey(Fraction(1, 2), Fraction(100), "s", buckets=32, levels=32)
    misses = []
    for seed in range(150):
        mechanism, releases = survey_run(
            survey, np.full(3000, 50.0), seed, warmup=1, horizon=2, told=32
        )
        assert releases[1].public["theta"][0] == 32
        misses.append(releases[-1].value[0, 0] / 1000 - 50)
    # all value reports come after the warm-up, in one trigger
    forecast = replace(mechanism, expected=3000).error(2)[0] / 1000
    # a standard deviation of 150 draws is within 18 % (three sigma); group sizes vary a little
    assert 0.8 * forecast < np.std(misses) < 1.2 * forecast


@pytest.mark.thorough
def test_variance_covers_the_error_of_mean_and_sum() -> None:
    survey = Survey(Fraction(1), Fraction(100), "s", buckets=64, levels=64)
    value = np.random.default_rng(2).gamma(3, 4, 4000)
    scores = []
    for seed in range(80):
        _, releases = survey_run(survey, value, seed, warmup=1, horizon=2)
        last = releases[-1]
        theta = float(survey.threshold(int(last.public["theta"][0])))
        truth = np.minimum(value, theta).mean()
        scores.append((last.value[0, 0] / 1000 - truth) / (last.variance[0, 0] ** 0.5 / 1000))
    assert 0.6 < np.std(scores) < 1.2
    assert abs(np.mean(scores)) < 0.5


def test_estimates_are_held_within_64_bits() -> None:
    survey = Survey(Fraction(1, 1000), Fraction(1 << 62), "s", buckets=2, levels=2)
    given_ = columns([(0, VALUE, 2, survey.hybrid.outputs - 1)], survey)
    at = np.full(1, 2, np.intp)
    last = feed(ToPL(survey, horizon=2), given_, np.zeros(1, np.int64), at)[-1]
    assert last.value[0, 0] == (1 << 63) - 1


def test_sums_of_micro_batches_add_up_over_a_range() -> None:
    value = np.random.default_rng(4).gamma(3, 12, 50_000)
    survey = Survey(Fraction(2), Fraction(1440), "s")
    _, releases = survey_run(survey, value)
    total = sum(r.value[0, 1] for r in releases[2:]) / 1000
    sigma = sum(r.variance[0, 1] for r in releases[2:]) ** 0.5 / 1000
    truth = value.mean() * len(value) * (0.9 + 0.1 * 4 / 6)  # reports of triggers 3 to 6
    assert total == pytest.approx(truth, abs=5 * sigma + 0.05 * truth)

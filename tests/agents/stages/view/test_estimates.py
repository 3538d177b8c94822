"""Errors of sums, differences and quotients, against noise drawn by the test."""

from __future__ import annotations

import math
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pytest
from hushstream.agents.stages.view.estimates import Noisy, difference, noisy, ratio, told, total
from hushstream.topics.releases import Value

FALSE_ALARM = 5.0  # in standard deviations of the number of covering intervals: below 10^-6
LOOKS = 4000
Z = NormalDist().inv_cdf(0.975)


def normal(value: float, stddev: float) -> Noisy:
    return Noisy(Fraction(value), stddev**2)


def test_a_sum_of_independent_numbers_has_the_sum_of_their_variances() -> None:
    parts = [normal(3, 1), normal(-5, 2), normal(0.5, 2)]
    one = total(parts)
    assert (one.value, one.variance, one.ends) == (Fraction(-3, 2), 9.0, None)
    assert total(reversed(parts)) == one
    assert difference(parts[0], parts[1]) == Noisy(Fraction(8), 5.0)


def test_one_number_stays_as_it_was_released() -> None:
    value = Value(3, 1.5, 0.0, 5.94, None)
    assert told(total([noisy(value, floored=True)]), Z, shown=False) == {
        "value": 3, "stddev": 1.5, "low": 0.0, "high": 5.94,
    }  # fmt: skip


def test_an_interval_of_what_cannot_be_negative_ends_at_nothing() -> None:
    below = told(Noisy(Fraction(1), 9.0, None, floored=True), Z, shown=True)
    assert below is not None and below["low"] == 0 and below["high"] > 6
    free = told(Noisy(Fraction(-1), 9.0), Z, shown=True)
    assert free is not None and free["low"] < -6 and free["display_value"] == 0


@pytest.mark.spread(3)
# Denominators of 3, 10 and 100 deviations; independent, shared and opposed noises.
@pytest.mark.parametrize("below", [60.0, 200.0, 2000.0])
@pytest.mark.parametrize("correlation", [0.0, 0.9, -0.9])
def test_intervals_of_quotients_cover_as_often_as_they_say(
    below: float, correlation: float
) -> None:
    true, spread, covariance = 0.7, 20.0, correlation * 20.0 * 20.0
    draws = np.random.default_rng(7).multivariate_normal(
        [true * below, below], [[spread**2, covariance], [covariance, spread**2]], LOOKS
    )
    held = shown = 0
    for above, under in draws:
        one = ratio(normal(above, spread), normal(under, spread), covariance, Z)
        if one is None:  # the covering set is no interval then: it contains every value far from 0
            assert under <= Z * spread
            continue
        shown += 1
        assert one.ends is not None
        held += one.ends[0] <= true <= one.ends[1]
    if below < 200:  # the noise selects what is shown, so bound the coverage from one side
        assert held / LOOKS > 0.95 - (LOOKS - shown) / LOOKS
        return
    reach = FALSE_ALARM * math.sqrt(LOOKS * 0.95 * 0.05)
    assert abs(held - 0.95 * LOOKS) <= reach


def test_the_delta_method_needs_the_covariance() -> None:
    """A sum and a count share noise; without the covariance, their mean's error is too large."""
    rng = np.random.default_rng(11)
    count = rng.normal(0, 10, LOOKS)
    means = (5 * (1000 + count) + rng.normal(0, 10, LOOKS)) / (1000 + count)
    one = ratio(Noisy(Fraction(5000), 2600.0), normal(1000, 10), 500.0, Z)
    assert one is not None
    assert math.isclose(one.variance**0.5, float(np.std(means)), rel_tol=0.06)
    blind = ratio(Noisy(Fraction(5000), 2600.0), normal(1000, 10), 0.0, Z)
    assert blind is not None and blind.variance > 10 * one.variance


@pytest.mark.parametrize("covariance", [-95.0, 0.0, 95.0])
def test_an_unknown_covariance_is_never_smaller_than_any(covariance: float) -> None:
    known = ratio(normal(50, 10), normal(200, 10), covariance, Z)
    unknown = ratio(normal(50, 10), normal(200, 10), None, Z)
    assert known is not None and unknown is not None and known.ends and unknown.ends
    assert unknown.variance >= known.variance
    assert unknown.ends[0] <= known.ends[0] and known.ends[1] <= unknown.ends[1]


@pytest.mark.parametrize("below", [0.0, -300.0, 19.0])
def test_there_is_no_quotient_by_what_may_be_nothing(below: float) -> None:
    assert ratio(normal(50, 10), normal(below, 10), 0.0, Z) is None


def test_a_small_quotient_keeps_its_value_and_its_interval() -> None:
    def count(value: int) -> Noisy:
        return Noisy(Fraction(value), 25.0)

    for above in (300, 700):
        one = ratio(count(above), count(10**9), None, 1.96)
        assert one is not None and one.ends is not None
        assert float(one.value) == pytest.approx(above / 1e9, rel=1e-3)
        assert one.ends[0] < above / 1e9 < one.ends[1]

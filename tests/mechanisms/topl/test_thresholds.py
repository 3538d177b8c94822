"""The threshold that narrow reports choose: within the range, beyond it, or B itself."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hushstream.client import Survey
from hushstream.client.survey import NARROW, STEP
from hushstream.mechanisms.topl.channels import variances
from hushstream.mechanisms.topl.estimate import Buckets, density
from hushstream.mechanisms.topl.fit import simulate
from hushstream.mechanisms.topl.rounds import GUARD, found_threshold

HALF = Fraction(1, 2)


def test_the_threshold_lies_within_the_range() -> None:
    density = np.zeros(512)
    density[:100] = 0.01
    survey = Survey(Fraction(1), Fraction(1000), "s", rounds=2)
    who = np.full(1, NARROW)
    seen = Buckets(who, who, who, np.full(1, 10_000))
    for within in (200, 400, 512):
        theta = found_threshold(survey, seen, density, within)
        share = float(survey.threshold(theta) / survey.threshold(within))
        assert 0.1 < share < 0.25


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_values_clipped_to_the_range_raise_the_threshold_to_twice_its_end(share: float) -> None:
    """Range reports missed a second level; narrow reports show it as mass at the range's end."""
    survey = Survey(Fraction(2), Fraction(2000), "s", rounds=2, channel="told")
    draw, n, within = np.random.default_rng(4), 10_000, 352
    value = np.where(draw.random(n) < share, 400.0, 25.0)
    words, who = draw.integers(0, 1 << 64, (n, 3), dtype=np.uint64), np.full(n, NARROW)
    codes = simulate(survey, value, who, within, words)
    seen = Buckets(who, np.full(n, within), codes, np.ones_like(codes))
    step = found_threshold(survey, seen, density(survey, seen, True, NARROW), within)
    end = float(survey.threshold(within))
    assert 60 < end < 200
    if share:
        assert float(survey.threshold(step)) == 2 * end
    else:
        assert float(survey.threshold(step % STEP)) < end


@pytest.mark.parametrize(("times", "raised"), [(0.9, False), (1.3, True)])
def test_mass_at_the_ranges_end_counts_above_its_worst_noise(times: float, raised: bool) -> None:
    survey = Survey(Fraction(2), Fraction(2000), "s", rounds=2, channel="told")
    n, within, exact = 10_000, 352, np.zeros(512)
    mass = times * (float(variances(survey)[NARROW]) / n) ** 0.5
    exact[20], exact[-1] = 1 - mass, mass
    seen = Buckets(*(np.array([one]) for one in (NARROW, within, 0, n)))
    step, end = found_threshold(survey, seen, exact, within), float(survey.threshold(within))
    assert (float(survey.threshold(step % STEP)) == 2 * end) is raised


@pytest.mark.parametrize(("times", "kept"), [(0.9, False), (1.1, True)])
def test_b_is_kept_only_if_values_in_its_upper_half_show_above_their_noise(
    times: float, kept: bool
) -> None:
    """A cut at 0.78 B would gain little in both cases."""
    survey = Survey(HALF, Fraction(2000), "s", rounds=2, channel="told")
    n, within, exact = 10_000, 512, np.zeros(512)
    mass = times * GUARD * (float(variances(survey)[NARROW]) / n) ** 0.5
    exact[20], exact[400] = 1 - mass, mass
    seen = Buckets(*(np.array([one]) for one in (NARROW, within, 0, n)))
    step = found_threshold(survey, seen, exact, within)
    assert (step % STEP == 512) is kept
    assert float(survey.threshold(step % STEP)) > 0.75 * 2000

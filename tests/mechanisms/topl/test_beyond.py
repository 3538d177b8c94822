"""The stated share of values from theta on: unbiased estimates, and intervals that cover it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hushstream.client import Survey
from hushstream.client.channels import Window, square_wave
from hushstream.client.survey import NARROW, RANGE
from hushstream.mechanisms.topl.beyond import Beyond, answers, beyond
from hushstream.mechanisms.topl.estimate import Buckets, Steps
from hushstream.mechanisms.topl.fit import simulate
from scipy.stats import binom

ALARM, RUNS, USERS = 1e-6, 60, 4000
LAWS = {
    "small": lambda draw, n: draw.exponential(2, n),
    "most beyond": lambda draw, n: draw.normal(70, 5, n),
    "two levels": lambda draw, n: draw.choice([1.0, 60.0], n, p=[0.7, 0.3]),
    "at the threshold": lambda draw, n: draw.choice([0.0, 12.5, 25.0], n),
}


def survey_of(epsilon: str, rounds: int) -> Survey:
    return Survey(
        Fraction(epsilon), Fraction(100), "beyond", share=Fraction(1, 2), buckets=64, rounds=rounds
    )


@pytest.mark.parametrize("epsilon", ["1/4", "1", "5", "16"])
@pytest.mark.parametrize(("first", "width"), [(9, 1), (6, 4), (-3, 8), (28, 8)])
def test_answers_mean_the_ramp_for_every_bucket(epsilon: str, first: int, width: int) -> None:
    channel: Window = square_wave(Fraction(epsilon), 32)
    one = answers(channel, first, width)
    for bucket in range(32):
        weights = channel.weights(bucket)
        said = sum(w * whole for w, whole in zip(weights, one.whole, strict=True))
        found = one.start + one.unit * (said / channel.total)
        assert found == pytest.approx(min(max((bucket - first + 1) / width, 0), 1), abs=1e-9)


def test_the_error_is_that_of_single_answers_and_one_more() -> None:
    one = answers(square_wave(Fraction(1), 8), 4, 2)
    counts = {0: 30, 5: 60, one.whole.index(max(one.whole)): 10}
    every = np.repeat([one.unit * one.whole[code] for code in counts], list(counts.values()))
    most = one.unit * max(map(abs, one.whole))
    mean, error = one.of(counts)
    assert mean == pytest.approx(one.start + every.mean())
    assert error**2 == pytest.approx((every.var() + most**2 / 100) / 100)


def seen_of(survey: Survey, law: str, steps: Steps, seed: int) -> tuple[Buckets, float]:
    """Reports of the range and narrow groups, and the exact share over all their users."""
    draw = np.random.default_rng([41, seed])
    value = np.clip(LAWS[law](draw, 2 * USERS), 0, 100)
    groups = np.where(np.arange(len(value)) % 2, RANGE, NARROW if survey.rounds > 1 else 0)
    parts = []
    for group, told in ((RANGE, 0), (NARROW, steps.within)):
        mine = value[groups == group]
        words = draw.integers(0, 1 << 64, (len(mine), 3), dtype=np.uint64)
        who = np.full(len(mine), group)
        code = simulate(survey, mine, who, told or survey.buckets, words)
        parts.append((who, np.full(len(mine), told), code, np.ones_like(code)))
    seen = Buckets(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    return seen, float((value >= float(survey.threshold(steps.theta))).mean())


@pytest.mark.spread(4)
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("rounds", "theta", "within"), [(1, 8, 0), (2, 53, 57), (2, 52, 52)])
def test_intervals_hold_the_exact_share(law: str, rounds: int, theta: int, within: int) -> None:
    """This includes theta at the end of the range, beyond which all narrow reports look alike."""
    missed, widths = 0, []
    for run in range(RUNS):
        survey, steps = survey_of(("1/2", "1", "4")[run % 3], rounds), Steps(theta, within)
        seen, share = seen_of(survey, law, steps, run)
        found = beyond(survey, seen, steps, np.full(64, 1 / 64))
        assert found.low <= found.share <= found.high
        missed += not found.low <= 1e6 * share <= found.high
        widths.append(found.high - found.low)
    assert missed <= binom.isf(ALARM, RUNS, 0.05)
    assert min(widths) < 300_000


def test_it_tells_when_most_values_are_cut() -> None:
    survey, steps = survey_of("2", 2), Steps(40, 44)
    seen, share = seen_of(survey, "most beyond", steps, 0)
    assert share > 0.99 and beyond(survey, seen, steps, np.full(64, 1 / 64)).low > 700_000


def test_nothing_lies_beyond_the_bound_and_nothing_is_known_without_reports() -> None:
    survey, empty = survey_of("1", 2), Buckets(*np.zeros((4, 0), np.int64))
    flat = np.full(64, 1 / 64)
    assert beyond(survey, empty, Steps(64, 64), flat) == Beyond(0, 0, 0)
    assert beyond(survey, empty, Steps(12, 20), flat) == Beyond(0, 0, 1_000_000)

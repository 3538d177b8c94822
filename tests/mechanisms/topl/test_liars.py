"""False reports move a mean no further than the page says.

Variances and ends of the channels are computed here from their tables, by separate code.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from hushstream.client import Survey
from hushstream.client.survey import RANGE, VALUE
from hushstream.mechanisms.in_memory import Memory, Trace
from hushstream.mechanisms.noise import ZeroNoise
from hushstream.mechanisms.topl.fit import choose_threshold, fit, simulate
from hushstream.mechanisms.topl.mechanism import INPUTS, ToPL
from hypothesis import given, settings
from hypothesis import strategies as st

GRID = Fraction(1, 10**6)


class Channel(NamedTuple):
    """Figures of a channel on [-1, 1] that the page's bound uses."""

    reach: float  # largest absolute value of an answer
    variance: float  # of an answer, for the worst input


@cache
def channel(survey: Survey, group: int) -> Channel:
    made = survey.square_wave if group == RANGE else survey.hybrid
    says = np.array([float(made.decode(code)) for code in range(made.outputs)])
    worst = 0.0
    for level in range(made.inputs):
        weights = np.array([float(weight) for weight in made.weights(level)])
        mean, square = weights @ says / weights.sum(), weights @ says**2 / weights.sum()
        worst = max(worst, square - mean**2)
    return Channel(float(np.abs(says).max()), worst + 1 / (made.inputs - 1) ** 2)


def relative_weight(survey: Survey, theta: int) -> float:
    """Weight of a range report if a value report weighs 1."""
    ratio = channel(survey, VALUE).variance / channel(survey, RANGE).variance
    return ratio * (theta / survey.buckets) ** 2


def most(survey: Survey, theta: int, reports: np.ndarray, false: np.ndarray) -> float:
    """The page's bound, from the numbers of (range, value) reports and of false ones among them."""
    weight = np.array([relative_weight(survey, theta), 1])
    top = np.array([float(survey.bound), float(survey.threshold(theta))])
    reach = np.array([channel(survey, group).reach for group in (RANGE, VALUE)])
    return float(false @ (weight * top * reach) / (reports @ weight))


@pytest.mark.parametrize("epsilon", ["1/1000", "1/10", "1/2", "61/100", "1", "2", "4"])
def test_a_false_range_report_moves_less_than_a_false_value_report(epsilon: str) -> None:
    """So the bound k theta C / n may count every false report as a value report."""
    survey = Survey(Fraction(epsilon), Fraction(100), "s", buckets=64, levels=64)
    for theta in (1, 5, 64):
        one = relative_weight(survey, theta) * 100 * channel(survey, RANGE).reach
        assert one < float(survey.threshold(theta)) * channel(survey, VALUE).reach


@pytest.mark.parametrize("epsilon", ["1/2", "1", "2"])
def test_an_answer_is_so_far_from_the_mean_of_any_true_one(epsilon: str) -> None:
    """The bound in expectation is (reach + 1) / 2 of the range, for both groups."""
    survey = Survey(Fraction(epsilon), Fraction(100), "s", buckets=16, levels=16)
    for made, reach in (
        (survey.hybrid, channel(survey, VALUE).reach),
        (survey.square_wave, channel(survey, RANGE).reach),
    ):
        says = [float(1 + made.decode(code)) / 2 for code in range(made.outputs)]
        for level in range(made.inputs):
            weights = np.array([float(weight) for weight in made.weights(level)])
            mean = weights @ says / weights.sum()
            assert max(abs(answer - mean) for answer in says) <= (reach + 1) / 2 + 1e-9


# Arbitrary answers, few enough to try the worst

SMALL = Survey(
    Fraction(1), Fraction(100), "s", reports=1, buckets=16, levels=8, share=Fraction(1, 4)
)


def users_of(survey: Survey, group: int, number: int) -> list[str]:
    found = [user for user in map(str, range(20 * number + 200)) if survey.group(user) == group]
    return found[:number]


def mean_of(early: list[int], ranged: list[int], valued: list[int]) -> tuple[int, float]:
    """Theta and the last mean, from outputs of two batches of range reports and value reports."""
    mechanism = ToPL(SMALL, GRID, horizon=2)
    memory, theta = Memory(mechanism, ZeroNoise()), 0
    names = {group: users_of(SMALL, group, 40) for group in (RANGE, VALUE)}
    batches = [[(RANGE, early)], [(RANGE, ranged), (VALUE, valued)]]
    number = 0
    for t, batch in enumerate(batches, 1):
        rows = [(g, c, names[g].pop()) for g, codes in batch for c in codes]
        coded = mechanism.encode({
            "slot": np.zeros(len(rows)), "group": np.array([g for g, _, _ in rows]),
            "theta": np.array([theta if g == VALUE else 0 for g, _, _ in rows]),
            "code": np.array([c for _, c, _ in rows]),
            "survey": np.full(len(rows), SMALL.number),
            "@unit": np.array([user for _, _, user in rows], object),
        })  # fmt: skip
        assert coded.keep.all()
        ones = np.ones(len(rows), np.int8)
        unit = np.arange(number, number + len(rows))
        number += len(rows)
        memory.absorb(Trace(ones * t, unit, coded.keys, coded.key, coded.value, ones))
        last = memory.trigger()
        theta = int(last.public["theta"][0])
    return theta, float(last.value[0, 0] * GRID)


ranges = st.lists(st.integers(0, SMALL.square_wave.outputs - 1), min_size=1, max_size=8)
values = st.lists(st.integers(0, SMALL.hybrid.outputs - 1), min_size=1, max_size=20)


@pytest.mark.thorough
@settings(max_examples=80, deadline=None)
@given(early=ranges, ranged=ranges, valued=values, data=st.data())
def test_no_answers_move_the_mean_beyond_the_bound(
    early: list[int], ranged: list[int], valued: list[int], data: st.DataObject
) -> None:
    k_r = data.draw(st.integers(0, len(ranged)))
    k_v = data.draw(st.integers(0, len(valued)))
    false_r = data.draw(st.lists(st.sampled_from(range(16)), min_size=k_r, max_size=k_r))
    ends = st.sampled_from([0, SMALL.hybrid.piecewise.outputs - 1, SMALL.hybrid.outputs - 1])
    false_v = data.draw(st.lists(ends, min_size=k_v, max_size=k_v))
    theta, honest = mean_of(early, ranged, valued)
    same, moved = mean_of(early, false_r + ranged[k_r:], false_v + valued[k_v:])
    assert same == theta
    reports = np.array([len(early) + len(ranged), len(valued)])
    bound = most(SMALL, theta, reports, np.array([k_r, k_v]))
    assert abs(moved - honest) <= bound * (1 + 1e-6) + 2 * GRID


def test_the_bound_is_reached() -> None:
    """All report the least, then some report the most: the mean moves by the whole bound."""
    top = SMALL.hybrid.piecewise.outputs - 1
    theta, low = mean_of([3, 4], [5], [0] * 20)
    _, high = mean_of([3, 4], [5], [top] * 7 + [0] * 13)
    assert high - low == pytest.approx(most(SMALL, theta, np.array([3, 20]), np.array([0, 7])))


# The attack: 100 liars among 100,000

CITY = Survey(Fraction(1), Fraction(1440), "s")
N, LIARS = 100_000, 100


class Crowd(NamedTuple):
    """100,000 users; half of the range group reports before the threshold, all others after it."""

    user: np.ndarray
    group: np.ndarray
    value: np.ndarray
    early: np.ndarray
    words: np.ndarray


@cache
def crowd() -> Crowd:
    draw = np.random.default_rng(11)
    user = np.array([f"user {i}" for i in range(N)], object)
    group = np.array([CITY.group(one) for one in user])
    early = (group == RANGE) & (draw.random(N) < 0.5)
    words = draw.integers(0, 1 << 64, (N, 3), dtype=np.uint64)
    return Crowd(user, group, draw.gamma(3, 12, N), early, words)


MECHANISM = ToPL(CITY, GRID, horizon=2)


def aggregated(
    lies: np.ndarray | None = None, lie: tuple[int, int, int] = (0, 0, 0), early: bool = False
) -> tuple[int, float]:
    """Theta and the mean if rows ``lies`` report (group, theta, code); theta 0: the published."""
    city, memory, theta = crowd(), Memory(MECHANISM, ZeroNoise()), CITY.buckets
    lying = np.zeros(N, bool)
    lying[np.array([], int) if lies is None else lies] = True
    first = city.early | (lying & early)
    for t in (1, 2):
        now = np.flatnonzero(first == (t == 1))
        group, told = city.group[now].copy(), lying[now]
        code = simulate(CITY, city.value[now], group, theta, city.words[now])
        step = np.where(group == RANGE, 0, theta)
        group[told], code[told] = lie[0], lie[2]
        step[told] = 0 if lie[0] == RANGE else lie[1] or theta
        each = [np.zeros(len(now)), group, step, code, np.full(len(now), CITY.number)]
        coded = MECHANISM.encode(dict(zip(INPUTS, [*each, city.user[now]], strict=True)))
        rows = np.flatnonzero(coded.keep)
        ones = np.ones(len(rows), np.int8)
        memory.absorb(Trace(ones * t, now[rows], coded.keys, coded.key[rows],
                            coded.value[rows], ones))  # fmt: skip
        last = memory.trigger()
        theta = int(last.public["theta"][0])
    return theta, float(last.value[0, 0] * GRID)


@cache
def honest() -> tuple[int, float, int]:
    theta, mean = aggregated()
    return theta, mean, int((crowd().group == VALUE).sum())


def liars(group: int) -> np.ndarray:
    city = crowd()
    return np.flatnonzero((city.group == group) & ~city.early)[:LIARS]


TOP, BOTTOM = CITY.hybrid.piecewise.outputs - 1, 0


@pytest.mark.spread(3)
@pytest.mark.parametrize("code", [TOP, BOTTOM, CITY.hybrid.outputs - 1])
def test_a_hundred_liars_with_the_published_threshold_stay_within_the_bound(code: int) -> None:
    theta, mean, valued = honest()
    assert abs(mean - crowd().value.mean()) < 2
    _, moved = aggregated(liars(VALUE), (VALUE, 0, code))
    reach = channel(CITY, VALUE).reach
    bound = LIARS * float(CITY.threshold(theta)) * reach / valued
    assert 0 < abs(moved - mean) <= bound < 0.5


def test_a_hundred_liars_of_the_range_group_move_less() -> None:
    theta, mean, valued = honest()
    _, moved = aggregated(liars(RANGE), (RANGE, 0, CITY.square_wave.outputs - 1))
    assert 0 < moved - mean < LIARS * float(CITY.threshold(theta)) / valued


@pytest.mark.spread(2)
@pytest.mark.parametrize("theta", [1, 2, 511, 512])
def test_a_threshold_that_was_not_published_counts_for_nothing(theta: int) -> None:
    """At theta = 1 a report would weigh as much as a thousand: a mean of 35.6 became 15.6."""
    other, mean, valued = honest()
    assert theta != other
    _, moved = aggregated(liars(VALUE), (VALUE, theta, BOTTOM))
    _, wrong_too = aggregated(liars(VALUE), (VALUE, theta, TOP))
    assert moved == wrong_too  # the answers are ignored
    reach = channel(CITY, VALUE).reach
    assert abs(moved - mean) <= LIARS * float(CITY.threshold(other)) * reach / valued


@pytest.mark.parametrize(("group", "other", "code"), [(VALUE, RANGE, 0), (RANGE, VALUE, TOP)])
def test_the_other_group_is_not_open_to_anybody(group: int, other: int, code: int) -> None:
    """A report under another group's name is dropped, whatever it says."""
    _, one = aggregated(liars(group), (other, 0, code))
    _, two = aggregated(liars(group), (other, 0, code + 1 if code == 0 else code - 1))
    assert one == two


def test_a_value_report_before_the_threshold_is_published_counts_for_nothing() -> None:
    theta, _, _ = honest()
    one = aggregated(liars(VALUE), (VALUE, theta, TOP), early=True)
    assert one == aggregated(liars(VALUE), (VALUE, theta, BOTTOM), early=True)


# What liars of the range group can do to theta is measured, not proved


@pytest.mark.parametrize(
    ("share", "most_moved"), [(0.01, 0.6), (0.05, 2.0)], ids=["1 percent", "5 percent"]
)
def test_liars_of_the_range_group_change_what_the_threshold_cuts_off(
    share: float, most_moved: float
) -> None:
    draw = np.random.default_rng(0)
    n, everybody = 10_000, draw.gamma(3, 12, 10**6)
    words = draw.integers(0, 1 << 64, (n, 3), dtype=np.uint64)
    wave, value = CITY.square_wave, draw.gamma(3, 12, n)
    codes = simulate(CITY, value, np.full(n, RANGE), CITY.buckets, words)

    def kept(codes: np.ndarray) -> float:
        """The mean of values clipped to the threshold that follows from the reports."""
        density = fit(np.bincount(codes, minlength=wave.outputs), wave).density
        theta = choose_threshold(density, channel(CITY, VALUE).variance, 9.0 * n)
        return float(np.minimum(everybody, float(CITY.threshold(theta))).mean())

    without = kept(codes)
    for lie in np.linspace(0, wave.outputs - 1, 9).astype(int):
        spoilt = codes.copy()
        spoilt[: int(n * share)] = lie
        assert abs(kept(spoilt) - without) <= most_moved

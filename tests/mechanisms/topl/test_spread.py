"""Intervals cover the mean of all users' clipped values, though only some users report values."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hushstream.client import Survey
from hushstream.client.survey import NARROW, RANGE, VALUE
from hushstream.mechanisms.columns import Releases
from hushstream.mechanisms.in_memory import Memory, Trace
from hushstream.mechanisms.noise import ZeroNoise
from hushstream.mechanisms.topl.estimate import Buckets, mean
from hushstream.mechanisms.topl.fit import simulate, worst_variance
from hushstream.mechanisms.topl.mechanism import INPUTS, ToPL
from hushstream.mechanisms.topl.spread import difference, division
from scipy.stats import chi2

HALF, GRID, RUNS, ALARM = Fraction(1, 2), Fraction(1, 1000), 60, 1e-6


def survey_of(epsilon: str, rounds: int = 2) -> Survey:
    return Survey(Fraction(epsilon), Fraction(100), "spread", 1, HALF, 64, 64, rounds=rounds)


@cache
def crowd(survey: Survey, number: int) -> tuple[np.ndarray, np.ndarray]:
    users = np.array([f"user {i}" for i in range(number)], object)
    return users, np.array([survey.group(user) for user in users])


def exact(survey: Survey, value: np.ndarray, group: np.ndarray, told: dict[int, int]) -> float:
    """The mean of all users' clipped values, with the weights of the groups' reports."""
    channels = {VALUE: survey.hybrid, NARROW: survey.square_wave}
    over = under = 0.0
    for one, channel in channels.items():
        top = float(survey.threshold(told[one]))
        weight = (group == one).sum() / (float(worst_variance(channel)) * top**2)
        over, under = over + weight * np.minimum(value, top).mean(), under + weight
    return over / under


def last_of(survey: Survey, value: np.ndarray, seed: int) -> tuple[Releases, list[float]]:
    """The last release, which has reports of every group, and its exact mean and sum."""
    draw = np.random.default_rng(seed)
    mechanism = ToPL(survey, GRID, horizon=survey.rounds + 1, warmup=1)
    memory = Memory(mechanism, ZeroNoise())
    users, group = crowd(survey, len(value))
    first = np.select([group == RANGE, group == NARROW], [1, 2], mechanism.horizon)
    trigger = np.where(draw.random(len(value)) < 0.5, first, mechanism.horizon)
    within = theta = survey.buckets
    for t in range(1, mechanism.horizon + 1):
        now = np.flatnonzero(trigger == t)
        words = draw.integers(0, 1 << 64, (len(now), 3), dtype=np.uint64)
        code, step = np.zeros((2, len(now)), np.int64)
        for one, told in ((RANGE, 0), (NARROW, within), (VALUE, theta)):
            own = group[now] == one
            step[own] = told
            top = told or survey.buckets
            code[own] = simulate(survey, value[now][own], group[now][own], top, words[own])
        many = np.ones(len(now), np.int64)
        each = [many, group[now], step, code, many * survey.number, users[now]]
        coded = mechanism.encode(dict(zip(INPUTS, each, strict=True)))
        ones = np.ones(len(now), np.int8)
        memory.absorb(Trace(ones * t, now, coded.keys, coded.key, coded.value, ones))
        last = memory.trigger()
        within = int(last.public.get("range", [within])[0])
        theta = int(last.public.get("theta", [theta])[0])
    now, told = np.flatnonzero(trigger == mechanism.horizon), {NARROW: within, VALUE: theta}
    total = exact(survey, value[now], group[now], told) * len(now)
    return last, [exact(survey, value, group, told), total]


@pytest.mark.spread(4)
@pytest.mark.parametrize("epsilon", ["1/2", "2", "6", "8"])
def test_errors_are_as_large_as_stated(epsilon: str) -> None:
    """Half of the values are 50, the others 0; a hash divides users as good as at random."""
    survey, squares = survey_of(epsilon), np.zeros(2)
    for seed in range(RUNS):
        value = np.random.default_rng([9, seed]).permutation(np.repeat([0.0, 50.0], 300))
        release, truth = last_of(survey, value, seed)
        miss = release.value[0] * float(GRID) - truth
        squares += miss**2 / (release.variance[0] * float(GRID) ** 2)
    assert (squares < chi2.isf(ALARM, RUNS)).all()
    if epsilon in ("6", "8"):  # nor far too large, as worst variances are at small epsilon
        assert (squares > chi2.ppf(ALARM, RUNS)).all()


def answers(survey: Survey, number: int, seed: int = 0) -> Buckets:
    """Reports of every group about values of three kinds."""
    draw = np.random.default_rng(seed)
    parts = []
    for group, told in ((RANGE, 0), (NARROW, 60), (VALUE, 56)):
        value = draw.choice([0.0, 10.0, 20.0], number)
        words = draw.integers(0, 1 << 64, (number, 3), dtype=np.uint64)
        codes = simulate(survey, value, np.full(number, group), told or survey.buckets, words)
        code, reports = np.unique(codes, return_counts=True)
        parts.append((np.full(len(code), group), np.full(len(code), told), code, reports))
    return Buckets(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def test_the_difference_is_the_variance_of_answers_less_that_of_noise() -> None:
    survey = survey_of("8")
    seen = answers(survey, 500)
    one, top = seen.where(seen.group == VALUE), float(survey.threshold(56))
    said = np.repeat([float(survey.hybrid.decode(c)) for c in one.code.tolist()], one.reports)
    noise = float(worst_variance(survey.hybrid))
    plain = (((said - said.mean()) ** 2).sum() + noise + 1) / 500 - noise
    found = difference(survey, seen)
    assert found == pytest.approx(plain * top**2 / 4, rel=1e-9)
    assert found == pytest.approx(np.var([0, 10, 20]), rel=0.1)


def test_the_division_follows_from_the_weights_of_all_who_reported() -> None:
    survey = survey_of("8")
    seen = answers(survey, 500)
    _, noise = mean(survey, seen)
    near, far = (float(survey.threshold(step)) for step in (56, 60))
    ratio = float(worst_variance(survey.hybrid) / worst_variance(survey.square_wave))
    values = 1 / (1 + ratio * (near / far) ** 2)
    weight = np.repeat([values / 500, (1 - values) / 500, 0], 500)
    half = (1 - values) * far / (2 * survey.buckets)
    expected = 7 * ((weight - 1 / 1500) ** 2).sum() + half**2
    assert division(survey, seen, 7.0) == pytest.approx(expected, rel=1e-9)
    assert division(survey, seen, 0.0) == pytest.approx(half**2, rel=1e-9) and noise > 0


def test_nothing_is_divided_where_everybody_reports_alike() -> None:
    survey = survey_of("8", rounds=1)
    seen = answers(survey, 300)
    assert division(survey, seen.where(seen.group == VALUE), 5.0) == 0
    ranged = division(survey, seen.where(seen.group == RANGE), 5.0)
    assert ranged == pytest.approx((100 / 128) ** 2)  # only half a bucket
    assert division(survey, seen.where(seen.group == 0), 5.0) == 0


@pytest.mark.parametrize("number", [0, 1])
def test_so_few_reports_may_differ_as_much_as_values_can(number: int) -> None:
    survey = survey_of("8")
    code = np.full(number, 3)
    seen = Buckets(np.full(number, VALUE), np.full(number, 56), code, np.ones(number, np.int64))
    top = float(survey.threshold(56)) if number else 100.0
    assert difference(survey, seen) == pytest.approx(top**2 / 4)


def test_liars_cannot_make_values_differ_by_more_than_they_can() -> None:
    survey = survey_of("2")
    code = np.array([0, survey.hybrid.piecewise.outputs - 1])
    seen = Buckets(np.full(2, VALUE), np.full(2, 56), code, np.full(2, 1000))
    assert difference(survey, seen) == pytest.approx(float(survey.threshold(56)) ** 2 / 4)


def test_two_point_answers_hold_the_difference_already() -> None:
    """Their worst variance is that of an answer about an unknown value."""
    survey = survey_of("1/2")
    found = difference(survey, answers(survey, 500))
    assert 0 <= found <= float(survey.threshold(56)) ** 2 / 4 / 500

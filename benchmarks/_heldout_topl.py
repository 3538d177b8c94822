"""ToPL's threshold against the best constant one, on values that no constant was tuned on.

100,000 users hold one value each, drawn from a set, and make one report with the defaults of
`topl`, in two rounds: a tenth of them by Square Wave over the whole range, and a tenth within the
range found by the first, from which threshold theta and channel are chosen. The other n report
within [0, theta], so the squared error of their mean is ``theta² V / 4n + T²``, where V is the
variance of a report by that channel for such values, and T is the amount that theta cuts off the
mean. ``best`` is the least such error over all theta if nine users of ten report by Hybrid, found
on the data itself: so the ratio includes the cost of the second tenth, and a better channel may
bring it below 1. ``one_round`` is the same with ``rounds = 1``, where nine tenths report values; in
``whole`` everybody reports by Hybrid within the whole range, and nothing is learnt. Sets are the
values of `_heldout_streams` without their order, and laws that fill a range or hardly use it.
Every set, ε and run has devices with their own draws: with the same draws for every set, constants
that fit the noise on "tuned" would fit it on "unseen" too.
``covered`` is the share of the two-round runs whose stated interval holds the exact share of values
at or above theta.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from _heldout_streams import LONG, streams
from _values import F64
from hushstream.client import Survey
from hushstream.client.survey import NARROW, RANGE, STEP
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.topl.beyond import beyond
from hushstream.mechanisms.topl.channels import expected
from hushstream.mechanisms.topl.estimate import Buckets, Steps, density, threshold
from hushstream.mechanisms.topl.fit import simulate
from hushstream.mechanisms.topl.rounds import GUARD, found_range, found_threshold
from hushstream.mechanisms.topl.settings import ToPLParameters
from hushstream.mechanisms.topl.settings import survey_of as configured

USERS, BEST = 100_000, 90_000  # value reports of the best threshold
EPSILONS = (Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4))
PLACES = np.exp2(-np.arange(0, 20, 1 / 64))  # theta as a share of the range
Row = dict[str, Any]


class Values(NamedTuple):
    """Values of users and the public end of their range."""

    name: str
    value: F64
    top: float

    def cut(self, theta: F64) -> F64:
        """The amount that each theta cuts off the mean: E[(v - theta)+]."""
        return np.array([np.maximum(self.value - one, 0).mean() for one in theta])

    def square(self, theta: float) -> float:
        """E[v²], with values clipped to [0, theta] and scaled to [-1, 1]."""
        return float(np.mean((np.minimum(self.value, theta) * 2 / theta - 1) ** 2))


def sets(half: str) -> list[Values]:
    """The sets of a group: "tuned" or "filled" (for tuning), "held", "unseen" or "sealed"."""
    if half == "filled":
        return _filled()
    made = [Values(one.name, one.values.astype(np.float64), one.top) for one in streams(half)]
    return made + {"tuned": _tuned, "held": _held, "unseen": _unseen, "sealed": list}[half]()


def _tuned() -> list[Values]:
    g = np.random.default_rng(77)
    return [
        Values("beta(2, 5)", g.beta(2, 5, LONG) * 100, 100),
        Values("the whole range", g.uniform(0, 100, LONG), 100),
        Values("narrow", g.normal(300, 20, LONG), 1000),
        Values("near the top", 100 - np.minimum(g.exponential(10, LONG), 100), 100),
        Values("B 10,000 times", g.exponential(3, LONG), 30_000),
    ]


def _filled() -> list[Values]:
    """Laws that fill most of a range, or rarely leave its lower end."""
    g = np.random.default_rng(4711)
    made: list[tuple[str, F64, float]] = [
        ("beta(3, 3)", g.beta(3, 3, LONG) * 100, 100),
        ("beta(1.5, 4)", g.beta(1.5, 4, LONG) * 60, 60),
        ("six tenths of the range", g.uniform(0, 60, LONG), 100),
        ("nine tenths of the range", g.uniform(0, 90, LONG), 100),
        ("the middle of the range", g.uniform(30, 80, LONG), 100),
        ("a bell at 0.4", np.clip(g.normal(400, 60, LONG), 0, 1000), 1000),
        ("a bell at 0.7", np.clip(g.normal(700, 120, LONG), 0, 1000), 1000),
        ("falling", 200 * (1 - np.sqrt(g.random(LONG))), 200),
        ("rising as a cube", 200 * np.cbrt(g.random(LONG)), 200),
        ("two ends", np.where(g.random(LONG) < 0.3, 100.0, 0.0), 100),
        ("2 % at the top", np.where(g.random(LONG) < 0.02, 100.0, 0.0), 100),
        ("four of five are 0", np.where(g.random(LONG) < 0.8, 0, g.random(LONG) * 50), 50),
        ("19 of 20 are 0", np.where(g.random(LONG) < 0.95, 0, g.random(LONG) * 300), 300),
        ("exponential, B/3", np.minimum(g.exponential(33, LONG), 100), 100),
        ("exponential, B/6", np.minimum(g.exponential(50, LONG), 300), 300),
        ("exponential, B/12", np.minimum(g.exponential(50, LONG), 600), 600),
        ("a low triangle", g.triangular(0, 10, 50, LONG), 50),
        ("gamma, B 3,000 times", g.gamma(1.5, 2, LONG), 9000),
        ("lognormal 2", np.minimum(g.lognormal(2, 2, LONG), 20_000), 20_000),
        ("Pareto 1.2", np.minimum(g.pareto(1.2, LONG) * 10, 20_000), 20_000),
        ("half of B", np.full(LONG, 50.0), 100),
        ("1 % at the top", np.where(g.random(LONG) < 0.01, 1e3, g.exponential(10, LONG)), 1000),
    ]
    return [Values(*one) for one in made]


def _held() -> list[Values]:
    g = np.random.default_rng(78)
    return [
        Values("beta(1, 3)", g.beta(1, 3, LONG) * 50, 50),
        Values("three quarters of the range", g.uniform(0, 75, LONG), 100),
        Values("a bell in the middle", np.clip(g.normal(500, 90, LONG), 0, 1000), 1000),
        Values("rising", 200 * np.sqrt(g.random(LONG)), 200),
        Values("B 5,000 times", g.gamma(2, 2, LONG), 20_000),
    ]


def _unseen() -> list[Values]:
    g = np.random.default_rng(79)
    return [
        Values("beta(5, 1.5)", g.beta(5, 1.5, LONG) * 100, 100),
        Values("a triangle", g.triangular(0, 20, 100, LONG), 100),
        Values("nine of ten are 0", np.where(g.random(LONG) < 0.9, 0, g.random(LONG) * 80), 100),
        Values("B 2,000 times", g.exponential(4, LONG), 8000),
    ]


def row_of(one: Values, epsilon: Fraction, runs: int, single: bool = True) -> Row:
    """Squared errors on one set: of the learnt thresholds, and of the best constant one."""
    row: Row = {"set": one.name, "epsilon": float(epsilon)}
    for name, rounds in (("topl", 0), *([("one_round", 1)] if single else [])):
        survey = survey_of(one, epsilon, rounds)
        found = np.array([_learnt(one, survey, run) for run in range(runs)])
        learnt = [int(step) for step in found[:, 0]]
        row.setdefault("covered", float(found[:, 1].mean()))
        values = USERS * float(1 - survey.share)
        row[name] = float(np.mean([told_error(one, survey, step, values) for step in learnt]))
        row[f"{name}_threshold"] = float(np.median([survey.threshold(step) for step in learnt]))
        row[f"{name}_channel"] = float(np.median([step // STEP for step in learnt]))
    errors = squared(one, survey, PLACES * one.top, BEST)
    best = float(PLACES[errors.argmin()] * one.top)
    whole = float(squared(one, survey, np.array([one.top]), USERS)[0])
    return row | {"best": float(errors.min()), "best_threshold": best, "whole": whole}


def survey_of(
    one: Values, epsilon: Fraction, rounds: int, channel: str = ToPLParameters.channel
) -> Survey:
    """The survey of a configuration with only the required settings."""
    top = round(one.top)
    setting = Setting(
        epsilon, Fraction(0), 24, columns=(("value", 0, top),), grids=(Fraction(1),)
    )  # fmt: skip
    return configured(ToPLParameters(salt="heldout", rounds=rounds, channel=channel), setting)


def squared(one: Values, survey: Survey, theta: F64, reports: float) -> F64:
    """Squared error of the mean of ``reports`` value reports by Hybrid, for each threshold."""
    each = np.array([expected(survey, 1, one.square(end)) for end in theta])
    made: F64 = theta**2 * each / (4 * reports) + one.cut(theta) ** 2
    return made


def told_error(one: Values, survey: Survey, step: int, reports: float) -> float:
    """Squared error of the mean of ``reports`` value reports with a published ``step``."""
    theta = float(survey.threshold(step))
    noise = theta**2 * expected(survey, step, one.square(theta)) / (4 * reports)
    return noise + float(one.cut(np.array([theta]))[0]) ** 2


def _learnt(one: Values, survey: Survey, run: int) -> tuple[int, bool]:
    """The step that a survey's reports choose; whether the interval for the share beyond holds."""
    case = one.top, survey.epsilon.numerator, survey.epsilon.denominator
    draw = np.random.default_rng([5, run, crc32(one.name.encode()), *map(int, case)])
    users = int(USERS * survey.share) // survey.rounds
    wide = reports(one, survey, RANGE, survey.buckets, users, draw)
    if survey.rounds == 1:
        exact = density(survey, wide, True)
        told = Steps(threshold(survey, wide, exact))
        return _judged(one, survey, wide, told, exact)
    within = found_range(survey, wide, True, GUARD)
    near = reports(one, survey, NARROW, within, users, draw)
    exact = density(survey, near, True, NARROW)
    told = Steps(found_threshold(survey, near, exact, within), within)
    both = Buckets(*(np.concatenate(parts) for parts in zip(wide, near, strict=True)))
    return _judged(one, survey, both, told, exact)


def _judged(
    one: Values, survey: Survey, seen: Buckets, told: Steps, exact: F64
) -> tuple[int, bool]:
    step = told.theta
    told = told._replace(theta=step % STEP)
    theta, stated = float(survey.threshold(step)), beyond(survey, seen, told, exact)
    share = float((one.value >= theta).mean()) * (told.theta < survey.buckets)
    return step, stated.low <= share * 1e6 <= stated.high


def reports(
    one: Values, survey: Survey, group: int, told: int, users: int, draw: np.random.Generator
) -> Buckets:
    """Reports of a given number of users of a group."""
    words = draw.integers(0, 1 << 64, (users, 3), dtype=np.uint64)
    who = np.full(users, group)
    codes = simulate(survey, draw.choice(one.value, users), who, told, words)
    return Buckets(who, np.full(users, told if group == NARROW else 0), codes, np.ones_like(codes))


def measure(
    half: str, quick: bool, tick: Callable[[Row], object], single: bool = True
) -> list[Row]:
    """Rows of a half; ``tick`` is called with each."""
    rows = []
    for one in sets(half)[:: 2 if quick else 1]:
        for epsilon in EPSILONS[1::2] if quick else EPSILONS:
            rows.append(row_of(one, epsilon, 3, single))
            tick(rows[-1])
    return rows


def totals(rows: list[Row]) -> Row:
    """Ratios of squared errors; each set counts once for each ε."""
    ratio = np.array([row["topl"] / row["best"] for row in rows])
    single = np.array([row["one_round"] / row["best"] for row in rows if "one_round" in row])
    found = {
        "topl_over_best": float(np.median(ratio)),
        "topl_over_best_worst": float(ratio.max()),
        "topl_within_3": float(np.mean(ratio <= 3)),
        "topl_over_whole": float(max(row["topl"] / row["whole"] for row in rows)),
        "topl_cells_over_3": int((ratio > 3).sum()),
        "topl_cells": len(rows),
        "topl_beyond_covered": float(np.mean([row["covered"] for row in rows])),
    }
    if len(single):
        found["topl_one_round_over_best"] = float(np.median(single))
        found["topl_one_round_cells_over_3"] = int((single > 3).sum())
    return found

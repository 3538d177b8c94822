"""ToPL's threshold on values that no constant was tuned on, against the best constant one.

100,000 users hold one value each, drawn from a set, and make one report with the defaults of
`topl`: a tenth of them by Square Wave, from which the threshold theta follows. The other n report
within [0, theta], so the squared error of their mean is at most ``theta² V / 4n + T²``, with V
the worst variance of a report and T what theta cuts off the mean. ``best`` is its least value over
all theta, found with the data in view. Sets are the streams of `_heldout_streams` without their
order, and laws that fill a range or hardly use it.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from _heldout_streams import LONG, streams
from _values import F64
from hushstream.client import Survey
from hushstream.client.survey import RANGE
from hushstream.mechanisms.topl.estimate import Buckets, density, threshold, variances
from hushstream.mechanisms.topl.fit import simulate

USERS, SHARE = 100_000, Fraction(1, 10)
EPSILONS = (Fraction(1, 2), Fraction(1), Fraction(2))
PLACES = np.exp2(-np.arange(0, 20, 1 / 64))  # of theta within the range
Row = dict[str, Any]


class Values(NamedTuple):
    """Values of users and the public end of their range."""

    name: str
    value: F64
    top: float

    def cut(self, theta: F64) -> F64:
        """What each theta cuts off the mean: E[(v - theta)+]."""
        return np.array([np.maximum(self.value - one, 0).mean() for one in theta])


def sets(half: str) -> list[Values]:
    """The sets of a half, "tuned" or "held"."""
    made = [Values(one.name, one.values.astype(np.float64), one.top) for one in streams(half)]
    return made + (_tuned() if half == "tuned" else _held())


def _tuned() -> list[Values]:
    g = np.random.default_rng(77)
    return [
        Values("beta(2, 5)", g.beta(2, 5, LONG) * 100, 100),
        Values("the whole range", g.uniform(0, 100, LONG), 100),
        Values("narrow", g.normal(300, 20, LONG), 1000),
        Values("near the top", 100 - np.minimum(g.exponential(10, LONG), 100), 100),
        Values("B 10,000 times", g.exponential(3, LONG), 30_000),
    ]


def _held() -> list[Values]:
    g = np.random.default_rng(78)
    return [
        Values("beta(1, 3)", g.beta(1, 3, LONG) * 50, 50),
        Values("three quarters of the range", g.uniform(0, 75, LONG), 100),
        Values("a bell in the middle", np.clip(g.normal(500, 90, LONG), 0, 1000), 1000),
        Values("rising", 200 * np.sqrt(g.random(LONG)), 200),
        Values("B 5,000 times", g.gamma(2, 2, LONG), 20_000),
    ]


def row_of(one: Values, epsilon: Fraction, runs: int) -> Row:
    """Squared errors on one set: of the learnt thresholds, and of the best constant one."""
    survey = Survey(epsilon, Fraction(one.top), "heldout", share=SHARE)
    ranged = int(USERS * SHARE)
    noise = float(next(v for g, v in variances(survey).items() if g != RANGE)) / 4
    noise /= USERS - ranged

    def error(theta: F64) -> F64:
        made: F64 = theta**2 * noise + one.cut(theta) ** 2
        return made

    learnt = np.array([_learnt(one, survey, ranged, run) for run in range(runs)])
    errors = error(PLACES * one.top)
    return {
        "set": one.name,
        "epsilon": float(epsilon),
        "topl": float(error(learnt).mean()),
        "best": float(errors.min()),
        "topl_threshold": float(np.median(learnt)),
        "best_threshold": float(PLACES[errors.argmin()] * one.top),
    }


def _learnt(one: Values, survey: Survey, ranged: int, run: int) -> float:
    draw = np.random.default_rng([5, run])
    words = draw.integers(0, 1 << 64, (ranged, 3), dtype=np.uint64)
    group = np.full(ranged, RANGE)
    codes = simulate(survey, draw.choice(one.value, ranged), group, survey.buckets, words)
    zero = np.zeros(ranged, np.int64)
    seen = Buckets(group, zero, codes, np.ones(ranged, np.int64))
    return float(survey.threshold(threshold(survey, seen, density(survey, seen, True))))


def measure(half: str, quick: bool, tick: Callable[[Row], object]) -> list[Row]:
    """Rows of a half; ``tick`` is called with each."""
    rows = []
    for one in sets(half)[:: 4 if quick else 1]:
        for epsilon in EPSILONS[::2] if quick else EPSILONS:
            rows.append(row_of(one, epsilon, 1 if quick else 3))
            tick(rows[-1])
    return rows


def totals(rows: list[Row]) -> Row:
    """Ratios of squared errors; each set counts once for each ε."""
    ratio = np.array([row["topl"] / row["best"] for row in rows])
    return {
        "topl_over_best": float(np.median(ratio)),
        "topl_over_best_worst": float(ratio.max()),
        "topl_cells_over_3": int((ratio > 3).sum()),
        "topl_cells": len(rows),
    }

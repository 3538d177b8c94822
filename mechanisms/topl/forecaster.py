"""Forecast of ToPL: the mean of values that devices perturb themselves.

The search for a threshold is run with simulated devices; the noise of the mean that follows from
it is a formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...client.survey import NARROW, RANGE, VALUE, Survey
from ..advice import Question
from ..columns import F64, I64
from ..forecast import USUAL, Forecast, bound_cut, distinct, percent, rounded, sample_of
from ..keys import Keys
from ..noise.trial import noise_of
from ..workload import Workload
from .estimate import Buckets, density, threshold, variances
from .fit import simulate
from .rounds import found_range, found_threshold
from .settings import ToPLParameters, build

LONGEST = 8  # a window is at least so many times as long as its warm-up
SHARES = ("0.05", "0.1", "0.2", "0.3", "0.4")
_REPEATS = 8  # a threshold varies much, and to search for it costs little


class MeanLook(NamedTuple):
    """The figures of one window: mean, its bias by the threshold, its noise, and the threshold."""

    truth: float
    bias: float
    noise: float
    theta: float
    reports: int


class ToPLForecaster:
    """See `forecast.Forecaster`."""

    score = "root mean squared error of a window's mean, as a share of it"
    squared = True
    stepwise = False
    effort = USUAL

    def candidates(self, question: Question) -> Sequence[Any]:
        """Numbers of rounds, and shares of users who find the threshold; longer warm-ups too."""
        given: ToPLParameters = question.parameters
        horizon, sample = question.setting.horizon, sample_of(question)
        expected = max(1, round(sample.records / max(sample.windows, 1) / horizon))
        known = replace(given, expected=expected)
        made = [given]
        for warmup in dict.fromkeys((given.warmup, max(given.warmup, horizon // LONGEST))):
            one = replace(known, warmup=warmup)
            for rounds in (2, 1) if 2 * warmup < horizon and given.buckets % 16 == 0 else (1,):
                made += [replace(one, rounds=rounds, share=share) for share in SHARES]
        return distinct(made)

    def near(self, question: Question, tuned: Any) -> Sequence[Any]:
        """The same for this number of records, and with a warm-up as long as the window allows.

        One round where the window is short.
        """
        records, horizon = sample_of(question), question.setting.horizon
        expected = max(1, round(records.records / max(records.windows, 1) / horizon))
        known = replace(tuned, expected=expected)
        found = [replace(known, rounds=1 if 2 * tuned.warmup >= horizon else tuned.rounds)]
        longer = max(1, horizon // LONGEST)
        if longer > tuned.warmup:
            found.append(replace(known, warmup=longer))
        return found

    def forecast(self, question: Question, parameters: Any, plays: range) -> Forecast:
        """The figures of one candidate."""
        made = build(parameters, question.setting)
        looks = [
            _look(parameters, made.survey, work, question, (play, place))
            for play in range(_REPEATS * plays.start, _REPEATS * max(plays.stop, plays.start + 1))
            for place, work in enumerate(w for e in sample_of(question).epochs for w in e)
        ]
        cut = bound_cut(question, parameters.reports)
        figures = _figures(looks, cut)
        waits, horizon = parameters.warmup * made.survey.rounds, question.setting.horizon
        return Forecast(
            parameters, figures["score"], "simulation",
            f"one mean at {horizon - waits} of {horizon} triggers of a window; the first ones only "
            "find the threshold",
            f"a window's mean of {rounded(figures['mean'])} is off by {rounded(figures['off'])} "
            f"({percent(figures['score'])}), of which {rounded(figures['bias'])} by the threshold",
            f"values above a threshold of about {rounded(figures['threshold'])} count as that "
            f"much; {figures['reports']:,.0f} reports of a window make its mean",
            cut, None, figures,
        )  # fmt: skip


def _look(
    parameters: ToPLParameters, survey: Survey, work: Workload, question: Question,
    place: tuple[int, int],
) -> MeanLook:  # fmt: skip
    value = np.asarray((work.value if work.value is not None else np.zeros((0, 1)))[:, 0], float)
    value = value * float(question.setting.grids[0])
    batches = list(work.micro_batches(question.setting.horizon))
    words = _words(question, place, len(value))
    share, rounds = float(survey.share), survey.rounds
    draw = (words[:, 0] >> np.uint64(11)).astype(np.float64) * 2.0**-53
    finding = np.minimum((draw / share * rounds).astype(int), rounds)  # rounds: reports a value
    first, then = (
        _rows(batches, 0, parameters.warmup),
        _rows(batches, parameters.warmup, parameters.warmup * rounds),
    )
    told = _reports(survey, value, first[finding[first] == 0], RANGE, survey.buckets, words)
    if rounds == 1:
        theta = threshold(survey, told, density(survey, told, parameters.smooth))
    else:
        within = found_range(survey, told, parameters.smooth)
        near = _reports(survey, value, then[finding[then] == 1], NARROW, within, words)
        theta = found_threshold(
            survey, near, density(survey, near, parameters.smooth, NARROW), within
        )
    end = float(survey.threshold(theta))
    late = _rows(batches, parameters.warmup * rounds, len(batches))
    reports = int((finding[late] == rounds).sum())
    truth = float(value.mean()) if len(value) else 0.0
    noise = end**2 * float(variances(survey)[VALUE]) / (4 * max(reports, 1))
    bias = float(np.maximum(value - end, 0).mean()) if len(value) else 0.0
    return MeanLook(truth, bias, noise**0.5, end, reports)


def _rows(batches: Sequence[slice], first: int, end: int) -> I64:
    """Records of some triggers."""
    parts = [np.arange(one.start, one.stop) for one in batches[first:end]]
    return np.concatenate([np.zeros(0, np.int64), *parts])


def _reports(survey: Survey, value: F64, rows: I64, group: int, told: int, words: Any) -> Buckets:
    """Reports of the devices of a group."""
    who = np.full(len(rows), group)
    codes = simulate(survey, value[rows], who, told, words[rows, 1:])
    theta = np.full(len(rows), told if group == NARROW else 0)
    return Buckets(who, theta, codes, np.ones_like(codes))


def _words(question: Question, place: tuple[int, int], records: int) -> Any:
    """(n, 4) uniform words."""
    noise = noise_of(question.name, *place)
    keys = Keys.of_codes(np.arange(records, dtype=np.uint64))
    bits = noise.bits("report", keys, np.arange(2, dtype=np.int64), np.ones(2, np.int64))
    return bits.reshape(records, 4)


def _figures(looks: Sequence[MeanLook], cut: float) -> dict[str, float]:
    truth, bias, noise, theta, reports = np.array(looks, np.float64).T
    off = float(np.sqrt(np.mean(bias**2 + noise**2)))
    return {
        "mean": float(truth.mean()),
        "off": off,
        "bias": float(bias.mean()),
        "noise": float(noise.mean()),
        "threshold": float(np.median(theta)),
        "reports": float(reports.mean()),
        "cut": cut,
        "score": off / max(abs(float(truth.mean())), 1e-9),
    }

"""Expected errors of a survey, and the choice of its rounds, share and warm-up.

Nothing looks at data. Devices whose large values get e times rarer every s are simulated for the
range and the narrow group, a few times for each choice, with fixed seeds. Formulas give the error
with the resulting threshold: ``theta² V / 4n`` for n value reports, plus the squared loss of the
mean by clipping at theta.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ...client.survey import OCTAVES, VALUE, Survey
from ...errors import ParameterError
from ..columns import F64
from ..contract import Setting
from ..noise.trial import noise_of
from ..validate import positive
from .channels import expected, variances
from .estimate import Buckets
from .settings import ToPLParameters, rounds_of, survey_of
from .trial import learnt, reports, uniform, words_of

SHARES = ("1/20", "1/10", "1/5", "3/10")
TAIL = 24
_RUNS = 5
_LONGEST = 3  # theta is known after at most a third of a window: no value is reported before
_CLOSE = 1.03  # a gain below this is not worth another setting
_MOST = 50_000  # simulated devices of a group; more find the same threshold


class SurveyForecast(NamedTuple):
    """Expectations of one choice of settings, in the value's own unit."""

    parameters: ToPLParameters
    error: float  # root mean squared error of a window's mean
    threshold: float  # median of the simulated thresholds
    chosen_at: int  # trigger that releases the threshold
    range_reports: int  # of one round


class SurveyProposal(NamedTuple):
    """The proposal, the configuration and limits of both; errors in the value's own unit."""

    records: int
    scale: float
    proposed: SurveyForecast
    configured: SurveyForecast
    ideal: float  # with the best threshold, and no users needed to find it
    top: float  # with B as threshold
    largest: float


def choices(parameters: ToPLParameters, horizon: int) -> list[ToPLParameters]:
    """The configuration first, then others: rounds, shares, and warm-ups that end early enough."""
    last = max(horizon // _LONGEST, rounds_of(parameters, horizon) * parameters.warmup)
    made = [parameters]
    for rounds in (1, 2):
        if rounds == 2 and parameters.buckets % OCTAVES:
            continue
        for warmup in _warmups(parameters.warmup, min(last, horizon - 1) // rounds):
            made += [
                replace(parameters, rounds=rounds, share=share, warmup=warmup) for share in SHARES
            ]
    return made


def _warmups(configured: int, last: int) -> Iterator[int]:
    yield from sorted({w for w in (1, configured, last // 2, last) if 1 <= w <= last})


def propose(
    parameters: ToPLParameters,
    setting: Setting,
    records: int | None = None,
    scale: float | None = None,
    tick: Callable[[], None] = lambda: None,
) -> SurveyProposal:
    """The choice of least expected error of a window's mean; the configuration if it is close.

    Args:
        records: reports of a window, if known better than by ``expected``.
        scale: s in the value's own unit; B/24 if unknown.
        tick: called once for each choice.

    Raises:
        ParameterError: an argument is out of range, or the configuration is.
    """
    if records is not None and records < 100:
        raise ParameterError("records", records, "must be at least 100")
    many = records or parameters.expected * setting.horizon
    survey = survey_of(parameters, setting)
    top = float(survey.bound)
    tail = positive("tail-scale", scale) if scale is not None else top / TAIL
    found = []
    for one in choices(parameters, setting.horizon):
        found.append(_forecast(one, setting, many, tail))
        tick()
    best = min(found, key=lambda each: each.error)
    best = found[0] if found[0].error <= _CLOSE * best.error else best
    theta = top * np.exp2(-np.arange(0, OCTAVES, 1 / 16))
    errors = _errors(survey, theta, many, tail)
    return SurveyProposal(
        many, tail, best, found[0], float(errors.min()), float(errors[0]), top
    )  # fmt: skip


def _errors(
    survey: Survey, theta: F64, reports: float, tail: float, variance: F64 | None = None
) -> F64:
    """Root mean squared error of a mean of value reports with each threshold.

    Args:
        variance: variance of a report with each threshold; None: that of Hybrid.
    """
    each = float(variances(survey)[VALUE]) if variance is None else variance
    noise = each / (4 * reports)
    cut = tail * (np.exp(-theta / tail) - math.exp(-float(survey.bound) / tail))
    made: F64 = np.sqrt(theta**2 * noise + np.maximum(cut, 0) ** 2)
    return made


def _forecast(
    parameters: ToPLParameters, setting: Setting, records: int, tail: float
) -> SurveyForecast:
    survey = survey_of(parameters, setting)
    share = survey.share / survey.rounds * Fraction(parameters.warmup, setting.horizon)
    users = max(1, int(records * share))
    steps = [_learnt(survey, parameters, min(users, _MOST), tail, run) for run in range(_RUNS)]
    theta = np.array([float(survey.threshold(step)) for step in steps])
    variance = np.array([_varying(survey, step, tail) for step in steps])
    errors = _errors(survey, theta, records * float(1 - survey.share), tail, variance)
    error = float(np.sqrt(np.mean(errors**2)))
    at = parameters.warmup * survey.rounds
    return SurveyForecast(parameters, error, float(np.median(theta)), at, users)


def _varying(survey: Survey, step: int, tail: float) -> float:
    """Variance of a report that was told a step, about values with an exponential tail."""
    end = float(survey.threshold(step)) / tail
    rest = math.exp(-end)
    first, second = (1 - rest) / end, (2 - rest * (2 + 2 * end)) / end**2  # of min(v, theta)/theta
    return expected(survey, step, 4 * second - 4 * first + 1)


def _learnt(survey: Survey, parameters: ToPLParameters, users: int, tail: float, run: int) -> int:
    """The step chosen by reports about values with an exponential tail."""

    def answer(group: int, told: int) -> Buckets:
        words = words_of(noise_of("advice on a survey", run, group), users)
        value = np.minimum(-tail * np.log1p(-uniform(words)), float(survey.bound))
        return reports(survey, value, group, told, words)

    return learnt(survey, replace(parameters, smooth=True), answer)

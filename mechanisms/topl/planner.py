"""The planner of surveys under local privacy: the mean of values that devices perturb themselves.

The search for a threshold runs with simulated devices; a formula gives the noise of the resulting
mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...client.survey import RANGE, Survey
from ..columns import I64
from ..forecast import bound_cut, by_key, distinct, percent, rounded, sample_of
from ..noise.trial import noise_of
from ..planner import USUAL, Forecast, Option, PlanTable, Question, toml, unlike_default
from ..slots.proposal import value_table
from ..workload import Workload
from .channels import expected
from .estimate import Buckets
from .proposal import SurveyForecast, SurveyProposal, choices, propose
from .settings import ToPLParameters, build
from .trial import learnt, reports, uniform, words_of

FEW = 2000  # reports of a round below which a threshold is mostly chance
LONGEST = 8  # a window is at least this many times as long as its warm-up
SHARES = ("0.05", "0.1", "0.2", "0.3", "0.4")
_REPEATS = 8  # a threshold varies much, and searching for it is cheap


class MeanLook(NamedTuple):
    """The figures of one window: mean, its bias and noise, and the threshold."""

    truth: float
    bias: float
    noise: float
    theta: float
    reports: int


class ToPLPlanner:
    """See `planner.Planner`."""

    options: frozenset[Option] = frozenset({"records", "tail-scale"})
    score = "root mean squared error of a window's mean, as a share of it"
    effort = USUAL._replace(run=60_000, step=0, squared=True)

    def ticks(self, question: Question) -> int:
        """One for each choice tried."""
        return len(choices(question.parameters, question.setting.horizon))

    def propose(self, question: Question, tick: Callable[[], None]) -> dict[str, Any]:
        """Rounds, share and warm-up of least expected error, compared with the configuration."""
        found = propose(
            question.parameters, question.setting, question.records, question.scale, tick
        )
        settings = unlike_default(found.proposed.parameters)
        return {
            "kind": "topl",
            "records": found.records,
            "scale": found.scale,
            "settings": settings,
            "toml": toml("topl", settings),
            "changed": found.proposed.parameters != question.parameters,
            "expected_error": {
                "proposed": found.proposed.error,
                "configured": found.configured.error,
                "ideal": found.ideal,
                "top": found.top,
            },
            "threshold": found.proposed.threshold,
            "threshold_at": found.proposed.chosen_at,
            "range_reports": found.proposed.range_reports,
            "largest_value": found.largest,
            "notes": _notes(found, question.setting.horizon),
        }

    def table(self, name: str, body: dict[str, Any]) -> PlanTable:
        """Errors of a window's mean, and the basis of the threshold."""
        details = [
            ("threshold to expect", f"{body['threshold']:.4g}"),
            ("reports of a round that finds it", f"{body['range_reports']:,}"),
        ]
        return value_table(name, body, "window's mean", details)

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
        """The tuned settings for this number of records, with the longest possible warm-up.

        One round if the window is short.
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
        squares = np.array([one.bias**2 + one.noise**2 for one in looks])
        each = by_key(squares / max(abs(figures["mean"]), 1e-9) ** 2, max(len(plays), 1))
        waits, horizon = parameters.warmup * made.survey.rounds, question.setting.horizon
        return Forecast(
            parameters, figures["score"], "simulation",
            f"one mean at {horizon - waits} of {horizon} triggers of a window; the first ones only "
            "find the threshold",
            f"a window's mean of {rounded(figures['mean'])} is off by {rounded(figures['off'])} "
            f"({percent(figures['score'])}), of which {rounded(figures['bias'])} by the threshold",
            f"values above a threshold of about {rounded(figures['threshold'])} count as that "
            f"much; {figures['reports']:,.0f} reports of a window make its mean",
            cut, None, figures, each=each,
        )  # fmt: skip


def _look(
    parameters: ToPLParameters, survey: Survey, work: Workload, question: Question,
    place: tuple[int, int],
) -> MeanLook:  # fmt: skip
    value = np.asarray((work.value if work.value is not None else np.zeros((0, 1)))[:, 0], float)
    value = value * float(question.setting.grids[0])
    batches = list(work.micro_batches(question.setting.horizon))
    words = words_of(noise_of(question.name, *place), len(value))
    share, rounds = float(survey.share), survey.rounds
    finding = np.minimum((uniform(words) / share * rounds).astype(int), rounds)  # rounds: a value

    def answer(group: int, told: int) -> Buckets:
        turn = 0 if group == RANGE else 1
        rows = _rows(batches, turn * parameters.warmup, (turn + 1) * parameters.warmup)
        mine = rows[finding[rows] == turn]
        return reports(survey, value[mine], group, told, words[mine])

    step = learnt(survey, parameters, answer)
    end = float(survey.threshold(step))
    late = _rows(batches, parameters.warmup * rounds, len(batches))
    many = int((finding[late] == rounds).sum())
    truth = float(value.mean()) if len(value) else 0.0
    square = float(np.mean((np.minimum(value, end) * 2 / end - 1) ** 2)) if len(value) else 1.0
    noise = end**2 * expected(survey, step, square) / (4 * max(many, 1))
    bias = float(np.maximum(value - end, 0).mean()) if len(value) else 0.0
    return MeanLook(truth, bias, noise**0.5, end, many)


def _rows(batches: Sequence[slice], first: int, end: int) -> I64:
    """Records of some triggers."""
    parts = [np.arange(one.start, one.stop) for one in batches[first:end]]
    return np.concatenate([np.zeros(0, np.int64), *parts])


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


def _notes(found: SurveyProposal, horizon: int) -> list[str]:
    best = found.proposed
    notes = [f"no value is reported about a window before trigger {best.chosen_at} of {horizon}"]
    if best.range_reports < FEW:
        notes.append(
            f"a round has {best.range_reports:,} reports: below {FEW:,} a threshold is mostly "
            "chance; lengthen the window or ask more users"
        )
    if _worse_than_top(best, found):
        notes.append(
            f"a threshold gains nothing over B = {found.largest:g} here; lower `high` if a smaller "
            "bound is public"
        )
    return notes


def _worse_than_top(best: SurveyForecast, found: SurveyProposal) -> bool:
    return best.error >= found.top

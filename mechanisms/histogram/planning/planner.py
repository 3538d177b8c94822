"""The planner of histograms: keys that appear, the error of their counts, records cut off."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

import numpy as np

from ....errors import ParameterError
from ...columns import F64
from ...contract import Setting
from ...forecast import by_key, counted, distinct, percent, sample_of
from ...noise.trial import noise_of
from ...planner import USUAL, Forecast, Option, Question
from ..settings import HistogramParameters
from ..tumbling import build
from . import formulas, proposal
from .formulas import WindowForecast
from .play import Run, numbered
from .tune import BUDGETS, plays, resolved

WEIGHTS = (0.3, 0.0)
SHARES = (0.1, 0.5, 0.9)
RUN = 4  # candidates that are run: the formulas are accurate enough to exclude the others


class HistogramPlanner:
    """See `planner.Planner`."""

    options: frozenset[Option] = frozenset({"sample", "shape"})
    score = "error of all counts together, hidden ones included, as a share of their total"
    effort = USUAL
    propose = staticmethod(proposal.proposed)
    table = staticmethod(proposal.table)

    def ticks(self, question: Question) -> int:
        """Candidates to play."""
        repeats = proposal.repeats_of(proposal.sample_of(question))
        return plays(question.parameters, question.setting, repeats)

    def candidates(self, question: Question) -> Sequence[Any]:
        """The given settings, then other bounds, weights, factorisations and splits of δ.

        The formulas rank them where they apply: bounds and weights first, then everything else
        around the best two of these.
        """
        given: HistogramParameters = question.parameters
        start = resolved(given, question.setting)
        if given.selection == "rounds":
            return [start, *(replace(start, budget=one) for one in BUDGETS if one >= 2)]
        if question.setting.distinct:  # formulas count records, so every bound is run
            return distinct([start, *_bounds(start, question)])
        made = _ranked(question, [start, *_bounds(start, question)])
        around = [other for one in made[:2] for other in _around(one, question)]
        best = _ranked(question, [*made[:2], *around])
        return distinct([start, *best[:RUN]])

    def near(self, question: Question, tuned: Any) -> Sequence[Any]:
        """The same with smaller and larger bounds."""
        tuned = resolved(tuned, question.setting)
        budget = tuned.budget or 1.0
        changed = {
            name: getattr(question.parameters, name) for name in ("delay", "aggregate", "min_users")
        }
        made = [max(1.0, round(budget * times)) for times in (1, 0.5, 2)]
        return [replace(tuned, budget=float(one), **changed) for one in dict.fromkeys(made)]

    def forecast(self, question: Question, parameters: Any, plays: range) -> Forecast:
        """The figures of one candidate, by formulas, or by running it."""
        if not plays and parameters.selection == "threshold" and not question.setting.distinct:
            made = formulas.forecast(parameters, question.setting, sample_of(question).epochs)
            return told(question, parameters, made, "formula")
        mechanism = _built(parameters, of_sample(question.setting))
        looks: list[WindowForecast] = []
        for play in plays or range(1):
            for epoch in sample_of(question).epochs:
                units = None
                for work in epoch:
                    noise = noise_of(question.name, play, len(looks))
                    run = Run(mechanism, work, noise, mechanism.delay, units=units)
                    looks.append(_look(run))
                    units = run.units
        found = told(question, parameters, looks, "simulation")
        each = [_of_one(look)["score"] for look in looks]
        return found._replace(each=by_key(each, max(len(plays), 1)))


@lru_cache(maxsize=32)
def _built(parameters: HistogramParameters, setting: Setting) -> Any:
    return build(parameters, setting)


def of_sample(setting: Setting) -> Setting:
    """The setting with the sample's key numbers instead of public keys."""
    if setting.keys is None:
        return setting
    return replace(setting, keys=tuple(numbered(np.arange(len(setting.keys)), setting.distinct)))


def _bounds(start: HistogramParameters, question: Question) -> Iterator[HistogramParameters]:
    """Every bound of a ladder, with and without adaptive weights."""
    adaptive = question.setting.keys is None and start.aggregate == "values"
    choice = adaptive and start.bound == "quadratic"
    for weight in WEIGHTS if choice else (start.adaptive_weight,):
        for budget in BUDGETS:
            if not weight or budget * weight**2 >= 0.1:
                yield replace(start, budget=budget, adaptive_weight=weight)


def _around(best: HistogramParameters, question: Question) -> Iterator[HistogramParameters]:
    """Everything else around good bounds."""
    budget = best.budget or 1.0
    for more in (0.7, 1.4) if best.bound == "quadratic" else ():
        yield replace(best, budget=float(max(1.0, round(budget * more, 1))))
    if question.setting.horizon > 1:
        for name in ("terminal", "final"):
            for share in SHARES if question.setting.keys is None else (best.threshold_delta_share,):
                yield replace(best, factorization=name, threshold_delta_share=share)
    elif question.setting.keys is None:
        yield from (replace(best, threshold_delta_share=share) for share in SHARES)
    if question.setting.columns and question.setting.count:
        yield from (replace(best, count_share=share) for share in SHARES)


def _ranked(question: Question, made: Sequence[HistogramParameters]) -> list[HistogramParameters]:
    """Candidates in order of the error by the formulas, without impossible ones."""
    scores = []
    for place, one in enumerate(distinct(made)):
        try:
            looks = formulas.forecast(one, question.setting, sample_of(question).epochs)
        except ParameterError:
            continue
        scores.append((told(question, one, looks, "formula").score, place, one))
    return [one for _, _, one in sorted(scores, key=lambda found: found[:2])]


def _look(run: Run) -> WindowForecast:
    """Run a window to its end."""
    truth: F64 = np.zeros(())
    for rows in run.work.micro_batches(run.mechanism.horizon):
        run.step(rows)
        truth = truth + run.work.exact(run.mechanism, rows, run.counted)
    shown = run.status > 0
    values = run.values if run.values.shape[1] else truth * shown[:, None]
    error = np.where(shown[:, None], np.abs(values - truth), np.abs(truth))
    records = len(run.work.unit) if run.counted is None else int(run.counted.sum())
    if run.memory.mechanism.traits.pairs:
        records = run.work.shown()
    return WindowForecast(
        truth, error, shown.astype(np.float64), max(0, records - run.accepted), records
    )


def told(question: Question, parameters: Any, looks: Sequence[WindowForecast], by: Any) -> Forecast:
    """The figures of all windows in numbers and words."""
    figures = _figures(looks)
    unknown = question.setting.keys is None
    plain = plainest(question.parameters, parameters, question.setting)
    what = "distinct units" if parameters.of_units else "records"
    if question.setting.distinct:
        what = "distinct values"
    return Forecast(
        plain, figures["score"], by, _seen(figures, question.setting, what),
        _off(figures, question.setting), "; ".join(losses(figures, unknown, what)), figures["cut"],
        1 - figures["shown"] / max(figures["keys"], 1) if unknown else None, figures,
        _measure(question.setting),
    )  # fmt: skip


def _measure(setting: Setting) -> str:
    """Name what the score measures where values are summed; a mean is a sum over a count."""
    if not setting.columns:
        return ""
    every = (["all counts"] if setting.count else []) + [
        f"all sums of {name}" for name, _, _ in setting.columns
    ]
    mean = ", on average over these" if len(every) > 1 else ""
    return f"error of {' and of '.join(every)}, hidden ones included, as a share of the total{mean}"


def plainest(
    given: HistogramParameters, parameters: HistogramParameters, setting: Setting
) -> HistogramParameters:
    """The same settings, but with the user's value wherever it is equivalent."""
    start, whole = resolved(given, setting), resolved(parameters, setting)
    same = [f.name for f in fields(start) if getattr(start, f.name) == getattr(whole, f.name)]
    plain = replace(whole, **{name: getattr(given, name) for name in same})
    return plain if resolved(plain, setting) == whole else whole


def _figures(looks: Sequence[WindowForecast]) -> dict[str, float]:
    each = [_of_one(look) for look in looks]
    return {name: float(np.mean([one[name] for one in each])) for name in each[0]}


def _of_one(look: WindowForecast) -> dict[str, float]:
    first = np.abs(look.truth[:, 0])
    real = first > 0
    weight = look.chance * real
    size = np.abs(look.truth).sum(axis=0)
    total = max(float(first.sum()), 1.0)
    return {
        "keys": float(real.sum()),
        "shown": float(weight.sum()),
        "covered": float((first * weight).sum()) / total,
        "typical": _median(first, weight),
        "off": _median(look.error[:, 0], weight),
        "cut": look.cut / max(look.records, 1),
        "score": float(np.mean(look.error.sum(axis=0) / np.maximum(size, 1))),
    }


def _median(values: F64, weight: F64) -> float:
    """Weighted median; 0 where there is no weight."""
    if not weight.sum():
        return 0.0
    order = np.argsort(values, kind="stable")
    upto = np.cumsum(weight[order])
    return float(values[order][int(np.searchsorted(upto, upto[-1] / 2))])


def _seen(figures: dict[str, float], setting: Setting, what: str) -> str:
    if setting.keys is not None:
        return f"all {_keys(len(setting.keys))} of the public list, in every window"
    return (
        f"about {figures['shown']:,.0f} of {_keys(figures['keys'])} in a window, with "
        f"{figures['covered']:.0%} of the {what}"
    )


def _keys(number: float) -> str:
    text = f"{number:,.0f}"
    return f"{text} key" if text == "1" else f"{text} keys"


def _off(figures: dict[str, float], setting: Setting) -> str:
    if not figures["shown"]:
        return "nothing is shown"
    share = figures["off"] / max(figures["typical"], 1)
    what = "count" if setting.count or not setting.columns else f"sum of {setting.columns[0][0]}"
    return (
        f"a shown {what} is typically off by {counted(figures['off'])} where it is "
        f"{counted(figures['typical'])} ({percent(share)})"
    )


def losses(figures: dict[str, float], unknown: bool, what: str = "records") -> Iterator[str]:
    """Say what a bound cuts off and a threshold hides, in words; ``what`` is counted."""
    cut = figures["cut"]
    yield f"the bound cuts off {cut:.1%} of the {what}" if cut else "the bound cuts nothing off"
    if unknown:
        hidden = f"{figures['keys'] - figures['shown']:,.0f}"
        keys = "key stays" if hidden == "1" else "keys stay"
        yield f"{hidden} {keys} hidden, with {1 - figures['covered']:.0%} of the {what}"

"""The planner of quantiles: the error of ranks, keys that appear, records cut off."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from ...errors import ParameterError
from ..columns import F64
from ..contract import Setting
from ..forecast import by_key, counted, distinct, percent, sample_of
from ..histogram.planning.planner import losses, of_sample
from ..histogram.planning.tune import BUDGETS
from ..in_memory import last_release
from ..noise.trial import noise_of
from ..planner import USUAL, Forecast, Head, Option, PlanTable, Question, toml, unlike_default
from ..workload import Workload
from . import formulas
from .bands import HEIGHTS
from .formulas import RankLook
from .mechanism import Quantiles
from .settings import QuantileParameters, build

SHARES = (0.05, 0.1, 0.2, 0.4)  # of the count
RUN = 2  # number of bounds to run, each with every number of bands


class QuantilePlanner:
    """See `planner.Planner`."""

    options: frozenset[Option] = frozenset({"sample", "shape"})
    score = (
        "records between released and exact quantiles, and all of hidden keys, as a share of the "
        "records"
    )
    effort = USUAL._replace(run=200_000, step=0)  # releases do not depend on each other

    def ticks(self, question: Question) -> int:
        """Zero: errors follow from formulas."""
        return 0

    def propose(self, question: Question, tick: Callable[[], None]) -> dict[str, Any]:
        """Bound and count share with the least error by the formulas."""
        if question.sample is None:
            raise ParameterError("sample", None, "settings of quantiles are tried on a sample")
        given: QuantileParameters = question.parameters
        ranked = self._ranked(question, _choices(question, given))
        best, now = ranked[0], self.forecast(question, given, range(0))
        # A setting that gains less than a hundredth keeps the user's value.
        changed = best.score < 0.99 * now.score
        shown = best if changed else now
        settings = unlike_default(shown.parameters)
        return {
            "kind": "quantile",
            "source": question.source,
            "settings": settings,
            "toml": toml("quantile", settings),
            "changed": changed,
            "proposed": _figures_of(shown),
            "configured": _figures_of(now),
            "candidates": [_figures_of(one) for one in ranked],
            "notes": [*question.sample.notes, *_notes(question)],
        }

    def table(self, name: str, body: dict[str, Any]) -> PlanTable:
        """The configured settings, then all others that were tried."""
        rows = [("configured", body["configured"]), ("proposed", body["proposed"])]
        rows += [("", one) for one in body["candidates"][:8]]
        lines = tuple(
            (
                mark, counted(one["budget"]), f"{one['count_share']:g}", counted(one["rank"]),
                f"{one['shown']:,.0f}", percent(one["score"]),
            )
            for mark, one in rows
        )  # fmt: skip
        heads = tuple(map(Head, ("", "budget", "count share", "rank ±", "keys", "error")))
        intro = (
            f"{name}, by formulas, after {body['source']}. This must be a guess, or public or "
            "synthetic data: settings that are tuned on the protected stream leak it."
        )
        return PlanTable(intro, f"{name}: error of ranks at a window's last trigger", heads, lines)

    def candidates(self, question: Question) -> Sequence[Any]:
        """The given settings, then the best bounds by the formulas with every number of bands."""
        given: QuantileParameters = question.parameters
        best = [one.parameters for one in self._ranked(question, _choices(question, given))[:RUN]]
        each = dict.fromkeys((given.bands, *HEIGHTS))
        return distinct([given, *(replace(one, bands=number) for one in best for number in each)])

    def near(self, question: Question, tuned: Any) -> Sequence[Any]:
        """The tuned settings with smaller and larger bounds."""
        budget = _budget(tuned, question.setting)
        made = dict.fromkeys(max(1.0, round(budget * times)) for times in (1, 0.5, 2))
        return [replace(tuned, budget=float(one)) for one in made]

    def forecast(self, question: Question, parameters: Any, plays: range) -> Forecast:
        """The figures of one candidate, by formulas or by running it on a sample's values."""
        made = _built(parameters, of_sample(question.setting))
        epochs = sample_of(question).epochs
        looks = formulas.forecast(made, epochs)
        valued = all(work.columns for epoch in epochs for work in epoch)
        if not (plays and valued):
            return _told(question, parameters, made, looks, "formula")
        works = [work for epoch in epochs for work in epoch]
        found = [
            _run(made, work, look, noise_of(question.name, play, place))
            for play in plays
            for place, (work, look) in enumerate(zip(works, looks, strict=True))
        ]
        each = by_key([_of_one(look)["score"] for look in found], len(plays))
        return _told(question, parameters, made, found, "simulation")._replace(each=each)

    def _ranked(self, question: Question, made: Sequence[QuantileParameters]) -> list[Forecast]:
        """Forecasts by the formulas, best first, without impossible candidates."""
        found = []
        for one in made:
            try:
                found.append(self.forecast(question, one, range(0)))
            except ParameterError:
                if one == question.parameters:  # the given settings must be possible
                    raise
        return sorted(found, key=lambda one: one.score)


@lru_cache(maxsize=64)
def _built(parameters: QuantileParameters, setting: Setting) -> Quantiles:
    return build(parameters, setting)


def _budget(parameters: QuantileParameters, setting: Setting) -> float:
    bound = _built(parameters, setting).bound
    return bound.left / bound.weights[0]


def _choices(question: Question, given: QuantileParameters) -> list[QuantileParameters]:
    """The given settings, and every bound of a ladder with every share of the count."""
    shares: tuple[float | None, ...] = (given.count_share,)
    if question.setting.keys is None:
        shares = tuple(dict.fromkeys((given.count_share, *SHARES)))
    made = [
        replace(given, budget=budget, count_share=share) for budget in BUDGETS for share in shares
    ]
    return distinct([given, *made])


def _run(made: Quantiles, work: Workload, look: RankLook, noise: Any) -> RankLook:
    """A window's last release compared with exact ranks; `formulas` gives what the bound cuts.

    Keys that only an earlier trigger would have selected are missing.
    """
    out = last_release(made, work, noise)
    code = out.key.codes().astype(np.int64)
    shown = np.zeros(work.keys)
    shown[code] = 1
    off = np.zeros(work.keys)
    steps = made.bands.steps(np.asarray((work.columns or {})["value"], np.float64))
    order = np.lexsort((steps, work.key))
    starts = np.searchsorted(work.key[order], np.arange(work.keys + 1))
    sign = work.signs(slice(None)).astype(np.int64)
    for row, key in enumerate(code.tolist()):
        mine = order[starts[key] : starts[key + 1]]
        upto = np.concatenate([[0], np.cumsum(sign[mine])])
        values = out.value[row, : len(made.at)]
        ends = [upto[np.searchsorted(steps[mine], values, side)] for side in ("left", "right")]
        wanted = np.array([float(q) for q in made.at]) * upto[-1]
        # Records that equal the value count on both sides of it.
        off[key] = np.maximum(np.maximum(ends[0] - wanted, wanted - ends[1]), 0).mean()
    return look._replace(error=off, chance=shown)


def _told(
    question: Question, parameters: Any, made: Quantiles, looks: Sequence[RankLook], by: Any
) -> Forecast:
    """The figures of all windows in numbers and words."""
    each = [_of_one(look) for look in looks]
    figures = {name: float(np.mean([one[name] for one in each])) for name in each[0]}
    inverse = [1 / one.variance for one in made.processes]
    figures |= {
        "rank": float(np.mean(formulas.deviations(made, made.horizon))),
        "budget": made.bound.left / made.bound.weights[0],
        "count_share": float(inverse[-1] / sum(inverse)),
    }
    unknown = question.setting.keys is None
    return Forecast(
        parameters, figures["score"], by, _seen(figures, unknown), _off(figures),
        "; ".join(losses(figures, unknown)), figures["cut"],
        1 - figures["shown"] / max(figures["keys"], 1) if unknown else None, figures,
    )  # fmt: skip


def _of_one(look: RankLook) -> dict[str, float]:
    real = look.truth > 0
    truth = np.where(real, look.truth, 0.0)
    total = max(float(truth.sum()), 1.0)
    error = np.minimum(look.error, truth) * look.chance + truth * (1 - look.chance)
    return {
        "keys": float(real.sum()),
        "shown": float((look.chance * real).sum()),
        "covered": float((truth * look.chance).sum()) / total,
        "typical": _mean(truth, look.chance * real),
        "off": _mean(look.error, look.chance * real),
        "cut": look.cut / max(look.records, 1),
        "score": float(error.sum()) / total,
    }


def _mean(values: F64, weight: F64) -> float:
    return float((values * weight).sum() / max(float(weight.sum()), 1e-12))


def _seen(figures: dict[str, float], unknown: bool) -> str:
    keys = f"{figures['keys']:,.0f}"
    if not unknown:
        return f"quantiles of all keys of the public list; {keys} of them have records in a window"
    return (
        f"quantiles of about {figures['shown']:,.0f} of {keys} keys in a window, with "
        f"{figures['covered']:.0%} of the records"
    )


def _off(figures: dict[str, float]) -> str:
    if not round(figures["shown"]):
        return "nothing is shown"
    share = figures["off"] / max(figures["typical"], 1)
    return (
        f"the rank of a quantile is off by {counted(figures['off'])} records where a key has "
        f"{counted(figures['typical'])} ({percent(share)}), on average over shown keys"
    )


def _figures_of(one: Forecast) -> dict[str, Any]:
    """A candidate as plain numbers."""
    names = ("budget", "count_share", "rank", "shown", "keys", "cut", "score")
    return {name: one.figures[name] for name in names}


def _notes(question: Question) -> Iterator[str]:
    yield (
        "bands are taken for narrow: --sample without --tune runs the mechanism on the values of a "
        "file, with 16, 64 and 256 of them"
    )

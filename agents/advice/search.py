"""Three ways to go for a pipeline, foretold from a whole public or synthetic file.

The settings of the mechanism are searched for the pipeline as it is. Around the best of them other
windows, triggers, keys and ε are foretold, and the first change that helps enough is worked out in
the same way: once at the same ε, once with another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import ConfigError, ParameterError
from ...mechanisms import registry
from ...mechanisms.advice import Question, toml, unlike_default
from ...mechanisms.forecast import Forecast, Forecaster, choose, cost_of, runs, window_cost
from ...mechanisms.workload import Sample
from ...topics.config.pipeline import PipelineSettings
from ...topics.config.values import format_duration
from ...topics.schedule import Schedule
from ...topics.unusable import in_words
from ..deployment.compile import parameters_of, setting_of, value_columns
from ..deployment.model import Pipeline
from .cut import SampleRoom, cut, sample
from .records import Records
from .remedies import GROUPS, STEPS, Needed, Trial, group_of, needed, trials, untried
from .variants import Variant, cheaper, coarser, dearer, given, shorter

MOST = 200_000  # records of the windows that are run; a single window is taken whole
WORK = 8_000_000  # records that are run for one alternative, all candidates together
ONE = WORK // 12  # likewise of one run: whole windows are left out beyond that
GOOD = 0.2  # the error that a person wants, as a share of the exact figures
FINE = 0.05  # an error that leaves room for more detail
MOST_VARIANTS = 16
KEYS = 4  # most noise keys with which a variant or another mechanism is compared
BOTH = GROUPS[3]  # worth a try where neither part of it is enough
SIBLINGS = {"pak": "tops", "tops": "pak", "phdstream": "privhp", "privhp": "phdstream"}
_GIVEN_BY_PIPELINE = ("delay", "aggregate")


class Alternative(NamedTuple):
    """One way to go.

    Attributes:
        title: what it is, against the configuration.
        variant: the changed pipeline.
        best: the best settings of its mechanism.
        as_given: the settings that were given, foretold alike; None where they do not fit.
        settings: of the mechanism, unlike its defaults.
        cost: ε and δ, per whom and per what.
        window: facts about a window: records, units, windows of the file, and notes.
    """

    title: str
    variant: Variant
    best: Forecast
    as_given: Forecast | None
    settings: dict[str, Any]
    cost: str
    window: dict[str, float]
    notes: tuple[str, ...]


class Answer(NamedTuple):
    """All ways, with what was assumed; ``other`` names another mechanism for the question.

    Where the first way is hopeless, ``tried``, ``untried`` and ``needed`` say what would help.
    ``missing`` says why there are not three.
    """

    measure: str
    ways: tuple[Alternative, ...]
    assumed: tuple[str, ...]
    other: str
    tried: tuple[Trial, ...] = ()
    untried: tuple[str, ...] = ()
    needed: Needed | None = None
    missing: tuple[str, ...] = ()


class Search:
    """The search for one pipeline.

    Args:
        pipeline: compiled.
        settings: as they were read.
        records: of the file.
        tick: called after each run and each variant.

    Raises:
        ConfigError: nothing is known about the mechanism.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        settings: PipelineSettings,
        records: Records,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        found = registry.FORECASTERS.get(pipeline.kind)
        if found is None:
            raise ConfigError(f"pipeline {pipeline.name!r}: {pipeline.kind} has no forecast")
        self._forecaster: Forecaster = found
        self._p, self._records, self._tick = pipeline, records, tick
        self._base = given(settings, records, pipeline.public_keys)
        self._tried: list[tuple[Variant, float]] = []

    def ticks(self) -> int:
        """Most calls of ``tick``."""
        question = self._question(self._base)
        return 3 * runs(self._forecaster, question, WORK) + 3 * MOST_VARIANTS + STEPS

    def answer(self, path: Path) -> Answer:
        """Find three ways.

        Args:
            path: of the file, to be named.

        Raises:
            ParameterError: the configuration contradicts itself.
        """
        base = self._way("as it is asked for", self._base, None)
        tuned, score = base.best, base.best.score
        ways = [base]
        if score > FINE:
            target = GOOD if score > GOOD else score / 2
            second = self._first(coarser(self._base, self._records), tuned, target)
            third = self._first(dearer(self._base), tuned, target)
            titles = "the same ε, with less detail", "the same detail, with a larger ε"
        else:
            second = self._first(shorter(self._base), tuned, GOOD)
            third = self._first(cheaper(self._base), tuned, GOOD)
            titles = "the same ε, with more detail", "the same detail, with a smaller ε"
        missing = []
        for title, (variant, found) in zip(titles, (second, third), strict=True):
            if variant is not None:
                ways.append(self._way(title, variant, tuned))
            else:
                missing.append(no_way(title, found, score))
        if len(ways) < 3 and score <= FINE:
            more, _ = self._first(dearer(self._base), tuned, score / 2)
            if more is not None:
                ways.append(self._way("the same detail, with a larger ε", more, tuned))
        answer = Answer(
            self._forecaster.score, tuple(ways), tuple(self._assumed(path)), self._other(tuned),
            missing=tuple(missing),
        )  # fmt: skip
        if not tuned.hopeless:
            return answer
        searched = {one.variant.words: one.best.score for one in ways[1:]}
        tried = tuple(trials(self._tried, searched))
        return answer._replace(
            tried=tried, untried=tuple(untried(self._base, self._records, tried)),
            needed=self._needed(tuned),
        )  # fmt: skip

    def _first(
        self, variants: Iterable[Variant], tuned: Forecast, target: float
    ) -> tuple[Variant | None, list[tuple[Variant, float]]]:
        """The first variant that reaches the target, else the best, and all that were tried.

        There is none where nothing is any better.

        Where the pipeline is hopeless, people want to know what every kind of change would give, so
        the others are tried as well.
        """
        found: list[tuple[Variant, float]] = []
        reached: dict[str, Variant] = {}
        for variant in islice(variants, MOST_VARIANTS):
            group = group_of(variant)
            if group in reached or (reached and group == BOTH):
                continue
            score = self._quick(variant, tuned)
            self._tick()
            if score is None:
                continue
            found.append((variant, score))
            if score <= target:
                reached[group] = variant
                if not tuned.hopeless:
                    break
        self._tried += found
        if reached:
            return next(iter(reached.values())), found
        best = min(found, default=None, key=lambda one: one[1])
        return best[0] if best is not None and best[1] < tuned.score else None, found

    def _quick(self, variant: Variant, tuned: Forecast) -> float | None:
        """The least error near the tuned settings, by formulas where there are any."""
        try:
            return self._least(self._question(variant), tuned)
        except (ParameterError, ConfigError):
            return None

    def _least(self, question: Question, tuned: Forecast) -> float | None:
        scores, keys = [], max(1, min(KEYS, WORK // (16 * cost_of(self._forecaster, question))))
        for parameters in self._forecaster.near(question, tuned.parameters):
            try:
                found = self._forecaster.forecast(question, parameters, range(0))
                if found.by == "simulation":  # one noise key decides nothing
                    found = self._forecaster.forecast(question, parameters, range(keys))
            except ParameterError:
                continue
            scores.append(found.score)
        return min(scores, default=None)

    def _needed(self, tuned: Forecast) -> Needed:
        """The number of times more units that a window would need, near the tuned settings."""
        question = self._question(self._base)
        assert question.sample is not None  # a question of this search has one

        def judge(sample: Sample) -> float | None:
            self._tick()
            try:
                return self._least(question._replace(sample=sample), tuned)
            except ParameterError:
                return None

        return needed(question.sample, tuned.score, GOOD, judge)

    def _way(self, title: str, variant: Variant, tuned: Forecast | None) -> Alternative:
        question = self._question(variant)
        found, left_out = choose(self._forecaster, question, WORK, self._tick)
        kept = [one for one in found if one.parameters == question.parameters]
        shown = question.sample
        assert shown is not None  # a question of this search has one
        whole = cut(self._records, Schedule.of(variant.settings))
        facts = {
            "records": whole.records / max(len(whole.numbers), 1),
            "units": shown.units / max(shown.windows, 1),
            "windows": float(len(whole.numbers)),
            "run": float(shown.windows),
        }
        settings = self._settings(variant, question.parameters, found[0].parameters)
        more = untried_settings(left_out, shown.windows, question.setting.horizon)
        return Alternative(
            title, variant, found[0], kept[0] if kept else None, settings, self._cost(variant),
            facts, (*shown.notes, *more),
        )  # fmt: skip

    def _question(self, variant: Variant) -> Question:
        settings, p = variant.settings, self._p
        schedule = Schedule.of(settings)
        columns = value_columns(settings)
        keys = p.public_keys if settings.public_keys is not None else None
        setting = setting_of(settings, schedule, columns, keys, self._p.cells_partitions)
        parameters = parameters_of(settings)
        mechanism = registry.build(p.kind, parameters, setting)
        asked = Question(
            p.name, parameters, setting, mechanism, None, "the sample", "last", None, None
        )
        room = SampleRoom(MOST, ONE, window_cost(self._forecaster, asked))
        found = cut(self._records, schedule)
        return asked._replace(
            sample=sample(self._records, schedule, found, room, *variant.numbering)
        )

    def _settings(self, variant: Variant, framed: Any, best: Any) -> dict[str, Any]:
        """Settings to write: those that were given, and those that the search changed."""
        written = variant.settings.mechanism.parameters
        changed = {
            one.name: getattr(best, one.name)
            for one in fields(best)
            if getattr(best, one.name) != getattr(framed, one.name)
            and one.name not in _GIVEN_BY_PIPELINE
        }
        kept = {n: v for n, v in unlike_default(written).items() if n not in _GIVEN_BY_PIPELINE}
        return {name: value for name, value in (kept | changed).items() if value is not None}

    def _cost(self, variant: Variant) -> str:
        budget, settings = variant.settings.budget, variant.settings
        epoch = format_duration(settings.epoch_length)
        share = f", δ = {float(budget.delta):g}" if budget.delta else ""
        return (
            f"ε = {float(Fraction(budget.epsilon)):g}{share} for each {self._p.unit_name}, anew "
            f"every {epoch}"
        )

    def _assumed(self, path: Path) -> Iterable[str]:
        records = self._records
        used = len(records.time)
        of = "all" if used == records.read else f"{used:,}"
        unit = " and ".join(self._p.config["input"]["unit"])
        name = "" if self._p.unit_name == "unit" else f", here a {self._p.unit_name},"
        yield (
            f"the stream is like {path.name}: {records.read:,} records, {of} of which can be used"
        )
        yield (
            f"all records with the same {unit} are one privacy unit{name} which is protected as a "
            f"whole: the file holds {records.units:,} of them"
        )
        if records.faults:
            yield f"records that cannot be used stay rare: {in_words(records.faults)}"
        if not records.timed:
            yield "the file has no times, so it is one window with records spread evenly"
        if records.units == used:
            yield "every record is a unit of its own: if one can send more, a bound cuts the rest"

    def _other(self, tuned: Forecast) -> str:
        """The error of another mechanism that answers the same question."""
        kind = SIBLINGS.get(self._p.kind)
        if kind is None:
            return ""
        entry, before = registry.find(kind), self._base.settings.mechanism.parameters
        shared = {one.name for one in fields(entry.parameters)}
        kept = {n: v for n, v in unlike_default(before).items() if n in shared}
        try:
            parameters = entry.framed(
                entry.parameters(**_adapted(kind, kept)), self._base.settings.frame
            )
            asked = self._question(self._base)
            mechanism = registry.build(kind, parameters, asked.setting)
            question = asked._replace(parameters=parameters, mechanism=mechanism)
            forecaster = registry.FORECASTERS[kind]
            near = forecaster.near(question, parameters)
            each = cost_of(forecaster, question)
            keys = range(max(1, min(KEYS, WORK // (4 * len(near) * each))))
            found = min(forecaster.forecast(question, one, keys).score for one in near)
        except ParameterError:
            return ""
        compared = "a smaller" if found < tuned.score else "no smaller"
        return (
            f'kind = "{kind}" answers the same question, with {compared} error: about '
            f"{found:.1%} before its settings are searched, where {self._p.kind} has "
            f"{tuned.score:.1%} after that"
        )


def no_way(title: str, found: list[tuple[Variant, float]], score: float) -> str:
    """A sentence on a kind of way that there is not.

    Args:
        title: of the way.
        found: variants that were tried, with their errors.
        score: error of the pipeline as it is.
    """
    if not found:
        return f"There is no way with {title}: the configuration, or the file, leaves none to try."
    words = ", ".join(variant.words for variant, _ in found)
    least = min(error for _, error in found)
    return (
        f"There is no way with {title}: {words} would have an error of {least:.1%} at best, where "
        f"it is {score:.1%} as asked for."
    )


def untried_settings(number: int, windows: int, triggers: int) -> Iterator[str]:
    """A note on settings for which there was no work left, if there are any.

    Args:
        number: of them.
        windows: of the sample.
        triggers: of each, which make a run long.
    """
    if number:
        whole = "one window" if windows == 1 else f"{windows:,} windows"
        each = "one trigger" if triggers == 1 else f"{triggers:,} triggers"
        yield (
            f"the {number:,} least promising settings were not tried: to run the others over "
            f"{whole} of {each} took all the work that is allowed"
        )


def _adapted(kind: str, kept: dict[str, Any]) -> dict[str, Any]:
    """Settings for a sibling; a space is split as the sibling needs it."""
    domain = kept.get("domain")
    if isinstance(domain, dict):
        split = "binary" if kind == "privhp" else "all"
        depth = domain.get("depth", 8) * (2 if kind == "privhp" else 1)
        kept = kept | {"domain": domain | {"split": split, "depth": depth}}
    return {name: value for name, value in kept.items() if name in ("domain", "bound", "warmup")}


def written(kind: str, way: Alternative) -> list[str]:
    """The lines of the pipeline that a way changes, ready to be pasted.

    Args:
        kind: of the mechanism.
        way: one of the answer's.
    """
    lines = [f"{name} = {value}" for name, value in way.variant.changes.items()]
    plain = {n: v for n, v in way.settings.items() if isinstance(v, str | bool | int | float)}
    if len(plain) == len(way.settings):
        return [*lines, toml(kind, plain)]
    # A space or another table stays as it is written.
    return lines + [f"mechanism.{name} = {_value(value)}" for name, value in plain.items()]


def _value(value: str | bool | int | float) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)

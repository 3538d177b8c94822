"""Three ways to go for a pipeline, forecast from a whole public or synthetic file.

The mechanism's settings are searched for the pipeline as configured. Around the best of them other
windows, triggers, keys and ε are forecast, and the first change that helps enough is searched in
the same way: once at the same ε, once with another ε.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from ..agents.deployment.compile import parameters_of, setting_of, value_columns
from ..agents.deployment.model import Pipeline
from ..errors import ConfigError, ParameterError
from ..mechanisms import catalogue
from ..mechanisms.forecast import choose, cost_of, likely, runs, window_cost
from ..mechanisms.planner import HOPELESS, Forecast, Planner, Question, unlike_default
from ..mechanisms.workload import Sample
from ..topics.config.pipelines.pipeline import PipelineSettings
from ..topics.config.pipelines.schedule import Schedule
from .cut import SampleRoom, cut, reported, sample
from .records import Records
from .remedies import GROUPS, STEPS, Needed, Trial, group_of, needed, trials, untried
from .sentences import assumed, no_way, other_kind, refused, untried_settings
from .variants import Variant, cheaper, coarser, dearer, given, oftener, shorter

MOST = 200_000  # records of the windows that are run; a single window is taken whole
WORK = 4_000_000  # records run for the pipeline as configured, all candidates together
OFTEN = 3  # times that work where one squared error says little and a run costs little
CHEAP = 100_000  # most records that such a run may cost
OTHER = WORK // 2  # likewise for a variant
SPREAD = WORK // 5  # likewise for the range of the chosen settings' error
GOOD = 0.2  # target error, as a share of the exact figures
FINE = 0.05  # an error that leaves room for more detail
MOST_VARIANTS = 16
MOST_WORKED = 4  # most variants of one kind whose settings are searched until one is useful
GAIN = 0.95  # times the error: the most of a way with earlier releases
HOPED = 1.25  # times the error to beat: the most for a variant before its settings are searched
KEYS = 4  # most noise keys for comparing a variant or another mechanism
BOTH = GROUPS[3]  # tried if neither part of it is enough
AS_ASKED = "as it is asked for"
RETUNED = f"{AS_ASKED}, with other settings of its mechanism"
COARSER, FINER = "the same ε, with less detail", "the same ε, with more detail"
DEARER = "the same detail, with a larger ε"
EARLIER = "the same ε and windows, released early as well"
EARLY = (
    "records of keys that are public already use less of the bound, so that the last release of a "
    "window finds more keys; early ones have more noise, and hush releases --final leaves them out"
)
_GIVEN_BY_PIPELINE = ("delay", "aggregate")


def work_of(planner: Planner, question: Question) -> int:
    """Records that may be run for the pipeline as configured, all candidates together."""
    cheap = planner.effort.squared and cost_of(planner, question) <= CHEAP
    return WORK * OFTEN if cheap else WORK


class Alternative(NamedTuple):
    """One way to go."""

    title: str  # how it differs from the configuration
    variant: Variant  # the changed pipeline
    best: Forecast  # the best settings of its mechanism
    likely: tuple[float, float]  # the range of an epoch's error in 8 of 10 cases
    # forecast of the given settings; None where they do not fit
    as_given: Forecast | None
    settings: dict[str, Any]  # settings of the mechanism other than defaults
    cost: str  # ε and δ, per unit and period
    window: dict[str, float]  # facts about a window: records, units, windows of the file, and notes
    notes: tuple[str, ...]


class Answer(NamedTuple):
    """All ways, and the assumptions; ``other`` names another mechanism for the question.

    If the first way is hopeless, ``tried``, ``untried`` and ``needed`` say what would help.
    ``missing`` says why there are fewer than three.
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
    """The search for one pipeline; ``tick`` is called after each run and each variant.

    Raises `ParameterError` if the mechanism has no planner.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        settings: PipelineSettings,
        records: Records,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        self._planner = catalogue.planner_of(pipeline.kind)
        self._p, self._records, self._tick = pipeline, records, tick
        self._base = given(settings, records, pipeline.public_keys)
        self._tried: list[tuple[Variant, float]] = []
        self._worked: dict[str, float] = {}  # errors of variants searched in full, by their words
        self._refused: dict[str, str] = {}  # reasons why a variant is impossible, by kind

    def ticks(self) -> int:
        """Most calls of ``tick``."""
        question = self._question(self._base)
        return 5 * runs(self._planner, question, WORK) + 3 * MOST_VARIANTS + STEPS

    def answer(self, path: Path) -> Answer:
        """Find three ways, or four where early releases help; ``path`` names the file.

        Raises:
            ParameterError: the configuration contradicts itself.
        """
        base = self._way(AS_ASKED, self._base, self._tick)
        if base.best is not base.as_given:
            base = base._replace(title=RETUNED)
        tuned, missing = base.best, list[str]()
        early = self._early(tuned)
        ways = [self._ranged(one) for one in (base, early) if one is not None]
        most = len(ways) + 2
        for title, variants, target in self._kinds(tuned.score):
            way, found = self._useful(title, variants, tuned, target)
            if way is not None:
                ways.append(self._ranged(way))
            elif len(ways) + len(missing) < most:  # the last kind is a reserve
                missing.append(no_way(title, found, tuned.score, self._why(title)))
            if len(ways) == most:
                break
        measure = tuned.measure or self._planner.score
        answer = Answer(
            measure, tuple(ways), tuple(assumed(self._p, self._records, path)),
            self._other(tuned), missing=() if len(ways) == most else tuple(missing),
        )  # fmt: skip
        if not tuned.hopeless:
            return answer
        tried = tuple(trials(self._tried, self._worked))
        return answer._replace(
            tried=tried, untried=tuple(untried(self._base, self._records, tried, self._refused)),
            needed=self._needed(tuned),
        )  # fmt: skip

    def _early(self, tuned: Forecast) -> Alternative | None:
        """The windows as configured with earlier releases, if these make the last one better."""
        variant = oftener(self._base) if self._p.mechanism.traits.feedback else None
        if variant is None:
            return None
        try:
            way = self._way(EARLIER, variant, self._tick)
        except (ParameterError, ConfigError):
            return None
        if way.best.hopeless or way.best.score > GAIN * tuned.score:
            return None
        return way._replace(notes=(*way.notes, EARLY))

    def _kinds(self, score: float) -> Iterator[tuple[str, Iterable[Variant], float]]:
        """Kinds of ways besides the configured pipeline: title, variants, and target error."""
        if score > FINE:
            target = GOOD if score > GOOD else score / 2
            yield COARSER, coarser(self._base, self._records), target
            yield DEARER, dearer(self._base), target
        else:
            yield FINER, shorter(self._base), GOOD
            yield "the same detail, with a smaller ε", cheaper(self._base), GOOD
            yield DEARER, dearer(self._base), score / 2

    def _why(self, title: str) -> list[str]:
        """Reasons why a kind of way has no variants."""
        if title in (COARSER, DEARER):
            why = untried(self._base, self._records, (), self._refused)
            return [one for one in why if ("ε" in one) == (title == DEARER)]
        if self._refused:
            return [f"It could not be tried: {next(iter(self._refused.values()))}."]
        return ["None of the windows tried (1m, 1h, 6h, 1d, 7d) divides this one."]

    def _useful(
        self, title: str, variants: Iterable[Variant], tuned: Forecast, target: float
    ) -> tuple[Alternative | None, list[tuple[Variant, float]]]:
        """The first variant that is useful after a full search of its settings, and all errors.

        A result with few noise keys may not hold with many, so the next variant is then tried, and
        the previous one left out. If none is useful, the best variant that improves on the
        configured pipeline becomes the answer, and is called hopeless.
        """
        promising, found = self._first(variants, tuned, target)
        spare: Alternative | None = None  # hopeless too, but better than the configured pipeline
        for variant in promising[:MOST_WORKED]:
            tick = self._tick if variant is promising[0] else lambda: None  # the bar's end is near
            way = self._way(title, variant, tick)
            self._worked[variant.words] = way.best.score
            if not way.best.hopeless and (way.best.score < tuned.score or tuned.score <= FINE):
                self._tried += found
                return way, found
            if way.best.score < min(tuned.score, spare.best.score if spare else tuned.score):
                spare = way
        checked = [(one, self._worked.get(one.words, score)) for one, score in found]
        found = [one for one in checked if one[1] >= HOPELESS or one[0].words in self._worked]
        self._tried += found
        return spare, found

    def _first(
        self, variants: Iterable[Variant], tuned: Forecast, target: float
    ) -> tuple[Sequence[Variant], list[tuple[Variant, float]]]:
        """Variants worth a full search, in the order of trial, and all errors.

        Those that reach the target come first, then the best, then those that are at least useful.
        If the pipeline is hopeless, all others are tried as well, so that the answer states the
        error with every kind of change.
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
        most = HOPED * tuned.score
        better = sorted((one for one in found if one[1] < most), key=lambda one: one[1])
        order = list(reached.values())
        for variant, score in better:
            if variant not in order and (not order or score < HOPELESS):
                order.append(variant)
        return order, found

    def _quick(self, variant: Variant, tuned: Forecast) -> float | None:
        """The least error near the tuned settings, by formulas if there are any."""
        try:
            return self._least(self._question(variant), tuned)
        except (ParameterError, ConfigError) as error:
            self._refused.setdefault(group_of(variant), refused(variant, error))
            return None

    def _least(self, question: Question, tuned: Forecast) -> float | None:
        scores, cost = [], cost_of(self._planner, question)
        keys, near = max(1, min(KEYS, WORK // (32 * cost))), self._planner.near
        some = near(question, tuned.parameters)
        for parameters in some[:1] if 8 * cost > WORK else some:  # if one window takes so long
            try:
                found = self._planner.forecast(question, parameters, range(0))
                if found.by == "simulation":  # one noise key decides nothing
                    found = self._planner.forecast(question, parameters, range(keys))
            except ParameterError:
                continue
            scores.append(found.score)
        return min(scores, default=None)

    def _needed(self, tuned: Forecast) -> Needed:
        """The factor of units that a window would need, near the tuned settings."""
        question = self._question(self._base)
        assert question.sample is not None  # a question of this search has one

        def judge(sample: Sample) -> float | None:
            self._tick()
            try:
                return self._least(question._replace(sample=sample), tuned)
            except ParameterError:
                return None

        return needed(question.sample, tuned.score, GOOD, judge)

    def _way(self, title: str, variant: Variant, tick: Callable[[], None]) -> Alternative:
        question = self._question(variant)
        work = work_of(self._planner, question) if variant is self._base else OTHER
        found, left_out = choose(self._planner, question, work, tick)
        kept = [one for one in found if one.parameters == question.parameters]
        shown = question.sample
        assert shown is not None  # a question of this search has one
        whole = cut(self._records, Schedule.of(variant.settings))
        windows = max(len(whole.numbers), 1)
        facts = {
            "records": whole.records / windows,
            "units": whole.units(self._records.unit) / windows,
            "windows": float(len(whole.numbers)),
            "run": float(shown.windows),
        }
        settings = self._settings(variant, question.parameters, found[0].parameters)
        more = untried_settings(left_out, shown.windows, question.setting.horizon)
        score = found[0].score
        return Alternative(
            title, variant, found[0], (score, score), kept[0] if kept else None, settings,
            self._cost(variant), facts, (*shown.notes, *more),
        )  # fmt: skip

    def _ranged(self, way: Alternative) -> Alternative:
        """Add the range of its error to a way that will be shown; most are not."""
        question = self._question(way.variant)
        return way._replace(likely=likely(self._planner, question, way.best.parameters, SPREAD))

    def _question(self, variant: Variant) -> Question:
        settings, p = variant.settings, self._p
        schedule = Schedule.of(settings)
        columns = value_columns(settings)
        keys = p.public_keys if settings.public_keys is not None else None
        setting = setting_of(settings, schedule, columns, keys, self._p.cells_partitions)
        parameters = parameters_of(settings)
        mechanism = catalogue.build(p.kind, parameters, setting)
        asked = Question(
            p.name, parameters, setting, mechanism, None, "the sample", "last", None, None
        )
        # A run leaves out whole windows beyond an eighth of the work.
        one = (WORK if variant is self._base else OTHER) // 8
        room = SampleRoom(MOST, one, window_cost(self._planner, asked))
        found = cut(self._records, schedule)
        taken = sample(self._records, schedule, found, room, *variant.numbering)
        return asked._replace(sample=taken if mechanism.survey is None else reported(taken))

    def _settings(self, variant: Variant, framed: Any, best: Any) -> dict[str, Any]:
        """Settings to write: the given ones, and those that the search changed."""
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
        epoch = Schedule.of(settings).epoch_shown
        share = f", δ = {float(budget.delta):g}" if budget.delta else ""
        return (
            f"ε = {float(Fraction(budget.epsilon)):g}{share} for each {self._p.unit_name}, anew "
            f"every {epoch}"
        )

    def _other(self, tuned: Forecast) -> str:
        """The error of another mechanism that answers the same question."""
        kind = catalogue.find(self._p.kind).sibling
        entry = None if kind is None else catalogue.entries().get(kind)
        if entry is None or entry.planner is None:
            return ""
        before, planner = self._base.settings.mechanism.parameters, entry.planner
        shared = {one.name for one in fields(entry.parameters)}
        kept = {n: v for n, v in unlike_default(before).items() if n in shared}
        try:
            parameters = entry.framed(
                entry.parameters(**entry.adopted(kept)), self._base.settings.frame
            )
            asked = self._question(self._base)
            mechanism = catalogue.build(entry.name, parameters, asked.setting)
            question = asked._replace(parameters=parameters, mechanism=mechanism)
            near = planner.near(question, parameters)
            each = cost_of(planner, question)
            keys = range(max(1, min(KEYS, WORK // (4 * len(near) * each))))
            found = min(planner.forecast(question, one, keys).score for one in near)
        except ParameterError:
            return ""
        return other_kind(entry.name, found, self._p.kind, tuned.score)

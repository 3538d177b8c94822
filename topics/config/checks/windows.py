"""Contradictions between windows, epochs, triggers and the mechanism of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from cronsim import CronSim, CronSimError

from ....errors import ConfigError
from ....mechanisms.catalogue import find
from ....mechanisms.factorization.hopping import LONGEST
from ...calendar import CalendarSpan
from ..pipelines.pipeline import PipelineSettings
from ..pipelines.schedule import MAX_TRIGGERS, Schedule
from ..toml.values import UNIX_EPOCH, format_duration, format_instant

LONGEST_WINDOW = 36_500 * 86_400_000_000


def of_schedule(pipeline: PipelineSettings) -> Iterator[tuple[str, str]]:
    window, epoch, rule = pipeline.window, pipeline.epoch, pipeline.triggers
    if pipeline.schedule == "external" and window.origin == UNIX_EPOCH:
        yield "window", "an external schedule needs an origin: the start of its first window"
    if window.endless:
        yield from _endless(pipeline)
    elif (window.length is None) == (window.horizon is None):
        yield "window", "needs either length or horizon"
    if window.endless or (window.length is None) == (window.horizon is None):
        return
    if window.hop is not None:
        yield from _hopping(pipeline)
    if isinstance(window.length, CalendarSpan):
        yield from _calendar(pipeline, window.length)
        return
    for setting, given in (("epoch", epoch), ("triggers.every", rule.every)):
        if isinstance(given, CalendarSpan):
            yield setting, f'is of the calendar: write window.length so too, such as "{given}"'
            return
    if window.zone is not None:
        yield "window.zone", 'needs a length of the calendar: length = "1 day", not "1d"'
    if (rule.every is None) == (rule.cron is None):
        yield "triggers", "needs either every, or cron and count"
    elif rule.every is None and window.horizon is not None:
        yield "window.horizon", "needs triggers.every: windows of a cron rule need a length"
    elif rule.every is None:
        yield from _cron(pipeline)
    elif not isinstance(rule.every, CalendarSpan):
        yield from _regular(pipeline, rule.every)
    if window.horizon is not None and pipeline.lateness:
        yield "lateness", "has no effect with window.horizon, where events are never late"
    length, of = pipeline.step_length, "hop" if window.hop else "length"
    if not isinstance(epoch, CalendarSpan) and epoch is not None and length and epoch % length:
        whole = f"{format_duration(epoch)} is not a multiple of the window's"
        yield "epoch", f"{whole} {of}, {format_duration(length)}"


def _endless(pipeline: PipelineSettings) -> Iterator[tuple[str, str]]:
    """Settings that need an end, in a window without a stated end."""
    window, rule = pipeline.window, pipeline.triggers
    for name in ("length", "horizon", "hop", "zone"):
        if getattr(window, name) is not None:
            yield f"window.{name}", "is not possible with window.endless: leave one of them out"
    if window.origin == UNIX_EPOCH:
        yield "window.origin", "is needed with window.endless: the time from which on events count"
    if not isinstance(rule.every, int) or rule.cron is not None or rule.count is not None:
        yield "triggers", 'of a window without end are regular: write every, such as "1h"'
    if not find(pipeline.mechanism.kind).endless:
        yield (
            "window.endless",
            f"is not possible with {pipeline.mechanism.kind}, but with histogram",
        )
    refused = {
        "epoch": (pipeline.epoch, "the window is the only one of its epoch"),
        "until": (pipeline.until, "a pipeline is retired between two epochs"),
        "follows": (pipeline.follows, "the window begins with nothing"),
        "learn": (pipeline.learn, "a bound is learnt when a window ends"),
        "budget.per_unit": (
            pipeline.budget.per_unit,
            "there is one epoch, whose budget is the cap",
        ),
        "forget_keys": (pipeline.forget_keys, "a key is forgotten when its epoch ends"),
    }
    for name, (given, why) in refused.items():
        if given:
            yield name, f"is not possible with window.endless: {why}"


def _hopping(pipeline: PipelineSettings) -> Iterator[tuple[str, str]]:
    """Contradictions of windows that overlap."""
    window, rule, budget = pipeline.window, pipeline.triggers, pipeline.budget
    hop, length = window.hop or 0, window.length
    if not isinstance(length, int):
        yield "window.hop", 'needs a length that is a duration, such as length = "24h"'
    elif length % hop or length == hop:
        shown = f"{format_duration(hop)} must divide window.length = {format_duration(length)}"
        yield "window.hop", f"{shown}, and be shorter"
    for setting, whole in (("window.hop", length), ("epoch", pipeline.epoch_length)):
        if isinstance(whole, int) and hop and whole // hop > LONGEST:
            what = f"makes {whole // hop:,} hops of {format_duration(whole)}"
            yield setting, f"{what}, and at most {LONGEST:,} are possible: write a longer hop"
    if rule.every != hop or rule.cron is not None:
        shown = f'every = "{format_duration(hop)}"'
        yield "triggers", f"of windows that hop fire at the end of each: write {shown}"
    if not find(pipeline.mechanism.kind).hops:
        yield "window.hop", f"is not possible with {pipeline.mechanism.kind}, but with histogram"
    if budget.per_unit is not None:
        yield "budget.per_unit", "is not possible with window.hop"
    if pipeline.forget_keys:
        yield (
            "forget_keys",
            "is not possible with window.hop: noise of an epoch is kept for windows after its end",
        )


def _calendar(pipeline: PipelineSettings, length: CalendarSpan) -> Iterator[tuple[str, str]]:
    """Contradictions of a window of the calendar."""
    made, epoch, rule = pipeline.calendar, pipeline.epoch_length, pipeline.triggers
    assert made is not None  # its length is one of the calendar
    if rule.cron is not None or rule.count is not None or rule.every is None:
        yield "triggers", "of windows of the calendar are every, without cron and count"
    else:
        yield from made.objections(_most(pipeline))
    if not isinstance(epoch, CalendarSpan) or not epoch.holds(length):
        yield "epoch", f'must be a number of windows: "{length}", or a multiple in {length.unit}s'


def of_until(pipeline: PipelineSettings) -> Iterator[tuple[str, str]]:
    if pipeline.until is None:
        return
    schedule = Schedule.of(pipeline)
    after = schedule.boundary(pipeline.until)
    before = schedule.begin(schedule.epoch_at(pipeline.until))
    if before != pipeline.until:
        one, next_ = format_instant(before), format_instant(after)
        learn = pipeline.learn
        setting = "until" if learn is None or learn.at != pipeline.until else "learn.at"
        yield setting, f"is no boundary of two epochs: one is at {one}, the next at {next_}"


def _regular(pipeline: PipelineSettings, every: int) -> Iterator[tuple[str, str]]:
    length = pipeline.window_length
    if pipeline.triggers.count is not None:
        yield "triggers.count", "follows from every and window: leave it out"
    if length % every:
        shown = format_duration(length)
        yield "triggers.every", f"{format_duration(every)} does not divide window.length = {shown}"
    elif pipeline.window.hop is None and length // every > (most := _most(pipeline)):
        setting = "triggers.every" if pipeline.window.horizon is None else "window.horizon"
        yield setting, f"makes {length // every:,} triggers per window{_beyond(pipeline, most)}"
    if pipeline.window.horizon is not None and length > LONGEST_WINDOW:
        yield (
            "window.horizon",
            f"times triggers.every is more than {format_duration(LONGEST_WINDOW)}",
        )


def _most(pipeline: PipelineSettings) -> int:
    """The most triggers per window that schedule and mechanism allow."""
    given = pipeline.mechanism
    return min(MAX_TRIGGERS, find(given.kind).triggers(given.parameters))


def _beyond(pipeline: PipelineSettings, most: int) -> str:
    """Say how many triggers are possible, and what to write."""
    given = pipeline.mechanism
    name = getattr(given.parameters, "factorization", None)
    which = given.kind if name is None else f'{given.kind} with factorization = "{name}"'
    if pipeline.window.horizon is not None:
        return f", and {which} has at most {most:,}: write at most that"
    length = pipeline.window_length
    least = next((one for one in _STEPS if one * most >= length and not length % one), length)
    every = f'every = "{format_duration(least)}" or longer'
    return f", and {which} has at most {most:,}: write {every}, or a shorter window"


_STEPS = tuple(
    number * unit
    for unit, numbers in ((1_000_000, (1, 2, 5, 10, 15, 30)), (60_000_000, (1, 2, 5, 10, 15, 30)),
                          (3_600_000_000, (1, 2, 3, 4, 6, 8, 12, 24)))
    for number in numbers
)  # fmt: skip


def _cron(pipeline: PipelineSettings) -> Iterator[tuple[str, str]]:
    rule = pipeline.triggers
    if rule.count is None:
        yield "triggers", "cron needs count, the number of triggers per window"
        return
    if rule.count > (most := _most(pipeline)):
        kind = pipeline.mechanism.kind
        yield "triggers.count", f"{rule.count:,} is more than the {most:,} triggers of {kind}"
        return
    try:
        CronSim(rule.cron or "", datetime(2000, 1, 1))
    except CronSimError as error:
        yield "triggers.cron", f'"{rule.cron}" is not a cron rule ({error})'
        return
    schedule = Schedule.of(pipeline)
    samples = max(1, min(32, 10_000 // rule.count))  # windows begin at different phases of the rule
    try:
        last = [schedule.times(window)[-1] - pipeline.lateness for window in range(samples)]
    except ConfigError as error:
        yield "triggers.cron", str(error)
        return
    if any(time < schedule.start(window + 1) for window, time in enumerate(last)):
        yield "triggers.count", f"{rule.count} triggers end before their window does"

"""Cautions about valid settings that are probably unintended, or that weaken the guarantee."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from ipaddress import ip_address

from ...formats.events.decode import utc
from ...formats.events.expressions.conditions import Present
from ...formats.events.expressions.exclusive import exclusive
from ...topics.config.inputs.places import place_of
from ...topics.config.load import Config
from ...topics.config.pipelines.budgets import PerUnit
from ...topics.config.pipelines.pipeline import PipelineSettings
from ...topics.config.pipelines.schedule import Schedule
from ...topics.config.sharing import owner
from ...topics.config.toml.values import format_duration
from .compile import parameters_of

NOTHING = "there is no [[pipeline]]: nothing will be released"
LARGE_EPSILON = Fraction(20)
LARGE_DELTA = Fraction(1, 10**4)
LONG_PAUSE = Fraction(
    4, 5
)  # of the time between two triggers, beyond which the turns of shards fill it


def cautions(config: Config, now: int) -> Iterator[str]:
    """Yield a sentence for each such setting; ``now`` in microseconds."""
    yield from _exposed(config)
    units = {one.name: one.unit for one in config.input}
    for p in config.pipeline:
        pause = config.engine.publish_delay
        found = (*_budget(p), *_domain(p), *_place(p), *_origin(p, now), *_pause(p, pause))
        shared = owner(config, p.name)
        cap = p.budget.per_unit if shared is None else shared.per_unit
        found += (*_never(p), *_alone(p, units[p.input]))
        found += (*_replayed(cap, config.engine.keep_clock),)
        for words in found:
            yield f"pipeline {p.name!r}: {words}"


def unordered(config: Config, partitions: Mapping[str, int]) -> Iterator[str]:
    """Yield a sentence for each input whose units' records may meet in an order that others move.

    Args:
        partitions: number of partitions of each input topic.
    """
    for one in config.input:
        many = partitions[one.topic]
        if one.partitioner == "none" and many > 1:
            yield (
                f"input {one.name!r}: topic {one.topic} has {many} partitions and no partitioner "
                "is declared: if one unit's records lie in several of them, load, and with it "
                "others' records, decides which come first within its bound; no ε covers that. "
                "Let producers use the unit as the record key, and declare their partitioner"
            )


def _budget(p: PipelineSettings) -> Iterator[str]:
    epsilon, delta = Fraction(p.budget.epsilon), Fraction(p.budget.delta)
    if epsilon > LARGE_EPSILON:
        yield (
            f"epsilon = {float(epsilon):g} protects nobody: an observer may become "
            f"e^{float(epsilon):g} times as sure that somebody is in the data; usual values lie "
            "below 10"
        )
    if delta > LARGE_DELTA:
        yield (
            f"delta = {float(delta):g} allows a release to expose one unit in {round(1 / delta):,} "
            "outright: it should be well below 1 / (number of units)"
        )


def _exposed(config: Config) -> Iterator[str]:
    """Settings by which exact figures reach more people, or records decide what happens."""
    engine = config.engine
    if engine.log_level == "debug":
        yield (
            'engine.log_level = "debug" logs whole texts of errors, which may quote records: keep '
            "the log inside the trust boundary"
        )
    if engine.operator_port and not _here(engine.operator_host):
        yield (
            f"engine.operator_host = {engine.operator_host!r} serves exact counts of records "
            "beyond this machine: let only those inside the trust boundary reach port "
            f"{engine.operator_port}"
        )
    for one in config.input:
        if one.on_error == "fail":
            yield (
                f'input {one.name!r}: on_error = "fail" stops all releases at a bad record, so '
                "that anyone sees that there was one, and any producer can stop them"
            )


def _here(host: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _domain(p: PipelineSettings) -> Iterator[str]:
    default = getattr(type(p.mechanism.parameters)(), "domain", None)
    if default is not None and getattr(parameters_of(p), "domain", None) == default:
        yield (
            "mechanism.domain is not given, so the unit square 0 to 1 is planned: points outside "
            "are dropped; set the domain of your coordinates"
        )


def _place(p: PipelineSettings) -> Iterator[str]:
    place = place_of(name for name in p.key if name not in p.derive)
    if place is not None:
        yield (
            f"key holds {' and '.join(place)}, which are a place: few records share the same pair "
            'of numbers; a map counts places: mechanism.kind = "phdstream" with these as inputs'
        )


def _alone(p: PipelineSettings, unit: Sequence[str]) -> Iterator[str]:
    if set(unit) <= set(p.key):
        yield (
            f"key holds {', '.join(unit)}, which names the privacy unit: each key rests on one "
            "unit, so that nothing but noise can be seen of it; leave it out of the key"
        )


def _never(p: PipelineSettings) -> Iterator[str]:
    """Conditions that no record fulfils, so that the pipeline pays and counts nothing."""
    for place, one in enumerate(p.where):
        meant = one.meant()
        for other in range(place):
            if exclusive(p.where[other].meant(), meant):
                yield (
                    f"where[{other}] and where[{place}] exclude each other, and a record must "
                    "fulfil both, so none counts; for either of them write any = [...], or OR in "
                    "SQL"
                )
        if (
            isinstance(meant, Present)
            and not meant.value
            and meant.field in set(p.key) - set(p.derive)
        ):
            yield (
                f"where[{place}] takes records without {meant.field}, which is a column of key: "
                "they have no key, so none counts; leave it out of the key"
            )


def _replayed(cap: PerUnit | None, keep: int) -> Iterator[str]:
    if cap is not None and (cap.period is None or cap.period > keep):
        span = "for good" if cap.period is None else f"for {format_duration(cap.period)}"
        yield (
            f"per_unit holds {span}, and engine.keep_clock is {format_duration(keep)}: hush replay "
            "needs all records since a purse was full; to replay later than that, set keep_clock, "
            "and the retention of the raw topic, to the whole of it"
        )


def _origin(p: PipelineSettings, now: int) -> Iterator[str]:
    if p.window.origin > now and p.follows is None:
        begins = utc(Schedule.of(p).start(0))
        yield f"window.origin lies in the future: windows count from {begins}"


def _pause(p: PipelineSettings, delay: int) -> Iterator[str]:
    schedule = Schedule.of(p)
    shortest = schedule.shortest_gap()
    if delay > shortest * LONG_PAUSE:
        yield (
            f"engine.publish_delay = {delay / 1e6:g} s is too long for triggers that are "
            f"{shortest / 1e6:g} s apart: a release is computed after the one before has been "
            "published, so releases come later and later, and their times show what they took"
        )

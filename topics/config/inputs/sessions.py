"""Sessions: their numbers, and settings of a pipeline that contradict them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ....formats.events.expressions.conditions import leaves
from ....mechanisms.catalogue import entries, find
from ..aggregates.kinds import counted_in
from ..expressions.conditions import Condition, every
from ..pipelines.pipeline import PipelineSettings
from ..pipelines.schedule import Schedule
from ..toml.values import format_duration

LENGTH, EVENTS = "session_length", "session_events"
FIELDS = (LENGTH, EVENTS)
"""Numbers of a session: seconds from its first to its last record, and its number of records."""

_NUMBERS = f"is no number of a session: these are {LENGTH} and {EVENTS}"
_LATER = "is known once its session is over, and what a record counts for before"


def objections(pipeline: PipelineSettings) -> Iterator[tuple[str, str]]:
    """Yield settings that a pipeline of sessions cannot have, each with the reason.

    Its schedule must be valid.
    """
    if pipeline.session is None:
        return
    if pipeline.window.horizon is not None:
        yield "session", "needs window.length: a pause between two records is one of event time"
    else:
        yield from _lateness(pipeline, pipeline.session)
    if pipeline.sign is not None:
        yield "sign", "is not possible with session: a deletion would open a session again"
    if not find(pipeline.mechanism.kind).grouped:
        able = " or ".join(f'"{one.name}"' for one in entries().values() if one.grouped)
        yield "session", f"needs mechanism.kind = {able}"
    yield from _fields(pipeline)


def _lateness(pipeline: PipelineSettings, gap: int) -> Iterator[tuple[str, str]]:
    schedule = Schedule.of(pipeline)
    if schedule.horizon * schedule.per_epoch > 1 and pipeline.lateness < gap:
        yield (
            "lateness",
            f"must be at least session = {format_duration(gap)} where an epoch has several "
            "triggers: each takes the sessions that ended before its time, and until then records "
            "may come that go on with them",
        )


def _fields(pipeline: PipelineSettings) -> Iterator[tuple[str, str]]:
    for name in FIELDS:
        if name in pipeline.key:
            yield "key", f'"{name}" {_LATER}'
    for place, one in enumerate(pipeline.where):
        if set(_asked([one])) & set(FIELDS):
            instead = "write it as where of an aggregate"
            yield f"where.{place}", f"asks for what {_LATER}: {instead}"
    if counted_in(pipeline.aggregate) is not None:
        yield "aggregate", 'kind = "distinct" is not possible with session: values are of records'
        return
    for place, aggregate in enumerate(pipeline.aggregate):
        named = [getattr(aggregate, "field", LENGTH), *_asked(getattr(aggregate, "where", ()))]
        if strange := [name for name in named if name not in FIELDS]:
            yield f"aggregate.{place}", f'"{strange[0]}" {_NUMBERS}'
    for name, path in pipeline.inputs.items():
        if path not in FIELDS:
            yield f"inputs.{name}", f'"{path}" {_NUMBERS}'


def _asked(where: Sequence[Condition]) -> list[str]:
    """Fields that conditions use."""
    if any(True for one in where for _ in one.objections()):
        return []  # invalid conditions are refused elsewhere
    return [leaf.field for leaf in leaves(every(where))]

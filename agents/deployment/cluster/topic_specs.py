"""Topics that a deployment must have, with their settings and who may read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ....topics.names import OWNERS, Names, ledger_topic
from ..model import Deployment, Input, Pipeline
from .seats import seated, taken

FOREVER = {"retention.ms": "-1", "retention.bytes": "-1"}
# Event times may be of any year, so the broker must neither refuse nor delete records by them.
ANY_TIME = {"message.timestamp.after.max.ms": str((1 << 63) - 1)}
KEPT = FOREVER | ANY_TIME
# Public records carry scheduled times. The broker's own times would reveal load.
PUBLIC = KEPT | {"message.timestamp.type": "CreateTime"}
# A broker deletes and compacts whole segments, and never the active one. Segments of a gigabyte or
# a week would keep trimmed or overwritten records as long. Managed clusters accept these values,
# but hardly smaller ones.
SEGMENTS = {"segment.bytes": str(64 << 20), "segment.ms": str(4 * 3_600_000)}
COMPACTION = {"min.cleanable.dirty.ratio": "0.3", "max.compaction.lag.ms": str(6 * 3_600_000)}
TRIMMED = KEPT | SEGMENTS
# The clock's owner compares its own time with the broker's before it commits a trigger.
CLOCK = TRIMMED | {"message.timestamp.type": "LogAppendTime"}
COMPACTED = ANY_TIME | {"cleanup.policy": "compact"} | SEGMENTS | COMPACTION
NEWEST = COMPACTED | {"message.timestamp.type": "CreateTime"}
SIZED = (*SEGMENTS, *COMPACTION)
"""Settings that only decide when space is freed, so that `hush topics` may change them."""

DEAD = "records that cannot be used, each with its reason"
UNITS = "events, on their way to their units"
FLOW = "events and bounded sums, on their way to units and keys: a seat for each pipeline"


class TopicSpec(NamedTuple):
    """One topic that must exist.

    ``internal`` topics hold raw data; ``pipeline`` is empty if the topic serves all pipelines.
    """

    name: str
    partitions: int
    config: Mapping[str, str]
    internal: bool
    purpose: str
    pipeline: str = ""


def sized(spec: TopicSpec) -> dict[str, str]:
    """The settings of a topic that decide when space is freed."""
    return {name: spec.config[name] for name in SIZED if name in spec.config}


def public_topics(deployment: Deployment) -> list[TopicSpec]:
    """List the topics whose names do not contain the genesis id."""
    specs = [
        TopicSpec(
            ledger_topic(deployment.name), 1, PUBLIC, True, "ledger: back it up, never delete"
        ),
        TopicSpec(OWNERS, 1, KEPT, False, "which deployment writes which of these topics"),
    ]
    for p in deployment.pipelines:
        specs.append(
            TopicSpec(
                p.release_topic, p.release_partitions, PUBLIC, False, "private releases", p.name
            )
        )
        if p.latest_topic:
            text = "the newest release of each window and key, for whoever begins to read late"
            specs.append(
                TopicSpec(p.latest_topic, p.release_partitions, NEWEST, False, text, p.name)
            )
        whose = "" if p.shared else p.name
        if p.dlq_topic:
            specs.append(TopicSpec(p.dlq_topic, 1, ANY_TIME, True, DEAD, whose))
        if p.late_topic:
            text = "records that came too late for their window"
            specs.append(TopicSpec(p.late_topic, 1, ANY_TIME, True, text, whose))
    for v in deployment.views:
        text = f"a view of what {v.source.name} releases"
        specs.append(TopicSpec(v.release_topic, 1, PUBLIC, False, text, v.name))
    first: dict[str, TopicSpec] = {}
    for spec in specs:  # a follower continues the topics of its predecessor
        first.setdefault(spec.name, spec)
    return list(first.values())


def internal_topics(deployment: Deployment, names: Names) -> list[TopicSpec]:
    """List the topics of one genesis; pipelines without a seat get their future one."""
    names = seated(deployment, names)
    specs = [
        TopicSpec(names.clock, 1, CLOCK, True, "beats and triggers, in the one order for all"),
        TopicSpec(names.requests, 1, TRIMMED, True, "triggers that `hush trigger` asks for"),
        TopicSpec(names.begins, 1, KEPT, True, "offsets at which inputs began: exact counts"),
    ]
    if any(p.tables for p in deployment.pipelines):
        text = "public tables of topics, as pipelines were declared with them: never delete"
        specs.append(TopicSpec(names.tables, 1, KEPT, True, text))
    for source in deployment.streams:
        log_name = names.changelog("ingest", source.name)
        text = "how far the input was read, and the watermark: a copy of a worker's table"
        specs.append(TopicSpec(log_name, source.partitions, COMPACTED, True, text))
        for p in source.pipelines if not deployment.shared else ():
            specs += _of_pipeline(p, names)
        if deployment.shared:
            specs += _of_input(source, names)
    sources = {v.source.release_topic: v.source for v in deployment.views}
    for topic in sources:
        first = next(p for p in deployment.pipelines if p.release_topic == topic)
        text = "how far views have come, and what they look back at: a copy of a table"
        log_name = names.changelog("view", first.name)
        specs.append(TopicSpec(log_name, 1, COMPACTED, True, text, first.name))
    return specs


def _of_pipeline(p: Pipeline, names: Names) -> list[TopicSpec]:
    def own(name: str, partitions: int, config: Mapping[str, str], purpose: str) -> TopicSpec:
        return TopicSpec(name, partitions, config, True, purpose, p.name)

    cells, log = p.cells_partitions, names.changelog("aggregate", p.name)
    specs = [
        own(names.cells(p.name), cells, TRIMMED, "bounded sums, on their way to their keys"),
        own(log, cells, COMPACTED, "sums and noise trees: a copy of a worker's table"),
    ]
    if not p.direct:
        units, log = p.units_partitions, names.changelog("bound", p.name)
        specs += [
            own(names.units(p.name), units, TRIMMED, UNITS),
            own(log, units, COMPACTED, "what each unit has contributed: a copy of a table"),
        ]
    if p.traits.feedback:
        text = "keys that became public, on their way back to the units"
        specs.append(own(names.selected(p.name), 1, TRIMMED, text))
    return specs


def _of_input(source: Input, names: Names) -> list[TopicSpec]:
    """List the topics that the pipelines of an input share, with a seat for each of them."""
    settings = {
        names.flow(source.name): (TRIMMED, FLOW),
        names.changelog("flow", source.name): (COMPACTED, "copies of tables, of bounds and sums"),
        names.keys(source.name): (TRIMMED, "keys that became public, on their way back to units"),
    }
    numbers = taken(names.seats.values())
    return [
        TopicSpec(topic, numbers[topic], config, True, purpose)
        for topic, (config, purpose) in settings.items()
        if topic in numbers
    ]


def layout(source: Input, p: Pipeline, names: Names) -> dict[str, int]:
    """Collect the topics that a pipeline's state is spread over, with their partitions."""
    own = {s.name: s.partitions for s in _of_pipeline(p, names)}
    own[names.changelog("ingest", source.name)] = source.partitions
    if source.attributes is not None:
        own[source.attributes.topic] = source.partitions
    return own | {source.topic: source.partitions}


def counted(specs: Iterable[TopicSpec]) -> list[str]:
    """Count topics and partitions, of all and of each pipeline; say how there would be fewer."""
    every = list(specs)
    common = [spec for spec in every if not spec.pipeline]
    lines = [
        f"{len(every)} topics with {sum(s.partitions for s in every)} partitions, times the "
        f"replication factor: {len(common)} for the deployment"
    ]
    for name in dict.fromkeys(spec.pipeline for spec in every if spec.pipeline):
        own = [spec for spec in every if spec.pipeline == name]
        lines.append(f"  {name}: {len(own)} topics, {sum(s.partitions for s in own)} partitions")
    fewer = []
    if any(spec.config is NEWEST for spec in every):
        fewer.append("one for each pipeline with `latest = false`")
    if any(spec.purpose == DEAD for spec in every):
        fewer.append('one with `on_error = "drop"`')
    if any(spec.purpose == UNITS for spec in every):
        fewer.append("two where the unit is the key of the input's records (`partitioner`)")
    if len({spec.pipeline for spec in every if spec.pipeline and spec.config is TRIMMED}) > 1:
        fewer.append("most of each further pipeline in a new deployment with `shared_topics`")
    if fewer:
        lines.append("Fewer: " + ", ".join(fewer) + ".")
    return lines

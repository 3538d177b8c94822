"""Topics that a deployment must have, with their settings and who may read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...topics.names import OWNERS, Names, ledger_topic
from .model import Deployment, Input, Pipeline

FOREVER = {"retention.ms": "-1", "retention.bytes": "-1"}
# Event times may be of any year: the broker must neither refuse nor delete by them.
ANY_TIME = {"message.timestamp.after.max.ms": str((1 << 63) - 1)}
KEPT = FOREVER | ANY_TIME
# Public records carry scheduled times. The broker's own times would reveal load.
PUBLIC = KEPT | {"message.timestamp.type": "CreateTime"}
# A broker deletes and compacts whole segments, and never the one that it writes. Segments of a
# gigabyte or a week would keep what was trimmed or overwritten for as long. Managed clusters accept
# these, and hardly less.
SEGMENTS = {"segment.bytes": str(64 << 20), "segment.ms": str(4 * 3_600_000)}
COMPACTION = {"min.cleanable.dirty.ratio": "0.3", "max.compaction.lag.ms": str(6 * 3_600_000)}
TRIMMED = KEPT | SEGMENTS
# The clock's owner compares its own time with the broker's before it commits a trigger.
CLOCK = TRIMMED | {"message.timestamp.type": "LogAppendTime"}
COMPACTED = ANY_TIME | {"cleanup.policy": "compact"} | SEGMENTS | COMPACTION
NEWEST = COMPACTED | {"message.timestamp.type": "CreateTime"}
SIZED = (*SEGMENTS, *COMPACTION)
"""Settings that decide when space comes back, and nothing else: `hush topics` may change them."""


class TopicSpec(NamedTuple):
    """One topic that must exist; ``internal`` ones hold raw data."""

    name: str
    partitions: int
    config: Mapping[str, str]
    internal: bool
    purpose: str


def sized(spec: TopicSpec) -> dict[str, str]:
    """The settings of a topic that decide when space comes back."""
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
            TopicSpec(p.release_topic, p.release_partitions, PUBLIC, False, "private releases")
        )
        if p.latest_topic:
            specs.append(
                TopicSpec(p.latest_topic, p.release_partitions, NEWEST, False, "newest releases")
            )
        if p.dlq_topic:
            specs.append(TopicSpec(p.dlq_topic, 1, ANY_TIME, True, "bad records, raw"))
        if p.late_topic:
            specs.append(TopicSpec(p.late_topic, 1, ANY_TIME, True, "late records, raw"))
    return specs


def internal_topics(deployment: Deployment, names: Names) -> list[TopicSpec]:
    """List the topics of one genesis."""
    specs = [
        TopicSpec(names.clock, 1, CLOCK, True, "beats and triggers"),
        TopicSpec(names.requests, 1, TRIMMED, True, "external triggers"),
        TopicSpec(names.begins, 1, KEPT, True, "where inputs began: exact counts"),
    ]
    for source in deployment.inputs:
        log_name = names.changelog("ingest", source.name)
        specs.append(TopicSpec(log_name, source.partitions, COMPACTED, True, "state"))
        for p in source.pipelines:
            specs += _of_pipeline(p, names)
    return specs


def _of_pipeline(p: Pipeline, names: Names) -> list[TopicSpec]:
    cells = p.cells_partitions
    specs = [
        TopicSpec(names.cells(p.name), cells, TRIMMED, True, "partial sums"),
        TopicSpec(names.changelog("aggregate", p.name), cells, COMPACTED, True, "state"),
    ]
    if not p.direct:
        units = p.units_partitions
        specs.append(TopicSpec(names.units(p.name), units, TRIMMED, True, "events by unit"))
        log_name = names.changelog("bound", p.name)
        specs.append(TopicSpec(log_name, units, COMPACTED, True, "state"))
    if p.mechanism.feedback:
        specs.append(TopicSpec(names.selected(p.name), 1, TRIMMED, True, "what became public"))
    return specs


def layout(source: Input, p: Pipeline, names: Names) -> dict[str, int]:
    """Collect the topics that a pipeline's state is spread over, with their partitions."""
    own = {s.name: s.partitions for s in _of_pipeline(p, names)}
    own[names.changelog("ingest", source.name)] = source.partitions
    return own | {source.topic: source.partitions}

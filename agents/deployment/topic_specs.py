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
# The clock's owner compares its own time with the broker's before it commits a trigger.
CLOCK = KEPT | {"message.timestamp.type": "LogAppendTime"}
COMPACTED = ANY_TIME | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.3"}


class TopicSpec(NamedTuple):
    """One topic that must exist; ``internal`` ones hold raw data."""

    name: str
    partitions: int
    config: Mapping[str, str]
    internal: bool
    purpose: str


def public_topics(deployment: Deployment) -> list[TopicSpec]:
    """Topics whose names do not contain the genesis id."""
    specs = [
        TopicSpec(ledger_topic(deployment.name), 1, KEPT, True, "ledger: back it up, never delete"),
        TopicSpec(OWNERS, 1, KEPT, False, "which deployment writes which of these topics"),
    ]
    for p in deployment.pipelines:
        specs.append(
            TopicSpec(p.release_topic, p.release_partitions, PUBLIC, False, "private releases")
        )
        if p.dlq_topic:
            specs.append(TopicSpec(p.dlq_topic, 1, ANY_TIME, True, "bad records, raw"))
        if p.late_topic:
            specs.append(TopicSpec(p.late_topic, 1, ANY_TIME, True, "late records, raw"))
    return specs


def internal_topics(deployment: Deployment, names: Names) -> list[TopicSpec]:
    """Topics of one genesis."""
    specs = [
        TopicSpec(names.clock, 1, CLOCK, True, "beats and triggers"),
        TopicSpec(names.requests, 1, KEPT, True, "external triggers"),
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
        TopicSpec(names.cells(p.name), cells, KEPT, True, "partial sums"),
        TopicSpec(names.changelog("aggregate", p.name), cells, COMPACTED, True, "state"),
    ]
    if not p.direct:
        units = p.units_partitions
        specs.append(TopicSpec(names.units(p.name), units, KEPT, True, "events by unit"))
        log_name = names.changelog("bound", p.name)
        specs.append(TopicSpec(log_name, units, COMPACTED, True, "state"))
    if p.mechanism.feedback:
        specs.append(TopicSpec(names.selected(p.name), 1, KEPT, True, "what became public"))
    return specs


def layout(source: Input, p: Pipeline, names: Names) -> dict[str, int]:
    """Partitions of every topic that a pipeline's state is spread over."""
    own = {s.name: s.partitions for s in _of_pipeline(p, names)}
    own[names.changelog("ingest", source.name)] = source.partitions
    return own | {source.topic: source.partitions}

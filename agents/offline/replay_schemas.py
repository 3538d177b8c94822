"""Schemas by id as they were while a deployment ran, from the state of its ingest shards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...topics.config.model import Kafka
from ...topics.names import Names
from ...topics.schemas.schema import Known, Pinned, Schema, Verdict, decode_pinned
from ..deployment.model import Deployment
from ..stages.topology import INGEST
from ..state.layout import SCHEMA
from .replay_logs import StreamLog, spans

BATCH = 1_000


class RecordedSchemas:
    """The schemas that each partition used, and from which offset on; all others were unknown.

    Args:
        by_place: schemas by id, for each raw topic and partition.
    """

    def __init__(self, by_place: Mapping[tuple[str, int], Known]) -> None:
        self._by_place = by_place

    def pinned(self, topic: str, partition: int) -> Known:
        """Look up the schemas of a partition."""
        return self._by_place.get((topic, partition), {})

    def ask(self, number: int) -> Schema | Verdict:
        """Deny it: a schema that was used is pinned."""
        return Verdict.UNKNOWN


def recorded_schemas(kafka: Kafka, names: Names, deployment: Deployment) -> RecordedSchemas:
    """Read the schemas out of the changelogs of inputs whose values carry an id.

    Args:
        kafka: the connection.
        names: of the changelogs.
        deployment: its inputs.

    Raises:
        EngineError: a changelog cannot be read.
    """
    found: dict[tuple[str, int], dict[int, Pinned]] = {}
    for source in deployment.inputs:
        if not source.fields.framed:
            continue
        for span in spans(kafka, names.changelog(INGEST, source.name), source.partitions):
            mine = found.setdefault((source.topic, span.partition), {})

            def take(message: Any, into: dict[int, Pinned] = mine) -> None:
                key, value = message.key() or b"", message.value()
                if key[:1] == SCHEMA and value:
                    into[int.from_bytes(key[1:], "big")] = decode_pinned(value)

            log = StreamLog(kafka, span, BATCH, whole=False, make=take)
            try:
                log.drain()
            finally:
                log.close()
    return RecordedSchemas(found)

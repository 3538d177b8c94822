"""Decoding of released records in any encoding; a schema is looked up once, when it is needed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ..agents.kafka.cluster import Cluster
from ..agents.registry.announced import announced
from ..formats.events.decode import RawRecord
from ..formats.values.codec import Described, UnknownSchema
from ..topics.config.model import Kafka
from ..topics.releases import Manifest, Row, decode_public

AGAIN_SECONDS = 10.0  # at least, between look-ups, whatever others write to the topic


class Schemas:
    """A decoder of one release topic; ``options`` are further options of librdkafka, which win."""

    def __init__(self, kafka: Kafka, topic: str, options: Mapping[str, Any] | None = None) -> None:
        self._kafka, self._topic, self._options = kafka, topic, options
        self._known: Mapping[int, Described] = {}
        self._looked = float("-inf")

    def decode(self, record: RawRecord) -> Row | Manifest | None:
        """Decode a record; see `decode_public`.

        Raises:
            UnknownSchema: no announcement describes its schema.
            EngineError: the record is damaged, or no broker answers.
        """
        try:
            return decode_public(record.headers, record.value, self._known)
        except UnknownSchema:
            if time.monotonic() - self._looked < AGAIN_SECONDS:
                raise
        self._known = announced(self._cluster(), self._topic)
        self._looked = time.monotonic()
        return decode_public(record.headers, record.value, self._known)

    def _cluster(self) -> Cluster:
        return Cluster(self._kafka, role="reader", options=self._options)

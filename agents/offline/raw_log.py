"""A partition of a raw topic that a replay reads as a worker does: with the same limits."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition
from faust.types import TP

from ...errors import EngineError
from ...topics.config.model import Kafka
from ..kafka import tolerant_batches
from ..kafka.clients import consumer, stop_quietly
from ..kafka.intervals import Gone, Interval, Most
from ..kafka.logs import PATIENCE_SECONDS
from ..kafka.private.of_aiokafka import fetch
from .replay_logs import Span, StreamLog

LIST_BYTES = 8 << 20
WAIT_SECONDS = 0.2


class RawLog(StreamLog):
    """Records of the span of a raw topic.

    librdkafka would inflate a whole batch, and tell nobody where one begins; what a worker does not
    read of a batch depends on both. So this log is read with the worker's own client.

    Args:
        largest: bytes of a record in a compressed batch beyond which it is not read.
    """

    def __init__(self, kafka: Kafka, span: Span, most: int, largest: int) -> None:
        super().__init__(kafka, span, most)
        tolerant_batches.install()
        self._most_of_one = Most(most, LIST_BYTES, {span.topic: largest})
        self._loop = asyncio.Runner()
        self._reader: AIOKafkaConsumer | None = None

    def _read(self, offset: int) -> None:
        for interval in self._loop.run(self._lists()):
            records = [r for r in interval.records if offset <= r.offset < self._span.end]
            self._held.extend(records)
            if interval.end >= self._span.end:
                self._finish(self._span.end)
                return

    async def _lists(self) -> list[Interval]:
        tp = TP(self._span.topic, self._span.partition)
        if self._reader is None:
            await self._open(TopicPartition(*tp))
        until = time.monotonic() + PATIENCE_SECONDS
        gone = Gone(patience=0.0)

        def wanted() -> dict[TP, int]:
            return {tp: self._span.begin}

        while time.monotonic() < until:
            found = await fetch(self._reader, {tp}, wanted, gone, self._most_of_one, WAIT_SECONDS)
            if found:
                return found
        raise EngineError(
            f"{self._name} ends early: the broker is silent, or a transaction is open"
        )

    async def _open(self, tp: TopicPartition) -> None:
        self._reader = consumer(self._kafka)
        await self._reader.start()
        self._reader.assign([tp])
        self._reader.seek(tp, self._span.begin)

    def close(self) -> None:
        """Close the client."""
        reader: Any = self._reader
        if reader is not None:
            self._reader = None
            self._loop.run(stop_quietly(reader))
            self._loop.close()

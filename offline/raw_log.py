"""A partition of a raw topic that a replay reads with a worker's limits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition

from ..agents.kafka.backlog import Backlog, Room
from ..agents.kafka.batches import tolerant
from ..agents.kafka.clients import consumer, stop_quietly
from ..agents.kafka.intervals import Gone, Interval, Most, below, joined
from ..agents.kafka.logs import PATIENCE_SECONDS
from ..agents.kafka.private.of_aiokafka import fetch
from ..errors import EngineError
from ..topics.config.model import Kafka
from .replay_logs import Span

LIST_BYTES = 8 << 20
WAIT_SECONDS = 0.2


class RawLog:
    """Records of the span of a raw topic, in order; the client is opened on first use.

    librdkafka would decompress a whole batch and hide where batches begin; the part of a batch that
    a worker does not read depends on both. So this log is read with the worker's own client, and in
    chunks where a worker reads in chunks. At most ``most`` records are returned at once; records of
    more than ``largest`` bytes in a compressed batch are not read.
    """

    def __init__(self, kafka: Kafka, span: Span, most: int, largest: int) -> None:
        tolerant.install()
        self._kafka = kafka
        self._span = span
        self._most = most
        columns = (span.topic,)
        self._most_of_one = Most(most, LIST_BYTES, {span.topic: largest}, columns)
        self._held = Backlog(Room(LIST_BYTES), most=most)
        self._held.restart(span.begin)
        self._loop = asyncio.Runner()
        self._reader: AIOKafkaConsumer | None = None

    def since(self, offset: int, limit: int) -> tuple[Sequence[Any], int]:
        """Return up to ``limit`` records from ``offset`` on, and the offset where they end.

        Offsets never go back from one call to the next. Raises `EngineError` if the broker is
        silent, or the span cannot be read to its end.
        """
        limit = min(limit, self._most)
        self._held.release(offset)
        parts, _ = self._held.offered()
        while sum(map(len, parts)) < limit and self._held.end < self._span.end:
            self._read()
            self._held.release(offset)
            parts, _ = self._held.offered()
        records = joined(parts)[:limit]
        whole = len(records) < limit
        return records, max(self._span.end, offset) if whole else records[-1].offset + 1

    def _read(self) -> None:
        # `Runner.run` would pass each result, with all its records, to its signal handler, which
        # formats it as text.
        for found in self._loop.get_loop().run_until_complete(self._lists()):
            self._held.take(found._replace(records=below(found.records, self._span.end)))
        if self._held.end >= self._span.end:
            self.close()

    async def _lists(self) -> list[Interval]:
        tp = TopicPartition(self._span.topic, self._span.partition)
        if self._reader is None:
            await self._open(tp)
        until = time.monotonic() + PATIENCE_SECONDS
        gone = Gone(patience=0.0)

        def wanted() -> dict[TopicPartition, int]:
            return {tp: self._span.begin}

        while time.monotonic() < until:
            found = await fetch(self._reader, {tp}, wanted, gone, self._most_of_one, WAIT_SECONDS)
            if found:
                return found
        name = f"{self._span.topic}-{self._span.partition}"
        raise EngineError(f"{name} ends early: the broker is silent, or a transaction is open")

    async def _open(self, tp: TopicPartition) -> None:
        self._reader = consumer(self._kafka)
        await self._reader.start()
        self._reader.assign([tp])
        self._reader.seek(tp, self._span.begin)

    def close(self) -> None:
        reader: Any = self._reader
        if reader is not None:
            self._reader = None
            self._loop.run(stop_quietly(reader))
            self._loop.close()

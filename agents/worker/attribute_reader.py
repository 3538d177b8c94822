"""Reads attributes in the background: shards ask at any time, and an answer wakes them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from aiokafka.structs import TopicPartition

from ...errors import EngineError
from ...formats.events.raw import RawRecord
from ...topics.config.model import Kafka
from ..kafka.clients import reader
from ..kafka.intervals import Gone, Most, below, joined
from ..kafka.patience import OUTAGES, asked_to_end, check_outage
from ..kafka.private.of_aiokafka import fetch
from ..kafka.progress import Progress

MANY, LARGE = 20_000, 4 << 20  # records and bytes of one answer, about
WAIT_SECONDS = 0.2
SILENT_SECONDS = 30.0

log = logging.getLogger("hushstream.attributes")


class _Answer(NamedTuple):
    begin: int
    records: Sequence[RawRecord]
    reached: int


class AttributeReader:
    """Reads the topics that state attributes, as far as shards need them.

    Args:
        largest: most bytes of a record, by topic; a larger one is not read from a compressed batch.
        wake: called when an answer has come.

    Attributes:
        progress: progress of the reading.
    """

    def __init__(self, kafka: Kafka, largest: dict[str, int], wake: Callable[[], None]) -> None:
        self._kafka, self._wake = kafka, wake
        self._most = Most(MANY, LARGE, largest, tuple(largest))
        self._lock = threading.Lock()
        self._asked: dict[TopicPartition, tuple[int, int]] = {}
        self._found: dict[TopicPartition, _Answer] = {}
        self._stirred = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.progress = Progress("reading attributes")

    def read(
        self, topic: str, partition: int, begin: int, end: int
    ) -> tuple[Sequence[RawRecord], int] | None:
        """Return some records of [begin, end), and the offset before which they are complete.

        None: the records are still to come. Any thread may ask; each answer is given once.
        """
        place = TopicPartition(topic, partition)
        with self._lock:
            found = self._found.pop(place, None)
            if found is not None and found.begin == begin:
                return found.records, found.reached
            self._asked[place] = begin, end
        with contextlib.suppress(RuntimeError):  # the event loop is closed: the worker stops
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._stirred.set)
        return None

    async def run(self) -> None:
        """Read what shards ask for, for as long as the worker runs.

        Raises:
            EngineError: the broker was away for too long, or records that a shard needs were
            deleted.
        """
        self._loop, self._stirred = asyncio.get_running_loop(), asyncio.Event()
        self._stirred.set()
        heard = time.monotonic()
        while True:
            try:
                async with reader(self._kafka) as client:
                    while True:
                        self.progress.outage(False)
                        heard = time.monotonic()
                        await self._serve(client)
            except OUTAGES as error:
                if asked_to_end():
                    raise
                self.progress.outage(True)
                patience = self._kafka.outage_timeout
                check_outage(self.progress.what, heard + patience / 1e6, patience, error)
                log.warning("%s: waiting for the broker", self.progress.what)
                await asyncio.sleep(1.0)
                self._stirred.set()

    async def _serve(self, client: Any) -> None:
        """Wait for questions, and answer them."""
        if not self._asked:
            self.progress.rest()
        await self._stirred.wait()
        self._stirred.clear()
        with self._lock:
            asked = dict(self._asked)
        for place, (begin, end) in asked.items():
            self.progress.moved()
            answer = await self._read(client, place, begin, end)
            with self._lock:
                if self._asked.get(place) == (begin, end):
                    del self._asked[place]
                    self._found[place] = answer
        if asked:
            self._wake()

    async def _read(self, client: Any, place: TopicPartition, begin: int, end: int) -> _Answer:
        client.assign([place])
        first = (await client.beginning_offsets([place]))[place]
        if 0 < begin < first:
            raise EngineError(
                f"records of {place.topic} were deleted before their attributes were used: keep "
                "the newest of each unit (cleanup.policy=compact), and begin a new deployment "
                "(another deployment.name), or restore them"
            )
        position = max(begin, first)
        client.seek(place, position)
        parts, number, gone = list[Sequence[Any]](), 0, Gone()
        until = time.monotonic() + SILENT_SECONDS
        while position < end and number < MANY:
            if time.monotonic() > until:
                raise TimeoutError(f"{place.topic}: the broker is silent")
            wanted = partial(dict[TopicPartition, int], {place: position})
            for one in await fetch(client, {place}, wanted, gone, self._most, WAIT_SECONDS):
                parts.append(below(one.records, end))
                number, position = number + len(parts[-1]), one.end
                until = time.monotonic() + SILENT_SECONDS
        return _Answer(begin, joined(parts), min(position, end))

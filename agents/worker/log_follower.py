"""Logs that every worker reads whole: the clock, and what was released with feedback."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from ...errors import EngineError
from ...topics.config.model import Kafka
from ...topics.names import Names
from ...topics.records import ClockRecord
from ..clock.log import RECENT, ClockLog, Entry, entries_of
from ..kafka.clients import consumer, reached, read_to_end, stop_quietly, through_outages
from ..stages.feedback import Feedback

log = logging.getLogger("hushstream.follower")


class LogFollower:
    """Follows the clock and the selected topics, which every worker reads whole.

    Args:
        kafka: where they are.
        names: of all topics.
        clock: fed with the clock topic.
        feedback: by pipeline; fed with the selected topics.
        key_fingerprint: of this worker's noise key.
        wake: called after each list.
        on_failure: told what made the follower stop, save an outage of the broker.
    """

    def __init__(
        self,
        kafka: Kafka,
        names: Names,
        clock: ClockLog,
        feedback: Mapping[str, Feedback],
        key_fingerprint: str,
        wake: Callable[[], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._kafka = kafka
        self._names = names
        self.clock = clock
        self._fingerprint = key_fingerprint
        self._wake = wake
        self._on_failure = on_failure
        self._selected = {names.selected(name): one for name, one in feedback.items()}
        self._positions: dict[TopicPartition, int] = {}
        self._task: asyncio.Task[None] | None = None
        self._reading = asyncio.Lock()

    async def open(self) -> None:
        """Read all logs to their ends, then follow them."""
        await through_outages("following the clock", self._catch_up, _nothing)
        self._task = asyncio.create_task(self._run(), name="follower")

    async def _catch_up(self) -> None:
        for topic in (self._names.clock, *self._selected):
            tp = TopicPartition(topic, 0)
            start = self._positions.get(tp)  # where an earlier attempt got to
            async for records, position, end in read_to_end(self._kafka, topic, 0, start):
                old = max(end - RECENT, 0)
                self._take(tp, records, position, old)
                if topic == self._names.clock:
                    self.clock.skip(min(old, position))

    def _take(self, tp: TopicPartition, records: list[Any], position: int, old: int = 0) -> None:
        if tp.topic == self._names.clock:
            for place, entry in entries_of(records, old):
                self._check(entry)
                self.clock.append(place, entry)
        else:
            for record in records:
                self._selected[tp.topic].apply(record.value)
        self._positions[tp] = position

    def _check(self, record: ClockRecord) -> None:
        """Every worker must hold the key of whoever started the pipeline.

        Another key would give a unit a second digest, hence a second bound, and a release a
        second noise. The clock log is read before any record is used, so nothing was done yet.
        """
        named = getattr(record, "key_fingerprint", "")
        if named and named != self._fingerprint:
            raise EngineError(
                f"this worker's noise key (fingerprint {self._fingerprint}) is not the one that "
                f"this deployment began with ({named}): give every worker the same key"
            )

    async def _run(self) -> None:
        while True:
            try:
                await self._follow()
            except asyncio.CancelledError:
                raise
            except (KafkaError, ConnectionError) as error:
                log.warning("following the clock: %s; trying again", type(error).__name__)
                await asyncio.sleep(1.0)
            except BaseException as error:
                self._on_failure(error)
                return

    async def _follow(self) -> None:
        client = consumer(self._kafka)
        try:
            await client.start()
            client.assign(list(self._positions))
            await reached(client, self._positions)
            for tp, position in self._positions.items():
                client.seek(tp, position)
            while True:
                found = await client.getmany(timeout_ms=500)
                for tp, records in found.items():
                    self._take(tp, records, records[-1].offset + 1)
                if found:
                    self._wake()
        finally:
            await stop_quietly(client)

    async def beats_from(self, place: int) -> None:
        """Read beats from ``place`` on that were passed over or dropped: a shard stands there."""
        async with self._reading:
            if place >= self.clock.base:
                return

            async def read() -> None:
                entries: list[Entry] = []
                async for records, _, _ in read_to_end(self._kafka, self._names.clock, 0, place):
                    entries += entries_of(records, place)
                self.clock.restore(place, entries)

            await through_outages("reading the clock again", read, _nothing)

    async def recall(self) -> None:
        """Read feedback that was forgotten again, for shards that come from elsewhere."""
        for topic, known in self._selected.items():
            below = known.reopen()
            if below is not None:
                again = self._recall(topic, below)
                await through_outages("reading feedback again", again, _nothing)

    def _recall(self, topic: str, below: int) -> Callable[[], Awaitable[None]]:
        async def read() -> None:
            fresh = self._selected[topic].blank()
            async for records, _, _ in read_to_end(self._kafka, topic, 0):
                for record in records:
                    fresh.apply(record.value)
            self._selected[topic].recall(fresh, below)

        return read

    async def close(self) -> None:
        """Stop following."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task


async def _nothing() -> None:
    """A reader leaves nothing behind."""

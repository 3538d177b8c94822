"""aiokafka's producer and consumer as the product uses them, against the broker in memory.

Each fails like the real one. Requests time out; a producer with an old epoch is fenced; a client
that is stopped after an outage may hang, raise, or raise its own `CancelledError`. A producer sends
a request without an answer once more and continues, unless `send_once` was called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from aiokafka.errors import (
    IllegalOperation,
    KafkaConnectionError,
    KafkaError,
    OffsetOutOfRangeError,
    ProducerFenced,
)
from aiokafka.structs import OffsetAndTimestamp, TopicPartition

from . import world
from .broker import Broker
from .log import Answer
from .loop import HERE
from .network import Again, Held

MOST = 200  # records in one answer
ROOM = 40  # records in one batch
AGAIN = 0.1  # seconds after which aiokafka sends a request again


async def connect(broker: Broker) -> None:
    """Reach the cluster, or fail."""
    await broker.call(lambda: None, patience=1.0 + broker.random.random())


async def hang_up(broker: Broker, outages: int) -> None:
    """Stop a client; after an outage, this may fail."""
    draw = broker.random.random()
    if broker.down or broker.outages > outages:
        if draw < 0.3:
            raise asyncio.CancelledError
        if draw < 0.5:
            raise KafkaConnectionError("stopping")
        if draw < 0.7 and broker.down:
            await broker.call(lambda: None, patience=1000.0)
    elif draw < 0.2:
        await asyncio.sleep(broker.delay())


class Batch:
    """A batch that `agents.kafka.private.of_aiokafka.fill` fills."""

    def __init__(self) -> None:
        self.contents: list[tuple[Any, ...]] = []
        self._builder = self
        self._relative_offset = 0

    def append(self, place: int, at: int, key: Any, value: Any, headers: Any) -> Any:
        """Append a record; None if there is no room."""
        if len(self.contents) >= ROOM:
            return None
        self.contents.append((key, value, at, tuple(headers)))
        return True


class SimProducer:
    """A transactional producer."""

    def __init__(self, **options: Any) -> None:
        self._broker = world.current().broker
        self._id: str = options["transactional_id"]
        self._timeout = options["transaction_timeout_ms"] / 1000
        self._outages = self._broker.outages
        self._epoch = -1
        self._sent: list[asyncio.Future[Any]] = []
        self._arrival = 0.0
        self._fatal = False
        self._open = False
        self._serial = 0
        self._wanted: set[tuple[str, int]] = set()
        self._added: set[tuple[str, int]] = set()  # partitions that the broker knows of
        self.once = False

    async def start(self) -> None:
        """Connect, and fence the owner of the id."""
        broker, here = self._broker, HERE.get()
        await connect(broker)
        who = "" if here is None else here.name

        def work() -> int:
            return broker.initialise(self._id, who)

        before = broker.holder(self._id)
        if broker.tear(work):
            await asyncio.sleep(AGAIN)
        self._epoch = await broker.call(work)
        world.current().group.opened(self._id, who, before)

    async def begin_transaction(self) -> None:
        """Begin a transaction."""
        if self._fatal or self._open:
            raise IllegalOperation("the producer is not ready")
        self._open, self._sent = True, []
        self._wanted, self._added = set(), set()

    def create_batch(self) -> Batch:
        """Make an empty batch."""
        return Batch()

    async def send_batch(self, batch: Batch, topic: str, *, partition: int) -> Any:
        """Send a batch; return the future of its answer."""
        return self._send((topic, partition), batch.contents)

    async def send(
        self, topic: str, value: Any, *, key: Any = None, partition: int,
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[Any]:  # fmt: skip
        """Send one record; return the future of its answer."""
        return self._send((topic, partition), [(key, value, timestamp_ms, ())])

    def _send(
        self, place: tuple[str, int], contents: list[tuple[Any, ...]]
    ) -> asyncio.Future[Answer]:
        if self._fatal:
            raise IllegalOperation("fenced before")
        broker = self._broker
        self._arrival = max(self._arrival + 1e-6, broker.loop.now + broker.delay())
        self._serial += 1
        epoch, serial, wanted, added = self._epoch, self._serial, self._wanted, self._added

        def add() -> None:
            for one in sorted(wanted - added):
                broker.add(self._id, epoch, one, self._timeout)
                added.add(one)

        def batch() -> Answer:
            return broker.produce(self._id, epoch, place, contents, self._timeout, serial)[0]

        def work() -> Answer:
            add()
            return batch()

        def late() -> None:
            broker.add(self._id, epoch, place, self._timeout)

        new = place not in wanted
        wanted.add(place)
        if new and broker.tear(late) and self.once:
            self._fatal = True
            sent = broker.loop.create_future()
            broker.loop.call_later(broker.delay(), broker._reply, sent, Held())
        else:
            broker.tear(batch)
            sent = broker.call(work, patience=30.0, at=self._arrival)
        self._sent.append(sent)
        return sent

    async def commit_transaction(self) -> None:
        """Wait for all answers, then commit."""
        await self._finish(True)

    async def abort_transaction(self) -> None:
        """Abort the transaction."""
        await self._finish(False)

    async def _finish(self, commit: bool) -> None:
        if self._fatal:
            raise IllegalOperation("fenced before")
        try:
            for answer in self._sent:
                with suppress(KafkaError):  # like aiokafka, which commits what was not refused
                    await answer
            self._open = False
            await self._end(commit)
        except ProducerFenced:
            self._fatal = True
            raise
        except KafkaError:
            self._open = True
            self._fatal = self._fatal or self.once
            raise

    async def _end(self, commit: bool) -> None:
        broker, epoch = self._broker, self._epoch
        bump = self.once and broker.bumps

        def work() -> int:
            return broker.end(self._id, epoch, commit, bump)

        # With brokers that keep the epoch, an answered request must not arrive again.
        if broker.tear(work, broker.bumps, self._id):
            await asyncio.sleep(broker.delay())
            if self.once:
                raise Held
            await asyncio.sleep(AGAIN)
        self._epoch = await broker.call(work, 60.0, twice=True)

    async def stop(self) -> None:
        """Disconnect; an open transaction stays open."""
        await hang_up(self._broker, self._outages)


class SimConsumer:
    """A consumer without a group."""

    def __init__(self, **options: Any) -> None:
        self._broker = world.current().broker
        self._outages = self._broker.outages
        self._assigned: list[TopicPartition] = []
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._fetcher = None  # it waits as long as it likes
        self._committed = options["isolation_level"] == "read_committed"

    async def start(self) -> None:
        """Connect."""
        await connect(self._broker)

    async def stop(self) -> None:
        """Disconnect."""
        await hang_up(self._broker, self._outages)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions."""
        self._assigned = list(partitions)

    def pause(self, *partitions: TopicPartition) -> None:
        """Fetch nothing from these partitions."""
        self._paused.update(partitions)

    def seek(self, tp: TopicPartition, position: int) -> None:
        """Read a partition from this position on."""
        self._positions[tp] = position

    async def position(self, tp: TopicPartition) -> int:
        """The position of a partition."""
        return self._positions[tp]

    async def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[Any, int]:
        """Last stable offsets; log ends for a client that reads uncommitted records."""
        return await self._asked(partitions, self._end)

    async def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[Any, int]:
        """First offsets."""
        return await self._asked(partitions, lambda log: log.start)

    async def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[Any, Any]:
        """Offsets of the first records at or after these times, in milliseconds."""
        found = await self._asked(list(times), lambda log: log.end)
        for tp, end in found.items():
            held = self._broker.logs[tp.topic, tp.partition]
            later = (one for one in held.records[held.start : end]
                     if one is not None and one.timestamp >= times[tp])  # fmt: skip
            first = next(later, None)
            found[tp] = first and OffsetAndTimestamp(first.offset, first.timestamp)
        return found

    async def _asked(
        self, partitions: Sequence[TopicPartition], what: Callable[[Any], int]
    ) -> dict[Any, int]:
        broker, here = self._broker, HERE.get()

        def work() -> dict[Any, int]:
            places = [(tp.topic, tp.partition) for tp in partitions]
            if broker.leaderless and not broker.leaderless.isdisjoint(places):
                raise Again
            seen = [what(broker.seen(place, here)) for place in places]
            return dict(zip(partitions, seen, strict=True))

        return await broker.call(work)  # type: ignore[no-any-return]

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0
    ) -> dict[Any, list[Any]]:
        """Records of these partitions, or of all; waits a moment if there are none."""
        wanted = [tp for tp in partitions or self._assigned if tp not in self._paused]
        until = self._broker.loop.now + timeout_ms / 1000
        while True:
            found = self._take(wanted)
            if found or self._broker.loop.now >= until:
                return found
            await self._wait(wanted, until)

    def _take(self, wanted: Iterable[TopicPartition]) -> dict[Any, list[Any]]:
        found: dict[Any, list[Any]] = {}
        broker, here = self._broker, HERE.get()
        if broker.away(here):
            return found
        for tp in wanted:
            place, position = (tp.topic, tp.partition), self._positions[tp]
            if place in broker.leaderless:
                continue
            log, seen = broker.logs[place], broker.seen(place, here)
            if not seen.start <= position <= seen.end:
                raise OffsetOutOfRangeError({tp: position})
            if position < (below := self._end(seen)):
                found_now = log.read(position, MOST, self._committed, below)
                records, self._positions[tp] = found_now
                if records:
                    found[tp] = records
        return found

    def _more(self, tp: TopicPartition) -> bool:
        place = (tp.topic, tp.partition)
        end = self._end(self._broker.seen(place, HERE.get()))
        return place not in self._broker.leaderless and self._positions[tp] < end

    def _end(self, log: Any) -> int:
        end: int = log.stable if self._committed else log.end
        return end

    async def _wait(self, wanted: Sequence[TopicPartition], until: float) -> None:
        """Wait until there may be more records, or until the deadline."""
        broker = self._broker
        more = broker.loop.create_future()
        logs = [broker.logs[tp.topic, tp.partition] for tp in wanted]

        def soon() -> None:
            broker.loop.call_later(broker.delay(), broker._reply, more, None)

        for log in logs:
            log.watchers.append(soon)
        timer = broker.loop.call_at(until, broker._reply, more, None)
        try:
            # A position that has only control markers before it moves without an answer.
            if not any(self._more(tp) for tp in wanted) or broker.away(HERE.get()):
                await more
            else:
                await asyncio.sleep(0)
        finally:
            timer.cancel()
            for log in logs:
                log.watchers.remove(soon)


def send_once(producer: SimProducer) -> SimProducer:
    """Make a producer give up instead of repeating a request without an answer."""
    producer.once = True
    return producer

"""Follows the logs that every worker reads in full: the clock log and the selected topics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition

from ...errors import EngineError, RewoundError
from ...topics.config.model import Kafka
from ...topics.names import Names
from ...topics.records import ClockRecord
from ..clock.log import RECENT, ClockLog, Entry, entries_of
from ..clock.snapshots import Opening, beginning
from ..clock.wall_time import WallClock
from ..kafka.clients import READ_SECONDS, reached, read_to_end, reader
from ..kafka.outage import OUTAGE
from ..kafka.patience import OUTAGES, asked_to_end, check_outage, through_outages
from ..kafka.private.of_aiokafka import FIXED_MS, wait_patiently
from ..kafka.progress import Progress
from ..stages.feedback import Feedback
from .tables.evidence import LastRead
from .tasks import Tasks

Ends = Mapping[TopicPartition, int]
LOOK_SECONDS = 10.0
BESIDE = 2  # offsets that an unread trigger takes at least: its own, and its transaction's marker


@dataclass(frozen=True)
class Hearers:
    """Callbacks into the worker for what a `LogFollower` learns.

    Attributes:
        wake: called after each list of records.
        fail: called with what made the follower stop, unless the broker was away.
        answered: called with the time of each answer of the broker, microseconds since 1970.
        others: returns further partitions whose end offsets are wanted.
    """

    wake: Callable[[], None]
    fail: Callable[[BaseException], None]
    answered: Callable[[int], object] = int
    others: Callable[[], Sequence[TopicPartition]] = tuple


class LogFollower:
    """Follows the clock log and the selected topics, which every worker reads in full.

    Args:
        feedback: feedback by pipeline, fed with the selected topics.
        fingerprints: fingerprints of this worker's noise keys, by pipeline.
        hearers: callbacks for what it learns.
        wall: learns the times of the clock log.

    Attributes:
        place: the clock log's partition.
        ends: latest end offsets of `Hearers.others`; always the same dictionary.
    """

    def __init__(
        self,
        kafka: Kafka,
        names: Names,
        clock: ClockLog,
        feedback: Mapping[str, Feedback],
        fingerprints: Mapping[str, str],
        hearers: Hearers,
        wall: WallClock | None = None,
    ) -> None:
        self._kafka = kafka
        self._names = names
        self.clock = clock
        self.place = TopicPartition(names.clock, 0)
        self.feedback = feedback
        self._fingerprints = fingerprints
        self._hearers = hearers
        self._selected = {self._place(name): one for name, one in feedback.items()}
        self._positions: dict[TopicPartition, int] = {}
        self._read = LastRead()
        # Where each window begins in its selected topic, so that the topic can be trimmed.
        self._windows: dict[TopicPartition, dict[int, int]] = {tp: {} for tp in self._selected}
        self._tasks = Tasks(hearers.fail)
        self._wall = wall or WallClock()
        self.progress = Progress("following the clock")
        self.ends: dict[TopicPartition, int] = {}
        self._task: asyncio.Task[None] | None = None
        self._reading = asyncio.Lock()
        self._further = asyncio.Event()  # a position has moved
        self._heard = time.monotonic()  # when the broker last reported the ends of the logs

    def _place(self, pipeline: str) -> TopicPartition:
        return TopicPartition(*self._names.place(self._names.selected(pipeline)))

    async def open(self) -> None:
        """Read all logs to their ends, then follow them."""
        await self._through(self._catch_up)
        self._task = self._tasks.start("following the clock", self._run())

    async def _through(self, read: Callable[[], Awaitable[None]]) -> None:
        await through_outages(self.progress, read, _nothing, self._kafka.outage_timeout)

    async def _catch_up(self) -> None:
        await self._read_clock()
        for tp in self._selected:
            start = self._positions.get(tp)  # where an earlier attempt got to
            before = self._read.number(tp)
            async for records, position, _ in read_to_end(
                self._kafka, tp.topic, tp.partition, start
            ):
                self._take(tp, records, position, before)

    async def _read_clock(self) -> None:
        """The clock log, from the snapshot that is needed; or from where an attempt got to."""
        topic, tp = self._names.clock, self.place
        start, before = self._positions.get(tp), self._read.number(tp)
        opening = Opening(0)
        if start is None:
            start = await beginning(self._kafka, topic)
            opening = Opening(start)
        async for records, position, end in read_to_end(self._kafka, topic, 0, start):
            old = max(end - RECENT, 0)
            entries = entries_of(records, old)
            if (snapshot := opening.first(entries)) is not None:
                self.clock.begin(entries[0][0], snapshot)
            self._take_entries(entries)
            self._reach(tp, position, records, before)
            self.clock.skip(min(old, position))
        opening.end()

    def _take(
        self, tp: TopicPartition, records: Sequence[Any], position: int, before: int | None = None
    ) -> None:
        if tp.topic == self._names.clock:
            self._take_entries(entries_of(records, 0))
        else:
            for record in records:
                window = self._selected[tp].apply(record.value)
                self._windows[tp].setdefault(window, record.offset)
        self._reach(tp, position, records, before)

    def below(self, first: Mapping[str, int]) -> dict[TopicPartition, int]:
        """Find the places of selected topics below which all windows are before ``first``."""
        found = {}
        for pipeline, window in first.items():
            tp = self._place(pipeline)
            if tp in self._windows:
                known = {w: at for w, at in self._windows[tp].items() if w >= window}
                self._windows[tp] = known
                reached = self._positions.get(tp, 0)
                found[tp] = min(known.values(), default=reached)
        return found

    def _take_entries(self, entries: list[Entry]) -> None:
        for place, entry in entries:
            self._check(entry)
            self._wall.reach(entry.time)
            self.clock.append(place, entry)

    def _reach(
        self,
        tp: TopicPartition,
        position: int,
        records: Sequence[Any] = (),
        before: int | None = None,
    ) -> None:
        """Advance to a position; the lists of one reading, begun after ``before``, count as one."""
        self._positions[tp] = position
        self._further.set()
        if records:
            self._read.add(tp, records[-1], before)
        self.progress.moved()

    def _check(self, record: ClockRecord) -> None:
        """Check that this worker holds the noise key under which each of its pipelines was started.

        Under another key, a unit would have a second digest, hence a second bound, and a release a
        second noise. The clock log is read before any record is used, so the check comes in time.
        """
        named = getattr(record, "key_fingerprint", "")
        name = getattr(record, "pipeline", "")
        mine = self._fingerprints.get(name, named)
        if named and named != mine:
            raise EngineError(
                f"this worker's noise key (fingerprint {mine}) is not the one that pipeline "
                f"{name!r} began with ({named}): give every worker the same key"
            )

    async def _run(self) -> None:
        patience = self._kafka.outage_timeout
        self._heard = time.monotonic()
        while True:
            try:
                await self._follow()
            except OUTAGES as error:
                if asked_to_end():
                    raise
                until = self._heard + patience / 1e6
                self.progress.outage(True)
                check_outage(self.progress.what, until, patience, error)
                OUTAGE.sign(type(error).__name__)
                await asyncio.sleep(1.0)

    async def _follow(self) -> None:
        async with reader(self._kafka) as client:
            wait_patiently(client, FIXED_MS)
            client.assign(list(self._positions))
            ends = await self._look(client, {})
            await self._pass_trimmed(client)
            await self._read.check(client)
            for tp, position in self._positions.items():
                client.seek(tp, position)
            while True:
                found = await client.getmany(timeout_ms=2000)
                for tp, records in found.items():
                    self._take(tp, records, records[-1].offset + 1)
                if found:
                    self._hearers.wake()
                if time.monotonic() - self._heard > LOOK_SECONDS:
                    await self._pass_markers(client)
                    ends = await self._look(client, ends)
                    if self._read.unchecked:
                        await self.check()  # the client may have lost its broker without an error

    async def _pass_markers(self, client: AIOKafkaConsumer) -> None:
        """Move positions past transaction markers, which take up offsets but are not records.

        Without this, `_look` would always find the end of the log ahead of the last record.
        """
        for tp in self._positions:
            self._positions[tp] = max(self._positions[tp], await client.position(tp))
        self._further.set()

    async def _pass_trimmed(self, client: AIOKafkaConsumer) -> None:
        """Move positions past what was trimmed while this worker was away."""
        for tp, begin in (await client.beginning_offsets(list(self._positions))).items():
            if self._positions[tp] >= begin:
                continue
            if tp.topic == self._names.clock:
                raise EngineError(
                    "the clock log was trimmed above what this worker has read of it, since the "
                    "worker was away for long: restart it"
                )
            self._positions[tp] = begin  # no shard needs the trimmed windows any more

    async def _look(self, client: AIOKafkaConsumer, before: Ends) -> Ends:
        """Ask for the ends of the logs: a client that waits may be cut off unnoticed."""
        others = {TopicPartition(*tp): 0 for tp in self._hearers.others()}
        found = await reached(client, {**others, **self._positions})
        ends = {tp: found[tp] for tp in self._positions}
        if any(self._positions[tp] < end for tp, end in before.items()):
            raise TimeoutError
        for tp in self.ends.keys() - found.keys():
            del self.ends[tp]
        self.ends.update((tp, found[tp]) for tp in others)
        self._heard = time.monotonic()
        self._hearers.answered(self._wall.now())
        self.progress.outage(False)
        OUTAGE.answered()
        return ends

    async def check(self, known: Mapping[TopicPartition, int] = MappingProxyType({})) -> bool:
        """Check that logs hold what a shard has applied, and what this worker has read of its own.

        A shard that opens must not rely on logs that this worker has read from another history:
        their records in memory decide what the shard applies.

        Args:
            known: positions in the marker of a shard.

        Returns:
            Whether the clock log has no trigger that is not read yet.

        Raises:
            RewoundError: a log ends below a position, or has another record in the last place read.
        """
        ends = dict(self._positions)
        for tp, position in known.items():
            place = TopicPartition(*tp)
            ends[place] = max(position, ends.get(place, 0))
        async with reader(self._kafka) as client:
            found = await reached(client, ends)
            if places := self._read.places:
                client.assign(places)
                await self._read.check(client)
        # The last offset is often a transaction's marker; a trigger would have one of its own.
        return found.get(self.place, 0) - self._positions.get(self.place, 0) < BESIDE

    async def reach_back(
        self, place: int, pipelines: Sequence[str], raw: tuple[str, int] | None = None
    ) -> None:
        """Make the clock log available to a shard of an input: up to its place, and from there on.

        The entry before its place is available, too, unless it was trimmed. Dropped parts of the
        log are read again.

        Args:
            raw: topic and partition number of the shard's input.

        Raises:
            EngineError: the log was trimmed above that place.
            RewoundError: it has no record there.
            TimeoutError: the broker is silent.
        """
        await self._until(place)
        async with self._reading:
            with suppress(EngineError):
                self.clock.opening(place, pipelines, raw)
                if place == 0 or self.clock.passed(place) is not None:
                    return

            async def read() -> None:
                topic, entries = self._names.clock, list[Entry]()
                since = max(place - 1, 0)
                begin, first, opening = -1, None, Opening(0)
                async for records, position, _ in read_to_end(self._kafka, topic, 0):
                    if begin < 0:
                        begin, opening = position, Opening(position)
                    found = entries_of(records, since)
                    first = opening.first(found) or first
                    entries += found
                opening.end()
                self.clock.restore(begin, first, since, entries)

            await self._through(read)
            self.clock.opening(place, pipelines, raw)

    async def _until(self, place: int) -> None:
        """Wait until the log is read up to a shard's place.

        A worker that was suspended may be given a shard that has advanced on another worker.
        Opening it too early would skip what lies in between, such as a start or a trigger.
        """
        try:
            async with asyncio.timeout(READ_SECONDS):
                while self._positions[self.place] < place:
                    self._further.clear()
                    await self._further.wait()
        except TimeoutError:  # the broker may be away; the shard tries again
            raise TimeoutError("the clock log was not read up to a shard's place") from None
        if self.clock.end < place:
            raise RewoundError("the clock log ends before what a shard has applied")

    async def recall(self) -> None:
        """Read dropped feedback again, for shards that come from another worker."""
        for tp, known in self._selected.items():
            below = known.reopen()
            if below is not None:
                again = self._recall(tp, below)
                await self._through(again)

    def _recall(self, tp: TopicPartition, below: int) -> Callable[[], Awaitable[None]]:
        async def read() -> None:
            fresh = self._selected[tp].blank()
            async for records, _, _ in read_to_end(self._kafka, tp.topic, tp.partition):
                for record in records:
                    fresh.apply(record.value)
            self._selected[tp].recall(fresh, below)

        return read

    async def close(self) -> None:
        """Stop following."""
        if self._task is not None:
            await self._tasks.stop(self._task)


async def _nothing() -> None:
    """Release nothing: a reader holds nothing from one attempt to the next."""

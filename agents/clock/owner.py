"""The clock's owner: the one worker that writes beats, charges and triggers, and so spends budget.

The worker that is assigned the single partition of the clock topic owns the clock. It opens the
clock like a shard: starting its producer fences the previous owner, then it reads clock log and
ledger to their ends (`known`).
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from typing import Any

from aiokafka.errors import NotLeaderForPartitionError, ProducerFenced
from aiokafka.structs import TopicPartition

from ...errors import HushError
from ...topics.config.pipelines.schedule import Due
from ...topics.records import (
    Beat,
    ClockRecord,
    Offsets,
    Skipped,
    Start,
    Trigger,
    encode,
)
from ..deployment.model import Pipeline
from ..kafka.clients import (
    STOP_SECONDS,
    answers,
    consumer,
    reached,
    start_producer,
    stop_quietly,
    transactional_producer,
    within,
)
from ..kafka.outage import OUTAGE
from ..kafka.patience import AWAY, OUTAGES, asked_to_end, check_outage, through_outages
from ..kafka.progress import Progress
from .known import AskedTriggers, ClockSetup, KnownLogs
from .ledger import Ledger
from .ledger_record import Record
from .snapshots import ShardMarkers, Trim, read_markers
from .wall_time import SOON, STEADY, ClockLead, Pace, Settling, WallClock

log = logging.getLogger("hushstream.clock")


class ClockOwner:
    """Runs the `Clock` of its `KnownLogs` against the broker until it is closed.

    Args:
        on_record: called with each committed record, and the ledger at that point.
        on_lost: called for each failed transaction, unless another owner has taken over.
        trim: called after each snapshot with places below which nothing is needed, and with the
            first window of each pipeline that a shard may still need; None: nothing is trimmed.
        settling: holds back triggers after an outage; one object per process.

    Attributes:
        leaving: whether to end `run` with the first failure, such as another owner, and to open
            no more.
    """

    leaving = False

    def __init__(
        self,
        setup: ClockSetup,
        on_record: Callable[[Pipeline, ClockRecord, Ledger], None],
        on_lost: Callable[[], None],
        trim: Trim | None,
        settling: Settling,
    ) -> None:
        self._kafka, self._names, self._deployment = setup.kafka, setup.names, setup.deployment
        self._pace = Pace(setup.engine.beat_interval / 1e6)
        self._lead = ClockLead(setup.names.clock, setup.engine.max_clock_lead)
        self._witness = setup.witness
        self._timeout = setup.engine.transaction_timeout // 1000
        self._on_record = on_record
        self._on_lost = on_lost
        self._trim = trim
        self._settling = settling
        self._unsure = set[str]()  # logs that were read but not written since
        self._owned = False  # whether this owner has opened before
        self._markers: asyncio.Task[ShardMarkers] | None = None
        self.progress = Progress("the clock")
        self._known = KnownLogs(setup, self.progress)
        self._requests = AskedTriggers(setup.kafka, setup.names.requests, self._pace.hurry)
        self._producer: Any = None
        self._asker: Any = None
        self._partitions = [
            TopicPartition(i.topic, n) for i in self._deployment.inputs for n in range(i.partitions)
        ]

    async def open(self) -> bool:
        """Fence the previous owner and read both logs; then `run`. False: it is leaving instead."""
        patience, stays = self._kafka.outage_timeout, lambda: not self.leaving
        return await through_outages(self.progress, self._acquire, self.close, patience, stays)

    async def _acquire(self) -> None:
        # Fence first: an earlier owner's open transaction is aborted before the logs are read.
        identity = self._names.transactional_id("clock", "clock", 0)
        self._producer = transactional_producer(self._kafka, identity, self._timeout)
        logs = (self._names.clock, self._names.ledger)
        await start_producer(self._producer, [TopicPartition(name, 0) for name in logs])
        await self._known.read()
        self._unsure = set(logs)
        self._wall = WallClock(self._known.clock.time)
        self._asker = consumer(self._kafka)  # fetches nothing, so its questions wait for no fetch
        await self._asker.start()
        await reached(self._asker, self._covered())
        await self._requests.open(self._known.clock, self._wall, self._known.snapshots.last)
        self._settle()

    def _settle(self) -> None:
        """Find out whether the brokers were away, or the clock had no owner for a while."""
        now, clock = self._wall.now(), self._known.clock
        if self._owned:  # it has lost a transaction since
            self._settling.answered(now, self._pace.longest)
        else:
            first = next((d.scheduled for p, d in clock.due(now) if not p.external), None)
            self._settling.opened(now, clock.time, first, self._pace.longest)
        self._owned = True

    def _held(self, pipeline: Pipeline, due: Due) -> bool:
        """Whether a trigger must wait for buffered records; requested ones never do."""
        lateness = pipeline.windows.lateness
        return not pipeline.external and self._settling.holds(
            due.scheduled, lateness, self._wall.now()
        )

    def _covered(self) -> dict[TopicPartition, int]:
        """Offsets of raw topics that the clock log has covered; no raw topic can end below them."""
        last = self._known.clock.offsets
        return {
            tp: last[tp.topic][tp.partition]
            for tp in self._partitions
            if tp.partition < len(last.get(tp.topic, []))
        }

    async def run(self) -> None:
        """Beat until cancelled; wait out outages of the broker, and raise any other error.

        Raises:
            EngineError: no beat has succeeded for `kafka.outage_timeout`, although it could open.
        """
        patience, until = self._kafka.outage_timeout, math.inf  # until when beats may fail
        while True:
            self._pace.begin()
            began = time.monotonic()  # a suspended process fails once more
            try:
                await self._beat()
                until = math.inf
                self.progress.moved()
                await self._rest()
            except OUTAGES as error:
                if asked_to_end():
                    raise
                if self.leaving:
                    return
                if began > until:
                    check_outage(self.progress.what, until, patience, error)
                until = min(until, time.monotonic() + patience / 1e6)
                await self._again(error)
                if self.leaving:
                    return

    async def _rest(self) -> None:
        """Wait until the next beat is due, or a request has come."""
        soon = bool(self._known.clock.due(self._wall.now() + SOON))
        await asyncio.sleep(self._pace.least)  # even after a slow beat, other tasks need a turn
        await self._requests.read(self._pace.left(soon))

    async def _again(self, error: BaseException) -> None:
        """Open again after a failed transaction.

        Whether the broker has committed it is unknown, so both logs are read again.
        """
        if not isinstance(error, ProducerFenced):  # losing ownership is no error
            self._on_lost()
        if isinstance(error, AWAY):
            OUTAGE.sign(type(error).__name__)
        else:
            log.warning("the clock lost a transaction (%s); reopening", type(error).__name__)
        if isinstance(error, TimeoutError):  # no broker has answered for long
            self.progress.outage(True)
        # If fenced, another worker owns the clock. Fencing it back at once would make the two
        # alternate; the rebalance that moved the clock closes this owner within seconds.
        await asyncio.sleep(3.0 if isinstance(error, ProducerFenced) else 1.0)
        await self.close()
        await self.open()

    async def _beat(self) -> None:
        clock = self._known.clock
        await self._requests.read()
        now = await self._advance()
        while found := clock.due(now, self._held):
            # One transaction per trigger keeps it small, and a charge next to its trigger.
            for pipeline, due in found:
                if self._held(pipeline, due):
                    break  # the brokers were away: this cut would leave much behind
                charges, record = clock.fire(pipeline, due, now)
                await self._commit(charges, [record])
                if isinstance(record, Skipped):
                    break  # the list is stale: it may hold triggers of the refused epoch
            self.progress.moved()
            # A new request may cancel the rest. Or it may ask for a trigger whose records were sent
            # just before: the offsets were read earlier and do not cover them.
            if await self._requests.read():
                now = await self._advance()
        for pipeline, window in clock.unpaid(now):
            charges, record = clock.refuse(pipeline, window, now)
            await self._commit(charges, [record])
        await self._snapshot()

    async def _advance(self) -> int:
        """Read the ends of raw topics and write them as a beat; return the time, microseconds."""
        ends = await self._ends()
        now = self._wall.now()
        self._settling.answered(now, self._pace.longest)
        clock = self._known.clock
        records: list[ClockRecord] = [*clock.starts(now), *clock.retirements(now)]
        # Without new records, beats are rare: a quiet input would fill the log that every start
        # reads. Some are still needed: only their answers tell the broker's time, and the next
        # owner must be able to tell a quiet input from a clock without an owner.
        if self._wall.doubtful() or ends != clock.offsets or self._silent(now):
            records.append(Beat(now, ends))
        if records:
            await self._commit([], records)
        return now

    def _silent(self, now: int) -> bool:
        """Whether the clock log was silent for long, although triggers follow this clock."""
        followed = not all(p.external for p in self._deployment.pipelines)
        return followed and now - self._known.clock.time >= STEADY

    async def _snapshot(self) -> None:
        """Write a snapshot if one is due, and trim; markers are read concurrently with beats."""
        if self._trim is None:
            return
        if self._markers is None:
            if self._known.snapshots.due(self._known.end, self._wall.now()):
                reading = read_markers(self._kafka, self._deployment, self._names)
                self._markers = asyncio.create_task(reading, name="reading markers")
            return
        if not self._markers.done():
            return
        found, self._markers = self._markers, None
        if found.cancelled() or isinstance(found.exception(), OUTAGES):
            return  # the next beat tries again
        position = await self._requests.position()
        clock, ledger, snapshots = self._known.clock, self._known.ledger, self._known.snapshots
        made = snapshots.make(
            self._wall.now(),
            clock.offsets,
            clock.standings(),
            (len(ledger.records), ledger.head),
            (clock.requested, position),
            self._deployment,
            found.result(),
        )
        before = snapshots.last
        await self._commit([], [made])
        floors = snapshots.below(self._names)
        if before is not None:
            floors[TopicPartition(self._names.requests, 0)] = before.requests
        await self._trim(floors, snapshots.windows())

    async def _ends(self) -> Offsets:
        """Ask for the last stable offset of every raw partition, never below the previous beat."""
        ends = await self._asker.end_offsets(self._partitions)
        out: Offsets = {}
        for source in self._deployment.inputs:
            before = self._known.clock.offsets.get(source.topic, [])
            before = before + [0] * (source.partitions - len(before))
            out[source.topic] = [
                max(ends[TopicPartition(source.topic, n)], before[n])
                for n in range(source.partitions)
            ]
        return out

    async def _commit(self, charges: list[Record], records: list[ClockRecord]) -> None:
        """Commit records of ledger and clock log in one transaction.

        The broker's times and the witness are checked between sending and committing: by then a
        record has its time and offset, and can still be aborted.
        """
        async with within(self._timeout):
            told = await self._transact(charges, records)
        self.progress.moved()  # with a backlog of triggers, one beat may take minutes
        self._known.charged(charges, told[-1].offset + 1)
        self._wall.agree(told[-1].timestamp * 1000)
        self._settling.answered(self._wall.now(), self._pace.longest)
        for record, answer in zip(records, told, strict=True):
            self._known.written((answer.offset, record))
            self._tell(record)

    async def _transact(self, charges: list[Record], records: list[ClockRecord]) -> list[Any]:
        """Commit records for `_commit`; return the broker's answers for the clock's records."""
        await self._producer.begin_transaction()
        paid = [
            await self._producer.send(
                self._names.ledger,
                charge.encode(),
                key=str(charge.body["pipeline"]).encode(),
                partition=0,
                timestamp_ms=charge.time // 1000,
            )
            for charge in charges
        ]
        sent = [
            await self._producer.send(self._names.clock, encode(record), partition=0)
            for record in records
        ]
        try:
            told = await answers([*paid, *sent])
            if paid:
                self._check_end(self._names.ledger, told[0].offset, self._known.ledger_end)
            told = told[len(paid) :]
            self._check_end(self._names.clock, told[0].offset, self._known.end)
            for record, answer in zip(records, told, strict=True):
                self._lead.check(record.time, answer)
                if self._follows_time(record):
                    first = isinstance(record, Start)
                    self._lead.check_behind(self._wall.now(), answer, first)
                if isinstance(record, Trigger) and self._witness is not None:
                    note = self._witness.note
                    await asyncio.to_thread(note, answer.offset, encode(record), self._known.ledger)
        except HushError:
            await self._producer.abort_transaction()
            raise
        await self._producer.commit_transaction()
        return told

    def _check_end(self, topic: str, offset: int, end: int) -> None:
        """Check that a log continues where reading ended, since only the clock's owner writes it.

        A leader that is cut off from the other brokers may not know that it was replaced, and
        report an old end to readers; writes go to the current leader.
        """
        if topic in self._unsure and offset != end:
            raise NotLeaderForPartitionError(f"{topic} was not read to its end")
        self._unsure.discard(topic)

    def _follows_time(self, record: ClockRecord) -> bool:
        """Whether a record belongs to a pipeline that follows the clock, not to an external one."""
        name = getattr(record, "pipeline", None)
        return any(p.name == name and not p.external for p in self._deployment.pipelines)

    def _tell(self, record: ClockRecord) -> None:
        name = getattr(record, "pipeline", None)
        for pipeline in self._deployment.pipelines:
            if pipeline.name == name:
                self._on_record(pipeline, record, self._known.ledger)

    async def close(self) -> None:
        """Disconnect from the broker, which aborts an open transaction."""
        reading, self._markers = self._markers, None
        if reading is not None:
            reading.cancel()
            await asyncio.wait([reading], timeout=STOP_SECONDS)
            reading.add_done_callback(lambda task: task.cancelled() or task.exception())
        if self._producer is not None:
            await stop_quietly(self._producer)
        await self._requests.close()
        if self._asker is not None:
            await stop_quietly(self._asker)
        self._producer = self._asker = None

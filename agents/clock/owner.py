"""The clock: one owner writes beats, charges and triggers; nobody else spends budget.

Its owner is whoever holds the one partition of the clock topic. It opens like a shard: starting
its producer fences the owner before it, then it reads clock log and ledger to their ends.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import msgspec
from aiokafka.errors import KafkaError, ProducerFenced
from aiokafka.structs import TopicPartition

from ...errors import EngineError
from ...topics.config.model import Kafka
from ...topics.names import Names
from ...topics.records import (
    Beat,
    ClockRecord,
    Offsets,
    Skipped,
    Start,
    Trigger,
    TriggerRequest,
    encode,
)
from ...topics.schedule import Due
from ..deployment.model import Deployment, Pipeline
from ..kafka.clients import (
    consumer,
    read_to_end,
    stop_quietly,
    through_outages,
    transactional_producer,
)
from .ledger import Ledger, Record, charge_body, limits
from .log import RECENT, entries_of
from .timeline import Timeline, advance, fold
from .wall_time import WallClock, Witness

log = logging.getLogger("hushstream.clock")

MOST_TRIGGERS = 200  # of one transaction


class Clock:
    """The state of the clock's owner: a fold over clock log and ledger, and what comes next."""

    def __init__(
        self, deployment: Deployment, ledger: Ledger, version: str, key_fingerprint: str
    ) -> None:
        self._pipelines = {p.name: p for p in deployment.pipelines}
        self._ledger = ledger
        self._version = version
        self._fingerprint = key_fingerprint
        horizons = {p.name: p.mechanism.horizon for p in deployment.pipelines}
        self.timelines: dict[str, Timeline] = fold((), horizons)
        self.offsets: Offsets = {}
        self.time = 0
        self.requested: dict[str, int] = {}

    def apply(self, record: ClockRecord) -> None:
        """Take a record of the clock log."""
        advance(self.timelines, record)
        self.time = max(self.time, record.time)
        if isinstance(record, Beat | Trigger):
            self.offsets = record.offsets

    def request(self, request: TriggerRequest) -> None:
        """Let the schedule of external pipelines advance to a time; repeats change nothing."""
        for name, pipeline in self._pipelines.items():
            if pipeline.external and (request.pipelines is None or name in request.pipelines):
                self.requested[name] = max(self.requested.get(name, request.at), request.at)

    def starts(self, now: int) -> list[Start]:
        """First windows of pipelines that the clock has not seen yet."""
        found = []
        for name, pipeline in self._pipelines.items():
            if self.timelines[name].first is None:
                window = 0 if pipeline.external else pipeline.windows.window(now)
                found.append(Start(name, window, now, self._fingerprint))
        return found

    def due(self, now: int) -> list[tuple[Pipeline, Due]]:
        """Triggers whose time has come, earliest first."""
        found = []
        for name, pipeline in self._pipelines.items():
            limit = self.requested.get(name) if pipeline.external else now
            timeline = self.timelines[name]
            if limit is not None and timeline.first is not None:
                # A request for the future waits for it: nobody spends what is not due yet.
                dues = pipeline.windows.due(timeline, min(limit, now), MOST_TRIGGERS)
                found += [(pipeline, due) for due in dues]
        found.sort(key=lambda f: (f[1].scheduled, f[0].number, f[1].window))
        return found[:MOST_TRIGGERS]

    def fire(self, pipeline: Pipeline, due: Due, now: int) -> tuple[list[Record], ClockRecord]:
        """The ledger records, if any, and the clock record of one due trigger.

        The charge comes first: no charge, no trigger.
        """
        epoch = pipeline.windows.epoch(due.window)
        place = pipeline.name, epoch
        records = []
        charge = self._ledger.charges.get(place)
        if charge is None:
            if not self._payable(pipeline, epoch):
                return self.refuse(pipeline, due.window, now)
            body = charge_body(pipeline, epoch, self._version, self._fingerprint)
            charge = self._ledger.next("charge", now, body)
            records.append(charge)
        self._check(pipeline, charge)
        timeline = self.timelines[pipeline.name]
        final = due.index == pipeline.mechanism.horizon
        trigger = Trigger(
            now, self.offsets, pipeline.name, timeline.ordinal + 1, due.window, due.index, final,
            due.scheduled, epoch, charge.seq, charge.hash(), pipeline.config_hash,
            charge.body["code_version"], self._fingerprint,
            self._ledger.epochs(pipeline.name) + len(records), *limits(pipeline),
        )  # fmt: skip
        return records, trigger

    def unpaid(self, now: int) -> list[tuple[Pipeline, int]]:
        """Windows that have begun, or may receive records soon, and cannot be paid for.

        Epochs are only ever added, so what cannot be paid for now cannot be later; unless the
        limit is raised, which counts for epochs that have not begun. A pipeline that is triggered
        by request is refused at its triggers: its windows have nothing to do with this time.
        """
        found = []
        for name, pipeline in self._pipelines.items():
            timeline = self.timelines[name]
            if pipeline.external or timeline.first is None:
                continue
            last = pipeline.windows.window(now + pipeline.max_future_skew)
            for window in range(timeline.floor, last + 1):
                open_ = window not in timeline.closed and not timeline.done.get(window)
                if open_ and not self._payable(pipeline, pipeline.windows.epoch(window)):
                    found.append((pipeline, window))
                    break  # the whole epoch is closed with it; the rest comes with the next beat
        return found

    def refuse(self, pipeline: Pipeline, window: int, now: int) -> tuple[list[Record], ClockRecord]:
        """The ledger record, if it is not there, and the clock record of a refused epoch."""
        epoch = pipeline.windows.epoch(window)
        name = pipeline.name
        end = (epoch + 1) * pipeline.windows.per_epoch
        body = {"pipeline": name, "epoch": epoch, "reason": "the budget's limit is reached"}
        known = (name, epoch) in self._ledger.refused
        records = [] if known else [self._ledger.next("refused", now, body)]
        return records, Skipped(name, epoch, window, now, end)

    def _payable(self, pipeline: Pipeline, epoch: int) -> bool:
        place = pipeline.name, epoch
        if place in self._ledger.charges:
            return True
        return place not in self._ledger.refused and self._ledger.affordable(pipeline)

    def _check(self, pipeline: Pipeline, charge: Record) -> None:
        if charge.body["config_hash"] != pipeline.config_hash:
            raise EngineError(
                f"pipeline {pipeline.name!r}: its open epoch was charged for another "
                "configuration; restore that one, or rename the pipeline"
            )
        if charge.body["key_fingerprint"] != self._fingerprint:
            raise EngineError(
                "the noise key is not the one that was charged: use the key with the fingerprint "
                f"{charge.body['key_fingerprint']}"
            )


class ClockOwner:
    """Runs a `Clock` against the broker until it is closed."""

    def __init__(
        self,
        kafka: Kafka,
        names: Names,
        deployment: Deployment,
        version: str,
        key_fingerprint: str,
        beat_seconds: float,
        most_ahead: int,
        transaction_timeout_ms: int,
        on_failure: Callable[[BaseException], None],
        on_record: Callable[[Pipeline, ClockRecord, Ledger], None],
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self._kafka = kafka
        self._names = names
        self._deployment = deployment
        self._version = version
        self._fingerprint = key_fingerprint
        self._beat_seconds = beat_seconds
        self._witness = Witness(names.clock, most_ahead)
        self._timeout = transaction_timeout_ms
        self._on_failure = on_failure
        self._on_record = on_record
        self._on_lost = on_lost
        self._task: asyncio.Task[None] | None = None
        self._producer: Any = None
        self._consumer: Any = None
        self._partitions = [
            TopicPartition(i.topic, n) for i in deployment.inputs for n in range(i.partitions)
        ]

    async def open(self) -> None:
        """Fence the owner before, read both logs, start beating."""
        await through_outages("the clock", self._acquire, self._let_go)
        self._task = asyncio.create_task(self._run(), name="clock")

    async def _acquire(self) -> None:
        # Fencing first: whatever an earlier owner had open is aborted before the logs are read.
        identity = self._names.transactional_id("clock", "clock", 0)
        self._producer = transactional_producer(self._kafka, identity, self._timeout)
        await self._producer.start()
        values = []
        async for records, _, _ in read_to_end(self._kafka, self._names.ledger, 0):
            values += [r.value for r in records]
        self._ledger = Ledger.read(values)
        self._clock = Clock(self._deployment, self._ledger, self._version, self._fingerprint)
        async for records, _, end in read_to_end(self._kafka, self._names.clock, 0):
            for _, entry in entries_of(records, end - RECENT):
                self._clock.apply(entry)
        self._wall = WallClock(self._clock.time)
        self._consumer = consumer(self._kafka)
        await self._consumer.start()
        requests = TopicPartition(self._names.requests, 0)
        self._consumer.assign([*self._partitions, requests])
        self._consumer.pause(*self._partitions)
        for tp in self._partitions:
            self._consumer.seek(tp, 0)  # never read from; only its end is asked for
        begin = await self._consumer.beginning_offsets([requests])
        self._consumer.seek(requests, begin[requests])

    async def _run(self) -> None:
        """Beat until closed; an outage of the broker is waited out, anything else stops us."""
        try:
            while True:
                began = time.monotonic()
                try:
                    await self._beat()
                except (TimeoutError, KafkaError, ConnectionError) as error:
                    await self._again(error)
                rest = self._beat_seconds - (time.monotonic() - began)
                await asyncio.sleep(max(rest, 0.01))
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._on_failure(error)

    async def _again(self, error: Exception) -> None:
        """After a failed transaction: nothing of it is known, so read everything again.

        Raises:
            EngineError: no broker for five minutes.
        """
        if not isinstance(error, ProducerFenced):  # that the clock has moved is no fault
            self._on_lost()
        log.warning("the clock lost a transaction (%s); reopening", type(error).__name__)
        await asyncio.sleep(3.0 if isinstance(error, ProducerFenced) else 1.0)
        await self._let_go()
        await through_outages("the clock", self._acquire, self._let_go)

    async def _beat(self) -> None:
        await self._read_requests()
        ends = await self._ends()
        now = self._wall.now()
        clock = self._clock
        records: list[ClockRecord] = list(clock.starts(now))
        if ends != clock.offsets or (records and not clock.offsets):
            records.append(Beat(now, ends))
        if records:
            await self._commit([], records)
        while found := clock.due(now):
            # One trigger, one transaction: it stays small, and a charge is never far from it.
            for pipeline, due in found:
                charges, record = clock.fire(pipeline, due, now)
                await self._commit(charges, [record])
                if isinstance(record, Skipped):
                    break  # what else was due of this window no longer is
        for pipeline, window in clock.unpaid(now):
            charges, record = clock.refuse(pipeline, window, now)
            await self._commit(charges, [record])

    async def _read_requests(self) -> None:
        # Only the requests topic can deliver: all raw partitions are paused.
        found = await self._consumer.getmany(timeout_ms=0)
        for records in found.values():
            for record in records:
                try:
                    request = msgspec.json.decode(record.value, type=TriggerRequest)
                except msgspec.MsgspecError:
                    log.warning("a malformed trigger request was ignored")
                    continue
                self._clock.request(request)

    async def _ends(self) -> Offsets:
        """Last stable offset of every raw partition, never below the beat before."""
        ends = await self._consumer.end_offsets(self._partitions)
        out: Offsets = {}
        for source in self._deployment.inputs:
            before = self._clock.offsets.get(source.topic, [0] * source.partitions)
            out[source.topic] = [
                max(ends[TopicPartition(source.topic, n)], before[n])
                for n in range(source.partitions)
            ]
        return out

    async def _commit(self, charges: list[Record], records: list[ClockRecord]) -> None:
        """One transaction: ledger and clock, or neither; not if this clock is ahead."""
        await self._producer.begin_transaction()
        for charge in charges:
            key = str(charge.body["pipeline"]).encode()
            await self._producer.send(self._names.ledger, charge.encode(), key=key, partition=0)
        sent = [
            await self._producer.send(self._names.clock, encode(record), partition=0)
            for record in records
        ]
        try:
            for record, answer in zip(records, sent, strict=True):
                self._witness.check(record.time, await answer)
        except EngineError:
            await self._producer.abort_transaction()
            raise
        await self._producer.commit_transaction()
        for charge in charges:
            self._ledger.take(charge.encode())
        for record in records:
            self._clock.apply(record)
            self._tell(record)

    def _tell(self, record: ClockRecord) -> None:
        name = getattr(record, "pipeline", None)
        for pipeline in self._deployment.pipelines:
            if pipeline.name == name:
                self._on_record(pipeline, record, self._ledger)

    async def close(self) -> None:
        """Stop beating; an open transaction aborts."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=3)
        await self._let_go()

    async def _let_go(self) -> None:
        for client in (self._producer, self._consumer):
            if client is not None:
                await stop_quietly(client)
        self._producer = self._consumer = None

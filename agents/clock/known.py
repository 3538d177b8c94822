"""Readers of the clock's owner: ledger and clock log at each opening, requests continuously.

Nothing here writes to the broker. The owner reports each commit to `KnownLogs`, which is thus
always up to date with both logs.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from aiokafka.structs import TopicPartition

from ...errors import EngineError, LedgerError, RewoundError
from ...topics.config.model import Engine, Kafka
from ...topics.names import Names
from ...topics.records import Snapshot, decode_request
from ...topics.signatures import SigningKey
from ..deployment.model import Deployment
from ..kafka.clients import (
    Silence,
    check_reached,
    consumer,
    reached,
    read_to_end,
    reader,
    stop_quietly,
)
from ..kafka.private.of_aiokafka import FIXED_MS, wait_patiently
from ..kafka.progress import Progress
from .clock import Clock, too_early
from .ledger import Ledger
from .ledger_record import Record
from .log import RECENT, Entry, entries_of
from .paid import Clocked
from .snapshots import Opening, Snapshots, beginning
from .wall_time import WallClock
from .witness import Witness

log = logging.getLogger("hushstream.clock")

AGAIN_SECONDS = 0.2  # before both logs are read again


def check_grown(deployment: Deployment, ledger: Ledger) -> None:
    """Check that this process counts the same partitions as the ledger.

    Args:
        ledger: ledger, read after the previous owner of the clock was fenced.

    Raises:
        EngineError: the ledger counts partitions that were added after this process started.
    """
    for source in deployment.inputs:
        for body in ledger.grown:
            if body["topic"] == source.topic and int(body["to"]) > source.partitions:
                raise EngineError(
                    f"{body['to']} partitions of topic {source.topic} count by now, but this "
                    f"worker was started with {source.partitions}: restart it"
                )


@dataclass(frozen=True)
class ClockSetup:
    """The parameters of the clock's owner."""

    kafka: Kafka
    names: Names
    deployment: Deployment
    engine: Engine
    version: str  # version of this code, for charges
    key_fingerprint: str  # fingerprint of the noise key, for charges
    witness: Witness | None = None  # remembers the last trigger outside the cluster
    signing: SigningKey | None = None  # signs charges of a signed deployment


class KnownLogs:
    """Ledger and clock log, as far as the clock's owner has read or written them.

    Args:
        progress: progress of the owner, moved by each list that is read.

    Attributes:
        clock: state of all pipelines by the clock log; made by `read`.
        end: offset in the clock log before which all was read or written.
        ledger_end: offset in the ledger before which all was read when it was last read.
    """

    clock: Clock

    def __init__(self, setup: ClockSetup, progress: Progress) -> None:
        self._setup = setup
        self._kafka, self._names = setup.kafka, setup.names
        self._progress = progress
        self.ledger = Ledger()
        self.snapshots = Snapshots(setup.engine.keep_clock)
        self.end = self.ledger_end = 0

    async def read(self) -> None:
        """Read the ledger and the clock log, each to its end.

        If this machine is suspended between the two, another owner takes over, and the clock log
        then holds triggers whose charges the ledger read before lacks. Brokers end a transaction
        in one log before the other. So a charge counts as missing only if the ledger has not grown
        since, and no transaction is open in it.

        Raises:
            LedgerError: the ledger did not pay for a trigger.
            RewoundError: a log lacks what this owner has read or written before.
        """
        until, told = time.monotonic() + self._kafka.outage_timeout / 1e6, False
        while True:
            await self._read_ledger()
            known = len(self.ledger.records)
            try:
                return await self._read_clock()
            except LedgerError:
                ending = time.monotonic() < until and await self._ending()
                await self._read_ledger()
                if len(self.ledger.records) == known and not ending:
                    raise
                if not told:
                    log.warning("another owner of the clock has charged meanwhile; reading again")
                told = True
                await asyncio.sleep(AGAIN_SECONDS)

    async def _ending(self) -> bool:
        """Whether a transaction is open in the ledger."""
        place, ends = TopicPartition(self._names.ledger, 0), list[int]()
        for committed in (True, False):
            async with reader(self._kafka, committed) as client:
                ends.append((await reached(client, {place: 0}))[place])
        return ends[0] < ends[1]

    async def _read_ledger(self) -> None:
        """Read the ledger to its end."""
        values, known = [], self.ledger.records
        async for records, position, _ in read_to_end(self._kafka, self._names.ledger, 0):
            values += [r.value for r in records]
            self.ledger_end = position
            self._progress.moved()
        self.ledger = Ledger.read(values, self._setup.signing)
        check_grown(self._setup.deployment, self.ledger)
        if self.ledger.records[: len(known)] != known:
            raise RewoundError(f"{self._names.ledger} lacks records that the clock's owner wrote")

    async def _read_clock(self) -> None:
        """Read the clock log to its end."""
        setup = self._setup
        salt = secrets.token_hex(16)
        version, key = setup.version, setup.key_fingerprint
        self.clock = Clock(setup.deployment, self.ledger, version, key, salt)
        self.snapshots = Snapshots(setup.engine.keep_clock)
        paid = Clocked()
        topic = self._names.clock
        await check_reached(self._kafka, topic, 0, self.end)
        start = await beginning(self._kafka, topic)
        opening = Opening(start)
        async for records, position, end in read_to_end(self._kafka, topic, 0, start):
            entries = entries_of(records, end - RECENT)
            if (snapshot := opening.first(entries)) is not None:
                self.clock.begin(snapshot)
                paid.begin(snapshot)
            for place, entry in entries:
                self.clock.apply(entry)
                self.snapshots.take(place, entry)
                paid.take(entry)
            self.end = max(self.end, position)
            self._progress.moved()
        opening.end()
        paid.check_paid(self.ledger)
        if self.snapshots.last is not None:
            self.clock.requested = dict(self.snapshots.last.requested)
        if setup.witness is not None:
            await asyncio.to_thread(setup.witness.check, self._kafka, lambda: self.ledger)

    def charged(self, charges: Iterable[Record], end: int) -> None:
        """Take committed charges, and the new end of the clock log.

        If the clock log ends before this after an outage, it was rewound: see `read`.
        """
        self.end = end
        for charge in charges:
            self.ledger.take(charge.encode())

    def written(self, entry: Entry) -> None:
        """Take a committed record of the clock log."""
        place, record = entry
        self.clock.apply(record)
        self.snapshots.take(place, record)


class AskedTriggers:
    """Requests for triggers; anyone with the right to write to their topic may send them."""

    def __init__(self, kafka: Kafka, topic: str, came: Callable[[], None]) -> None:
        self._kafka = kafka
        self._place = TopicPartition(topic, 0)
        self._came = came
        self._consumer: Any = None

    async def open(self, clock: Clock, wall: WallClock, last: Snapshot | None) -> None:
        """Read all requests in force.

        Args:
            clock: clock that receives the requests, now and with each `read`.
            last: newest snapshot, which has the requests read before it.

        Raises:
            RewoundError: the topic ends before what the snapshot has read of it.
        """
        self._clock, self._wall = clock, wall
        self._consumer = consumer(self._kafka)
        await self._consumer.start()
        wait_patiently(self._consumer, FIXED_MS)
        self._consumer.assign([self._place])
        begin = (await self._consumer.beginning_offsets([self._place]))[self._place]
        start = begin if last is None else max(begin, last.requests)
        end = (await reached(self._consumer, {self._place: start}))[self._place]
        self._consumer.seek(self._place, start)
        silence = Silence(self._place.topic)
        while (place := await self.position()) < end:
            silence.check(place)
            await self.read(200)  # read all first: a later one may cancel an earlier one

    async def position(self) -> int:
        """Return the offset before which all requests were read."""
        place: int = await self._consumer.position(self._place)
        return place

    async def read(self, timeout_ms: int = 0) -> bool:
        """Pass new requests to the clock; return whether there were any."""
        found = await self._consumer.getmany(timeout_ms=timeout_ms)
        for records in found.values():
            for record in records:
                self._take(record)
        if came := any(found.values()):
            self._came()
        return came

    def _take(self, record: Any) -> None:
        try:
            request = decode_request(record.value)
        except EngineError:
            log.warning("a malformed trigger request was ignored")
            return
        # Requests may bypass our command and its checks. So check each one here, by the time at
        # which it was sent.
        sent = min(record.timestamp * 1000, self._wall.now())
        if too_early(request, sent):
            log.warning(
                "a trigger request for a time more than a day ahead was ignored: it would "
                "charge for every epoch to come"
            )
            return
        self._clock.request(request)

    async def close(self) -> None:
        """Disconnect from the broker."""
        if self._consumer is not None:
            await stop_quietly(self._consumer)
        self._consumer = None

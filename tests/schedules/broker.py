"""An Apache Kafka in memory: logs, transactions, fencing, outages. Time is the loop's.

What is modelled: offsets of records and of control markers; the last stable offset; aborted
records; transactional ids with epochs, whose next owner fences the one before and waits until its
transaction has been ended; markers that come later than the answer to a commit, and to each
partition at another moment; time-outs of transactions; retention by deletion from the front;
outages, answers that are slow, answers that are lost after the work was done; leaders that do not
know the producers of before, and refuse their batches or take them for known; requests that come
late or twice, before which only the epoch protects, and a batch's sequence number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from random import Random
from typing import Any, NamedTuple

from aiokafka.errors import (
    InvalidTxnState,
    KafkaConnectionError,
    KafkaTimeoutError,
    OutOfOrderSequenceNumber,
    ProducerFenced,
)
from hushstream.formats.events.decode import RawRecord

from .loop import HERE, VirtualLoop

START = 1_552_000_000.0  # wall-clock time of virtual second 0
Place = tuple[str, int]
PATIENCE = 40.0
SERVER = Context()


class Again(Exception):
    """The broker asks the client to try again in a moment."""


class Held(KafkaConnectionError):
    """The connection ended before an answer came, and the request is still on its way."""


class Answer(NamedTuple):
    """What the broker says of a record that was appended."""

    offset: int
    timestamp: int
    timestamp_type: int


class Transaction:
    """One transaction of a producer, open until a marker ends it at each of its partitions."""

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.left = 0
        self.ending = False
        self.commit = False
        self.timer: Any = None


class Owner:
    """A transactional id at its coordinator."""

    def __init__(self) -> None:
        self.epoch = 0
        self.ended = -1  # the epoch before, where the end of a transaction has begun this one
        self.transaction: Transaction | None = None
        self.holder = ""  # name of the worker


class Log:
    """One partition. ``records`` holds None where a control marker stands."""

    def __init__(self, stamped: bool) -> None:
        self.start = 0
        self.stamped = stamped
        self.records: list[RawRecord | None] = []
        self.owners: list[Transaction | None] = []
        self.open: dict[Transaction, int] = {}
        self.aborted: set[Transaction] = set()
        self.watchers: list[Callable[[], None]] = []

    def copy(self) -> Log:
        """Another log with the same records; none of its transactions is open."""
        made = Log(self.stamped)
        made.start = self.start
        made.records, made.owners = list(self.records), list(self.owners)
        made.aborted = set(self.aborted)
        return made

    @property
    def end(self) -> int:
        return len(self.records)

    @property
    def stable(self) -> int:
        """The last stable offset."""
        return min(self.open.values()) if self.open else len(self.records)

    def append(
        self, transaction: Transaction | None, now: float, content: tuple[Any, ...]
    ) -> Answer:
        """Append key, value, timestamp and headers."""
        key, value, stamp, headers = content
        offset = len(self.records)
        if self.stamped or stamp is None:
            stamp = int((START + now) * 1000)
        self.records.append(RawRecord(offset, stamp, key, value, tuple(headers)))
        self.owners.append(transaction)
        if transaction is not None:
            self.open.setdefault(transaction, offset)
        return Answer(offset, stamp, int(self.stamped))

    def mark(self, transaction: Transaction, commit: bool) -> None:
        """End a transaction here."""
        if self.open.pop(transaction, None) is None:
            return
        if not commit:
            self.aborted.add(transaction)
        self.records.append(None)
        self.owners.append(None)
        self.notify()

    def notify(self) -> None:
        """Tell those who wait that there may be more to read."""
        for watcher in list(self.watchers):
            watcher()

    def read(self, begin: int, most: int, committed: bool = True) -> tuple[list[RawRecord], int]:
        """Records at or above an offset, and the position after them."""
        end = self.stable if committed else len(self.records)
        found: list[RawRecord] = []
        place = begin
        while place < end and len(found) < most:
            record, owner = self.records[place], self.owners[place]
            if record is not None and not (committed and owner in self.aborted):
                found.append(record)
            place += 1
        return found, place


class Broker:
    """All partitions of one cluster, and the coordinator of transactions."""

    def __init__(self, loop: VirtualLoop, random: Random) -> None:
        self.loop = loop
        self.random = random
        self.logs: dict[Place, Log] = {}
        self.topics: dict[str, int] = {}
        self.ids: dict[str, str] = {}
        self.settings: dict[str, dict[str, str]] = {}
        self.owners: dict[str, Owner] = {}
        self.down = False
        self.outages = 0
        self.slow = 0.0  # seconds that an answer may take at most, beyond the usual
        self.lossy = 0.0  # share of answers that are lost
        self.torn = 0.0  # share of the requests of transactions that come late or twice
        self.tears = Random(0)  # decides which
        self.tore = 0  # how many there were
        self.bumps = False  # whether `EndTxn` may begin a new epoch (transaction.version 2)
        self._parked: list[tuple[Any, ...]] = []
        self._waiting: dict[str, list[Callable[[], Any]]] = {}
        self._known: dict[tuple[Place, str, int, int], Answer] = {}
        self._strangers: dict[tuple[Place, str, int], bool] = {}

    def create(self, topic: str, partitions: int, settings: dict[str, str]) -> None:
        """Create a topic."""
        stamped = settings.get("message.timestamp.type") == "LogAppendTime"
        self.topics[topic] = partitions
        self.settings[topic] = {"cleanup.policy": "delete", **settings}
        self.ids[topic] = f"{topic}#{len(self.ids)}"
        for number in range(partitions):
            self.logs[topic, number] = Log(stamped)

    # -- requests ---------------------------------------------------------------------------------

    def delay(self) -> float:
        """Seconds that a message is on its way."""
        draw = self.random.random
        return draw() ** 3 * 0.03 + (draw() ** 2 * self.slow if self.slow else 0.0)

    def call(
        self,
        work: Callable[[], Any],
        patience: float = PATIENCE,
        at: float | None = None,
        twice: bool = False,
    ) -> asyncio.Future[Any]:
        """Send a request; the answer, or the error of a client that waited for too long.

        Args:
            work: what the broker does once the request arrives.
            patience: seconds.
            at: when it arrives; None: after some delay.
            twice: the answer has a way of its own, on which client or answer may be lost.
        """
        future = self.loop.create_future()
        when = self.loop.now + self.delay() if at is None else at
        request = (work, future, HERE.get(), self.loop.now + patience, twice)
        self.loop.call_at(when, self._arrive, request, context=SERVER)
        return future

    def tear(self, work: Callable[[], Any], repeats: bool = True, into: str = "") -> bool:
        """Perhaps have a request come later than it was sent.

        Args:
            work: what the broker does once it arrives.
            repeats: whether it may come once more although it was answered.
            into: a transactional id, into whose next transaction it may come.

        Returns:
            Whether its connection ends before there is an answer.
        """
        draw = self.tears.random
        if not self.torn or draw() > self.torn:
            return False
        held = not repeats or draw() < 0.5
        late = 0.1 + draw() * 0.3 if draw() < 0.6 else draw() ** 2 * 8
        self.tore += 1
        if into and draw() < 0.7:
            self._waiting.setdefault(into, []).append(work)
        else:
            self.loop.call_later(late, self._late, work, context=SERVER)
        return held

    def _late(self, work: Callable[[], Any]) -> None:
        if self.down:
            self.loop.call_later(0.5, self._late, work, context=SERVER)
            return
        with suppress(Exception):  # nobody hears
            work()

    def _arrive(self, request: tuple[Any, ...]) -> None:
        work, future, process, deadline, twice = request
        if self.down or (process is not None and process.paused and future.done()):
            self._park(request)
            return
        try:
            found = work()
        except Again:
            if process is None or not process.dead:
                delay = 0.02 + self.delay()
                if self.loop.now + delay > deadline:
                    self._reply(future, KafkaTimeoutError())
                else:
                    self.loop.call_later(delay, self._arrive, request, context=SERVER)
            return
        except Exception as error:
            found = error
        if self.lossy and self.random.random() < self.lossy:
            found = self.outage_error()
        if twice:
            self.loop.call_later(self.delay(), self._reply, future, found, context=SERVER)
        else:
            self._reply(future, found)

    def _park(self, request: tuple[Any, ...]) -> None:
        """The broker is away: the client asks again when it is back, or gives up before."""
        _, future, process, deadline, _ = request
        if process is not None and process.dead:
            return
        self._parked.append(request)
        if not future.done():
            error = self.outage_error()
            self.loop.call_at(max(deadline, self.loop.now), self._reply, future, error,
                              context=SERVER)  # fmt: skip

    @staticmethod
    def _reply(future: asyncio.Future[Any], found: Any) -> None:
        if future.done():
            return
        if isinstance(found, BaseException):
            future.set_exception(found)
            future.exception()  # a client that went away never asks
        else:
            future.set_result(found)

    def outage_error(self) -> BaseException:
        """What a client raises when it has waited for too long."""
        return KafkaTimeoutError() if self.random.random() < 0.5 else KafkaConnectionError("away")

    def go_down(self) -> None:
        """Begin an outage."""
        self.down = True
        self.outages += 1

    def come_back(self) -> None:
        """End an outage: clients that still wait ask again."""
        self.down = False
        parked, self._parked = self._parked, []
        for request in parked:
            _, future, process, _, _ = request
            if (process is not None and process.dead) or future.done():
                continue
            self.loop.call_later(self.delay() * 5, self._arrive, request, context=SERVER)
        for log in self.logs.values():
            log.notify()

    # -- transactions -----------------------------------------------------------------------------

    def initialise(self, identity: str, who: str = "") -> int:
        """Take a transactional id: what its earlier owner left open is aborted first.

        Args:
            identity: the transactional id.
            who: asks for it.

        Raises:
            Again: that has not ended yet.
        """
        owner = self.owners.setdefault(identity, Owner())
        if owner.transaction is not None:
            if not owner.transaction.ending:
                owner.epoch += 1
                self._end(owner, owner.transaction, commit=False)
            raise Again
        owner.epoch += 1
        owner.holder = who
        return owner.epoch

    def _fence(self, identity: str, epoch: int) -> Owner:
        owner = self.owners[identity]
        if owner.epoch != epoch:
            raise ProducerFenced
        return owner

    def add(self, identity: str, epoch: int, place: Place, seconds: float) -> Transaction:
        """Take a partition into the owner's open transaction, or begin one.

        Args:
            identity: the transactional id.
            epoch: of the sender.
            place: the partition.
            seconds: after which a transaction that is open is aborted.
        """
        owner = self._fence(identity, epoch)
        transaction = owner.transaction
        if transaction is not None and transaction.ending:
            raise Again
        if transaction is None:
            transaction = owner.transaction = Transaction()
            transaction.timer = self.loop.call_later(
                seconds, self._expire, owner, transaction, context=SERVER
            )
        if place not in transaction.places:
            transaction.places.append(place)
        return transaction

    def produce(
        self, identity: str, epoch: int, place: Place, contents: list[tuple[Any, ...]],
        seconds: float, serial: int | None = None,
    ) -> list[Answer]:  # fmt: skip
        """Append records within the owner's open transaction.

        Args:
            identity: the transactional id.
            epoch: of the sender.
            place: the partition.
            contents: of the records.
            seconds: after which a transaction that is open is aborted.
            serial: a batch that is known by this number is not appended again, and one whose
                partition was not added is refused; None: a transaction begins where none is open.

        Raises:
            InvalidTxnState: the partition was not added to the open transaction.
        """
        owner = self._fence(identity, epoch)
        mine = None if serial is None else (place, identity, epoch, serial)
        if mine in self._known:
            return [self._known[mine]]
        if mine is not None and (
            owner.transaction is None or place not in owner.transaction.places
        ):
            raise InvalidTxnState
        transaction = self.add(identity, epoch, place, seconds)
        known = self._strangers.get((place, identity, epoch))
        if known is False:
            raise OutOfOrderSequenceNumber
        log = self.logs[place]
        told = [log.append(transaction, self.loop.now, content) for content in contents]
        if known:  # the answer before was lost, and the leader has forgotten where it lies
            del self._strangers[place, identity, epoch]
            told = [one._replace(offset=-1) for one in told]
        if mine is not None:
            self._known[mine] = told[0]
        for work in self._waiting.pop(identity, ()):
            self.loop.call_later(self.tears.random() * 0.01, self._late, work, context=SERVER)
        return told

    def change_leader(self, place: Place, known: bool) -> None:
        """Give a partition a leader that does not know the sequence numbers of living producers.

        Args:
            place: the partition.
            known: whether it takes one batch of each for a repetition, and says so; else it refuses
                all that they send, for good.
        """
        for identity, owner in self.owners.items():
            self._strangers[place, identity, owner.epoch] = known

    def end(self, identity: str, epoch: int, commit: bool, bump: bool = False) -> int:
        """Decide a transaction; its markers follow.

        Args:
            identity: the transactional id.
            epoch: of the sender.
            commit: or abort.
            bump: whether to begin a new epoch (version 5 of `EndTxn`).

        Returns:
            The epoch of the next transaction.
        """
        owner = self.owners[identity]
        if bump and epoch == owner.ended and owner.epoch == epoch + 1:
            if owner.transaction is None:
                return owner.epoch  # the answer before was lost
            if owner.transaction.ending:
                raise Again
        owner = self._fence(identity, epoch)
        if owner.transaction is None:
            return owner.epoch  # nothing was sent, or the answer before was lost
        if not owner.transaction.ending:
            if bump:
                owner.ended, owner.epoch = owner.epoch, owner.epoch + 1
            self._end(owner, owner.transaction, commit)
        return owner.epoch

    def _expire(self, owner: Owner, transaction: Transaction) -> None:
        if owner.transaction is transaction and not transaction.ending:
            owner.epoch += 1
            self._end(owner, transaction, commit=False)

    def _end(self, owner: Owner, transaction: Transaction, commit: bool) -> None:
        transaction.ending, transaction.commit = True, commit
        transaction.timer.cancel()
        transaction.left = len(transaction.places)
        if not transaction.left:
            owner.transaction = None
        for place in transaction.places:
            self.loop.call_later(self.delay(), self._mark, owner, transaction, place, commit,
                                 context=SERVER)  # fmt: skip

    def _mark(self, owner: Owner, transaction: Transaction, place: Place, commit: bool) -> None:
        if self.down:
            self.loop.call_later(0.5, self._mark, owner, transaction, place, commit,
                                 context=SERVER)  # fmt: skip
            return
        self.logs[place].mark(transaction, commit)
        transaction.left -= 1
        if not transaction.left:
            owner.transaction = None

    # -- what anyone may do -----------------------------------------------------------------------

    def append(self, place: Place, *content: Any) -> Answer:
        """Append a record outside of any transaction."""
        log = self.logs[place]
        answer = log.append(None, self.loop.now, content)
        log.notify()
        return answer

    def trim(self, place: Place, below: int) -> None:
        """Delete records from the front."""
        log = self.logs[place]
        log.start = max(log.start, min(below, log.end))

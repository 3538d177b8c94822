"""An Apache Kafka in memory: logs, transactions, fencing, outages. The loop owns its time.

It models: offsets of records and of control markers; the last stable offset; aborted records;
transactional ids with epochs, where a new owner fences the previous one and waits until its
transaction has ended; markers that come after the answer to a commit, at a different time in each
partition; time-outs of transactions; retention, which deletes from the front; outages, slow
answers, and answers that are lost after the work was done; new leaders that do not know earlier
producers, and refuse their batches or take them for known; requests that come late or twice.
Against these, only the epoch and a batch's sequence number protect.
"""

from __future__ import annotations

from random import Random
from typing import Any

from aiokafka.errors import InvalidTxnState, OutOfOrderSequenceNumber, ProducerFenced

from .log import Answer, Log, Place, Transaction, View
from .loop import Process, VirtualLoop
from .network import SERVER, Again, Network


class Owner:
    """A transactional id, as its coordinator keeps it."""

    def __init__(self) -> None:
        self.epoch = 0
        self.ended = -1  # the previous epoch, if the end of a transaction began this one
        self.transaction: Transaction | None = None
        self.holder = ""  # name of the worker


class Broker(Network):
    """All partitions of one cluster, and the coordinator of transactions."""

    def __init__(self, loop: VirtualLoop, random: Random) -> None:
        super().__init__(loop, random)
        self.logs: dict[Place, Log] = {}
        self.topics: dict[str, int] = {}
        self.ids: dict[str, str] = {}
        self.settings: dict[str, dict[str, str]] = {}
        self.owners: dict[str, Owner] = {}
        self.bumps = False  # whether `EndTxn` may begin a new epoch (transaction.version 2)
        self.old: dict[tuple[str, Place], View] = {}  # what a machine sees of a partition
        self.leaderless: set[Place] = set()
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

    def extend(self, topic: str, partitions: int) -> None:
        """Add partitions to a topic."""
        stamped = self.settings[topic].get("message.timestamp.type") == "LogAppendTime"
        for number in range(self.topics[topic], partitions):
            self.logs[topic, number] = Log(stamped)
        self.topics[topic] = max(partitions, self.topics[topic])

    def come_back(self) -> None:
        """End an outage: waiting clients ask again."""
        super().come_back()
        self.look_again()

    def look_again(self) -> None:
        """Wake all clients that wait for records."""
        for log in self.logs.values():
            log.notify()

    def seen(self, place: Place, process: Process | None) -> Log | View:
        """A partition as a process sees it; the process may ask a former leader."""
        if not self.old or process is None:
            return self.logs[place]
        return self.old.get((process.name, place), self.logs[place])

    # -- transactions -----------------------------------------------------------------------------

    def initialise(self, identity: str, who: str = "") -> int:
        """Take a transactional id; the earlier owner's open transaction is aborted first.

        Args:
            identity: the transactional id.
            who: client that requests it.

        Raises:
            Again: that transaction has not ended yet.
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

    def holder(self, identity: str) -> str:
        """Name of the worker that owns a transactional id; empty: none."""
        return self.owners[identity].holder if identity in self.owners else ""

    def _fence(self, identity: str, epoch: int) -> Owner:
        owner = self.owners[identity]
        if owner.epoch != epoch:
            raise ProducerFenced
        return owner

    def add(self, identity: str, epoch: int, place: Place, seconds: float) -> Transaction:
        """Add a partition to the owner's open transaction; begin one if there is none.

        Args:
            identity: the transactional id.
            epoch: the sender's producer epoch.
            place: the partition.
            seconds: time before an open transaction is aborted.
        """
        owner = self._fence(identity, epoch)
        transaction = owner.transaction
        if place in self.leaderless or (transaction is not None and transaction.ending):
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
            epoch: the sender's producer epoch.
            place: the partition.
            contents: contents of the records.
            seconds: time before an open transaction is aborted.
            serial: number of the batch; a known batch is not appended again, and a batch for a
                partition that was not added is refused. None begins a transaction if none is open.

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
        if known:  # the previous answer was lost, and the leader does not know the batch's offset
            del self._strangers[place, identity, epoch]
            told = [one._replace(offset=-1) for one in told]
        if mine is not None:
            self._known[mine] = told[0]
        self.let_in(identity)
        return told

    def change_leader(self, place: Place, known: bool) -> None:
        """Give a partition a leader that does not know the sequence numbers of living producers.

        Args:
            place: the partition.
                known: whether the leader acknowledges one batch of each producer as a repetition;
                    otherwise it refuses all that they send.
        """
        for identity, owner in self.owners.items():
            self._strangers[place, identity, owner.epoch] = known

    def end(self, identity: str, epoch: int, commit: bool, bump: bool = False) -> int:
        """Decide a transaction; its markers follow.

        Args:
            identity: the transactional id.
            epoch: the sender's producer epoch.
            commit: whether to commit instead of abort.
            bump: whether to begin a new epoch (version 5 of `EndTxn`).

        Returns:
            The epoch of the next transaction.
        """
        owner = self.owners[identity]
        if bump and epoch == owner.ended and owner.epoch == epoch + 1:
            if owner.transaction is None:
                return owner.epoch  # the previous answer was lost
            if owner.transaction.ending:
                raise Again
        owner = self._fence(identity, epoch)
        if owner.transaction is None:
            return owner.epoch  # nothing was sent, or the previous answer was lost
        if not owner.transaction.ending:
            if bump:
                owner.ended, owner.epoch = owner.epoch, owner.epoch + 1
            self._end(owner, owner.transaction, commit)
        return owner.epoch

    def writing(self, identity: str, place: Place) -> bool:
        """Whether an id has an open transaction in a partition."""
        if place in self.leaderless:
            raise Again
        return self.owners[identity].transaction in self.logs[place].open

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
        if self.down or place in self.leaderless:
            self.loop.call_later(0.5, self._mark, owner, transaction, place, commit,
                                 context=SERVER)  # fmt: skip
            return
        self.logs[place].mark(transaction, commit)
        transaction.left -= 1
        if not transaction.left:
            owner.transaction = None

    # -- what any client may do --------------------------------------------------------------------

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

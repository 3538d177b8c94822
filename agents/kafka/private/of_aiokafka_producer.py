"""Private names of aiokafka's producer: no request of one transaction can end another.

Kafka distinguishes the transactions of a producer only by producer id and epoch. So a late `EndTxn`
ends whichever transaction of its epoch is open when it arrives, and a late `AddPartitionsToTxn`
opens one. If no answer comes, aiokafka sends both again over another connection, and continues in
the same epoch while the first request may still be in transit. That request can then commit the
next transaction when half of it is written.

**No request is in transit when the epoch continues.** `AnsweredSender` gives a producer up for good
as soon as one of these requests is sent but not answered. Then

1. a connection delivers a request at most once, and the broker answers after it has acted on it;
2. each request of an epoch is sent after the answer to the one before it (aiokafka has one
   transactional request in flight, and `agents.worker.shards.transaction` waits for every batch
   before the commit), so as long as the epoch continues, no request of it arrives out of order;
3. after a request without an answer nothing else is sent in this epoch. The next owner of the id
   begins with `InitProducerId`. Its answer means that the open transaction has ended and all
   partitions have its markers (`agents.kafka.forgotten` checks that they do). The coordinator then
   has a later epoch for the id, and epochs only grow. So the unanswered request is refused whenever
   it arrives, and the logs, which are read only now, show how the transaction ended.

A late `InitProducerId` never ends a transaction in part: it aborts the whole open transaction and
fences its owner, which opens again. A late or repeated batch is refused by its sequence number and,
after a fence, by its epoch: the marker that aborts an open transaction carries the new epoch to
each of its partitions.

**An answered commit may be forgotten** by a coordinator that restarts (again, see
`agents.kafka.forgotten`). The next transaction would end it in its own partitions only. So a
producer continues only over the connection that brought the answer; if that is gone, the producer
is given up, and the next owner of the id checks.

**An answered request that arrives again**, from a proxy that retries by itself, breaks (1). If the
cluster has reached ``transaction.version`` 2 (KIP-890; the default of new Kafka 4 clusters),
`EndTxn` is sent in version 5: each commit and each abort begins a new epoch, which the answer
contains. Then each epoch has one transaction, and a repeated request finds its epoch over. Older
brokers keep the epoch, and only the operator of such a proxy can prevent the error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from io import BytesIO
from itertools import chain
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
from aiokafka.errors import (
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    KafkaError,
    NodeNotReadyError,
    ProducerFenced,
)
from aiokafka.producer.message_accumulator import MessageAccumulator, MessageBatch
from aiokafka.producer.sender import (
    AddPartitionsToTxnHandler,
    BaseHandler,
    EndTxnHandler,
    Sender,
)
from aiokafka.producer.transaction_manager import PidAndEpoch, TransactionManager
from aiokafka.protocol.api import Request, RequestStruct, Response, ResponseHeader_v0
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
    UnsignedVarInt32,
)
from aiokafka.structs import TopicPartition

from . import Needed, check

FEATURE, WANTED = "transaction.version", 2
FINALIZED = 2  # tag of a cluster's finalized features in an answer to ApiVersions
_TRANSACTION = CoordinationType.TRANSACTION
FENCED = 90  # PRODUCER_FENCED, which the library lacks

NEEDED: Needed = (
    (AIOKafkaClient, ("_conns",)),
    (AIOKafkaProducer, ("_sender",)),
    (BaseHandler, ("_default_backoff", "_sender")),
    (EndTxnHandler, ("_commit_result",)),
    (MessageAccumulator, ("_batches", "_pending_batches")),
    (MessageBatch, ("_drain_waiter", "_msg_futures")),
    (
        Sender,
        (
            "_do_add_partitions_to_txn", "_do_txn_commit", "_find_coordinator",
            "_message_accumulator", "_sender_task", "_txn_manager",
        ),
    ),
    (
        TransactionManager,
        (
            "_pid_and_epoch", "_sequence_numbers", "_transaction_waiter",
            "maybe_add_partition_to_txn",
        ),
    ),
)  # fmt: skip
check("aiokafka", NEEDED)


# # -- what a cluster has reached
# --------------------------------------------------------------------


class _Versions(Response):
    API_KEY = 18
    API_VERSION = 3
    SCHEMA = Schema(
        ("error_code", Int16),
        (
            "api_versions",
            CompactArray(
                ("api_key", Int16), ("min_version", Int16), ("max_version", Int16),
                ("tags", TaggedFields),
            ),
        ),
        ("throttle_time_ms", Int32),
        ("tags", TaggedFields),
    )  # fmt: skip


class _VersionsAsked(RequestStruct):
    API_KEY = 18
    API_VERSION = 3
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _Versions
    SCHEMA = Schema(
        ("client_software_name", CompactString("utf-8")),
        ("client_software_version", CompactString("utf-8")),
        ("tags", TaggedFields),
    )

    def parse_response_header(self, read_buffer: Any) -> ResponseHeader_v0:
        return ResponseHeader_v0.decode(read_buffer)  # an answer of any version begins like this


class _AskReached(Request[_VersionsAsked]):
    API_KEY = 18

    def build(self, request_struct_class: type[_VersionsAsked]) -> _VersionsAsked:
        return request_struct_class("hushstream", "1", {})


_LEVELS = Schema(
    ("name", CompactString("utf-8")), ("max_level", Int16), ("min_level", Int16),
    ("tags", TaggedFields),
)  # fmt: skip


def finalized(features: bytes) -> dict[str, int]:
    """Read the finalized levels of a cluster's features from the field of an answer.

    Raises:
        ValueError: the field is incomplete.
    """
    data = BytesIO(features)
    number = UnsignedVarInt32.decode(data) - 1
    return {
        str(name): int(most) for name, most, *_ in (_LEVELS.decode(data) for _ in range(number))
    }


async def _bumps(client: Any) -> bool:
    """Whether brokers begin a new epoch with each transaction."""
    try:
        answer = await client.send(client.get_random_node(), _AskReached())
    except (IncompatibleBrokerVersion, NotImplementedError):  # before Kafka 2.4
        return False
    return finalized(answer.tags.get(FINALIZED, b"\x01")).get(FEATURE, 0) >= WANTED


# -- EndTxn ----------------------------------------------------------------------------------------


class _Ended(Response):
    API_KEY = 26
    API_VERSION = 5
    SCHEMA = Schema(
        ("throttle_time_ms", Int32), ("error_code", Int16), ("producer_id", Int64),
        ("producer_epoch", Int16), ("tags", TaggedFields),
    )  # fmt: skip


class _EndStruct(RequestStruct):
    API_KEY = 26
    API_VERSION = 5
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _Ended
    SCHEMA = Schema(
        ("transactional_id", CompactString("utf-8")), ("producer_id", Int64),
        ("producer_epoch", Int16), ("committed", Boolean), ("tags", TaggedFields),
    )  # fmt: skip


class _End(Request[_EndStruct]):
    API_KEY = 26

    def __init__(self, manager: TransactionManager, commit: bool) -> None:
        self._fields = (manager.transactional_id, manager.producer_id, manager.producer_epoch)
        self._commit = commit

    def build(self, request_struct_class: type[_EndStruct]) -> _EndStruct:
        return request_struct_class(*self._fields, self._commit, {})


# -- the sender ------------------------------------------------------------------------------------


class _OnceEach(BaseHandler):
    """A request that is repeated only if an answer asks for it."""

    async def do(self, node_id: int) -> bool:
        """Send the request; False: it was not written, or must be sent again."""
        try:
            answer = await self._sender.client.send(
                node_id, self.create_request(), group=self.group
            )
        except NodeNotReadyError:  # no connection, so nothing was written
            await asyncio.sleep(self.handle_error())
            return False
        except KafkaError as error:
            self._sender.give_up(error)
            return True
        backoff = self.handle_response(answer)
        if backoff is not None:
            await asyncio.sleep(backoff)
        return backoff is None


class _Add(_OnceEach, AddPartitionsToTxnHandler):
    """`AddPartitionsToTxn`."""


class _Finish(_OnceEach, EndTxnHandler):
    """`EndTxn` for brokers that keep the epoch."""


class _FinishEpoch(_Finish):
    """`EndTxn` that begins a new epoch."""

    def create_request(self) -> Any:
        """Make the request of version 5."""
        return _End(self._sender._txn_manager, self._commit_result)

    def handle_response(self, response: Any) -> float | None:
        """Take the new epoch before the next transaction can begin."""
        if response.error_code == FENCED:
            raise ProducerFenced
        if response.error_code == 0:
            manager = self._sender._txn_manager
            manager._pid_and_epoch = PidAndEpoch(response.producer_id, response.producer_epoch)
            manager._sequence_numbers.clear()  # each epoch counts from 0
        wait: float | None = super().handle_response(response)
        return wait


class AnsweredSender(Sender):
    """A sender that sends nothing after an unanswered transactional request.

    Attributes:
        epochs: whether the cluster begins a new epoch with each transaction.
    """

    epochs = False
    _ended: tuple[Any, ...] = ()  # the connection of the last answer to an `EndTxn`

    async def start(self) -> None:
        """Find out the cluster's features, and get the first epoch."""
        self.epochs = await _bumps(self.client)
        await super().start()

    def give_up(self, error: KafkaError) -> None:
        """Fail all pending work for good, and send nothing more."""
        self._forgive()
        manager = self._txn_manager
        manager.fatal_error(error)
        manager._transaction_waiter.exception()  # it may be a new future
        self._message_accumulator.fail_all(error)
        self._sender_task.cancel()

    def _forgive(self) -> None:
        """Keep pending futures from logging: a sender gets the error at its next record."""
        accumulator = self._message_accumulator
        waiting = [self._txn_manager._transaction_waiter]  # not awaited before a commit
        for batch in (*chain(*accumulator._batches.values()), *accumulator._pending_batches):
            waiting += [batch.future, batch._drain_waiter, *(one for one, _ in batch._msg_futures)]
        for future in waiting:
            future.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _do_add_partitions_to_txn(self, tps: Any) -> bool:
        node = await self._find_coordinator(_TRANSACTION, self._txn_manager.transactional_id)
        if self._ended and not self._same(node, *self._ended):
            self.give_up(KafkaConnectionError("the coordinator was away between transactions"))
            return True
        try:
            done = await _Add(self, tps).do(node)
        except ProducerFenced:  # it ends the sender, and fails all pending work
            self._forgive()
            raise
        if done:
            self._ended = ()
        return done

    def _same(self, node: int, last: Any) -> bool:
        there = self._connection(node)
        return there is last and (there is None or bool(there.connected()))

    def _connection(self, node: int) -> Any:
        return self.client._conns.get((node, ConnectionGroup.COORDINATION))

    async def _do_txn_commit(self, commit_result: Any) -> None:
        await self._message_accumulator.flush_for_commit()
        manager = self._txn_manager
        if manager.is_empty_transaction():
            manager.complete_transaction()
            return
        node = await self._find_coordinator(_TRANSACTION, manager.transactional_id)
        if await (_FinishEpoch if self.epochs else _Finish)(self, commit_result).do(node):
            self._ended = (self._connection(node),)


def send_once(producer: Any) -> Any:
    """Make a transactional producer, not yet started, give up rather than repeat a request."""
    producer._sender.__class__ = AnsweredSender
    return producer


async def end_in(producer: Any, places: Iterable[TopicPartition], commit: bool) -> None:
    """Write markers to partitions by an empty transaction, which ends hanging ones there.

    Raises:
        KafkaError: the broker refuses, or does not answer.
    """
    await producer.begin_transaction()
    for place in places:
        producer._txn_manager.maybe_add_partition_to_txn(place)
    await (producer.commit_transaction() if commit else producer.abort_transaction())


def producer_id(producer: Any) -> int:
    """Return the producer id of a started producer."""
    return int(producer._txn_manager.producer_id)


def new_epochs(producer: Any) -> bool:
    """Whether each transaction of a started producer has its own epoch."""
    return bool(producer._sender.epochs)

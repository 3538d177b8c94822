"""A transactional producer sends nothing after a request without an answer.

Covers: agents/kafka/private/of_aiokafka_producer.py
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.errors import (
    CorrelationIdError,
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    NodeNotReadyError,
    ProducerFenced,
    RequestTimedOutError,
)
from aiokafka.producer.transaction_manager import TransactionState
from aiokafka.structs import TopicPartition
from hushstream.agents.kafka.clients import transactional_producer
from hushstream.agents.kafka.private import of_aiokafka_producer as private
from hushstream.agents.kafka.private.of_aiokafka_producer import finalized, new_epochs, send_once
from hushstream.topics.config.model import Kafka

PLACE = TopicPartition("t", 0)
UNANSWERED = (RequestTimedOutError, KafkaConnectionError, CorrelationIdError)
FENCED = 47
FEATURES = b"\x02\x14transaction.version\x00\x02\x00\x00\x00"


class Line:
    """A producer's connection: gives the next of its answers, or raises it.

    Attributes:
        asked: the requests, as they were built.
    """

    def __init__(self, answers: Sequence[Any]) -> None:
        self._answers = list(answers)
        self.asked: list[Any] = []

    async def send(self, node: int, request: Any, group: Any = None) -> Any:
        self.asked.append(request)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def ended(code: int, producer: int = 7, epoch: int = 4) -> Any:
    return SimpleNamespace(error_code=code, producer_id=producer, producer_epoch=epoch)


def added(code: int) -> Any:
    return SimpleNamespace(errors=[("t", [(0, code)])])


def through(answers: Sequence[Any], work: Callable[[Any, Line], Awaitable[None]]) -> None:
    """Run ``work`` with the sender of a producer that is in a transaction."""

    async def run() -> None:
        producer: Any = send_once(AIOKafkaProducer(transactional_id="x", retry_backoff_ms=1))
        sender, manager, line = producer._sender, producer._txn_manager, Line(answers)
        producer.client.send = line.send
        sender._coordinators[CoordinationType.TRANSACTION] = 0
        sender._sender_task = asyncio.ensure_future(asyncio.Event().wait())
        manager.set_pid_and_epoch(7, 3)
        manager.begin_transaction()
        manager.maybe_add_partition_to_txn(PLACE)
        try:
            await work(sender, line)
        finally:
            sender._sender_task.cancel()
            producer._closed = True

    asyncio.run(run())


async def given_up(sender: Any, error: type[Exception]) -> bool:
    """Whether the transaction has failed, for everyone who waits and for later calls."""
    manager = sender._txn_manager
    assert manager.state is TransactionState.FATAL_ERROR
    with pytest.raises(error):
        manager.wait_for_transaction_end().result()
    with pytest.raises(error):
        await sender._message_accumulator.add_message(PLACE, None, b"more", 1.0)
    await asyncio.sleep(0)
    return bool(sender._sender_task.cancelled())


@pytest.mark.parametrize("epochs", [False, True])
@pytest.mark.parametrize("error", UNANSWERED)
def test_an_end_without_an_answer_is_not_sent_again(error: type[Exception], epochs: bool) -> None:
    async def work(sender: Any, line: Line) -> None:
        sender.epochs = epochs
        sender._txn_manager.partition_added(PLACE)
        sender._txn_manager.committing_transaction()
        await sender._do_txn_commit(True)
        assert await given_up(sender, error)
        assert len(line.asked) == 1

    through([error()], work)


@pytest.mark.parametrize("error", UNANSWERED)
def test_nor_is_a_partition_added_again_nor_its_batch_sent(error: type[Exception]) -> None:
    async def work(sender: Any, line: Line) -> None:
        waits = await sender._message_accumulator.add_message(PLACE, None, b"row", 1.0)
        await sender._do_add_partitions_to_txn({PLACE})
        assert await given_up(sender, error)
        with pytest.raises(error):
            waits.result()
        assert len(line.asked) == 1

    through([error()], work)


def test_what_waits_at_a_fenced_producer_fails_without_a_line_of_the_loop() -> None:
    told: list[str] = []

    async def work(sender: Any, line: Line) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, what: told.append(str(what)))
        accumulator = sender._message_accumulator
        waits = await accumulator.add_message(PLACE, None, b"row", 1.0)
        with pytest.raises(ProducerFenced):
            await sender._do_add_partitions_to_txn({PLACE})
        accumulator.fail_all(ProducerFenced())  # the sender does both when it ends
        sender._txn_manager.fatal_error(ProducerFenced())
        await asyncio.sleep(0)
        with pytest.raises(ProducerFenced):
            waits.result()
        accumulator._batches.clear()
        del sender._txn_manager._transaction_waiter
        gc.collect()

    through([added(FENCED)], work)
    assert told == []


@pytest.mark.parametrize("code", [14, 15, 16, 51])
def test_an_answer_that_asks_for_it_has_a_request_sent_again(code: int) -> None:
    async def work(sender: Any, line: Line) -> None:
        manager = sender._txn_manager
        assert not await sender._do_add_partitions_to_txn({PLACE})
        sender._coordinators[CoordinationType.TRANSACTION] = 0
        assert await sender._do_add_partitions_to_txn({PLACE})
        manager.committing_transaction()
        for _ in range(2):
            sender._coordinators[CoordinationType.TRANSACTION] = 0
            await sender._do_txn_commit(True)
        assert manager.state is TransactionState.READY
        assert len(line.asked) == 4

    through([added(code), added(0), ended(code), ended(0)], work)


def test_what_was_not_written_may_be_sent_again() -> None:
    async def work(sender: Any, line: Line) -> None:
        assert not await sender._do_add_partitions_to_txn({PLACE})
        assert CoordinationType.TRANSACTION not in sender._coordinators  # it may have moved
        assert sender._txn_manager.state is TransactionState.IN_TRANSACTION

    through([NodeNotReadyError()], work)


def test_each_end_begins_an_epoch_and_each_epoch_counts_from_0() -> None:
    async def work(sender: Any, line: Line) -> None:
        sender.epochs = True
        manager = sender._txn_manager
        manager.partition_added(PLACE)
        manager.increment_sequence_number(PLACE, 5)
        manager.committing_transaction()
        await sender._do_txn_commit(True)
        asked = line.asked[0].prepare({26: (0, 5)})
        assert asked.API_VERSION == 5
        assert asked.encode() == b"\x02x" + bytes([0] * 7 + [7, 0, 3, 1, 0])
        assert (manager.producer_id, manager.producer_epoch) == (9, 0)
        assert manager.sequence_number(PLACE) == 0
        assert manager.state is TransactionState.READY

    through([ended(0, producer=9, epoch=0)], work)


def test_brokers_that_keep_the_epoch_are_asked_as_ever() -> None:
    async def work(sender: Any, line: Line) -> None:
        manager = sender._txn_manager
        manager.partition_added(PLACE)
        manager.increment_sequence_number(PLACE, 5)
        manager.committing_transaction()
        await sender._do_txn_commit(True)
        assert line.asked[0].prepare({26: (0, 5)}).API_VERSION == 0
        assert (manager.producer_epoch, manager.sequence_number(PLACE)) == (3, 5)

    through([ended(0)], work)


def test_an_end_of_an_epoch_that_is_over_is_a_loss_of_the_id() -> None:
    async def work(sender: Any, line: Line) -> None:
        sender.epochs = True
        sender._txn_manager.partition_added(PLACE)
        sender._txn_manager.committing_transaction()
        with pytest.raises(ProducerFenced):
            await sender._do_txn_commit(True)

    through([ended(90)], work)


@pytest.mark.parametrize("there", [None, "another", "closed"])
def test_a_transaction_after_the_coordinator_was_away_is_given_up(there: str | None) -> None:
    """The coordinator may have forgotten the previous one; this one would end only its own part."""

    async def work(sender: Any, line: Line) -> None:
        manager, place = sender._txn_manager, (0, ConnectionGroup.COORDINATION)
        link = SimpleNamespace(connected=lambda: True, close=lambda **_: None)
        sender.client._conns[place] = link
        for _ in range(2):
            assert await sender._do_add_partitions_to_txn({PLACE})
            manager.committing_transaction()
            await sender._do_txn_commit(True)
            manager.begin_transaction()
            manager.maybe_add_partition_to_txn(PLACE)
        sender.client._conns.clear()
        if there is not None:
            sender.client._conns[place] = (
                link if there == "closed" else SimpleNamespace(connected=lambda: True)
            )
            link.connected = lambda: False
        await sender._do_add_partitions_to_txn({PLACE})
        sender.client._conns.clear()
        assert await given_up(sender, KafkaConnectionError)
        assert len(line.asked) == 4

    through([added(0), ended(0), added(0), ended(0)], work)


def test_a_transaction_without_a_record_ends_by_itself() -> None:
    async def work(sender: Any, line: Line) -> None:
        sender._txn_manager._pending_txn_partitions.clear()
        sender._txn_manager.committing_transaction()
        await sender._do_txn_commit(True)
        assert sender._txn_manager.state is TransactionState.READY
        assert line.asked == []

    through([], work)


def test_levels_of_features_are_read() -> None:
    assert finalized(FEATURES) == {"transaction.version": 2}
    assert finalized(b"\x01") == {}
    with pytest.raises(ValueError, match="underrun"):
        finalized(FEATURES[:9])


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (SimpleNamespace(tags={2: FEATURES}), True),
        (
            SimpleNamespace(tags={2: FEATURES.replace(b"\x00\x02\x00\x00", b"\x00\x01\x00\x00")}),
            False,
        ),
        (SimpleNamespace(tags={}), False),
        (IncompatibleBrokerVersion("old"), False),
        (NotImplementedError(), False),
    ],
    ids=["2", "1", "none", "no version", "no class"],
)
def test_a_cluster_says_whether_it_begins_epochs(answer: Any, expected: bool) -> None:
    async def run() -> bool:
        line = Line([answer])
        client = SimpleNamespace(send=line.send, get_random_node=lambda: 0)
        return await private._bumps(client)

    assert asyncio.run(run()) is expected


def test_a_new_producer_knows_of_no_epochs() -> None:
    async def run() -> bool:
        producer: Any = send_once(AIOKafkaProducer(transactional_id="x"))
        producer._closed = True
        return new_epochs(producer)

    assert not asyncio.run(run())


def test_each_producer_of_transactions_sends_once() -> None:
    async def run() -> bool:
        made: Any = transactional_producer(Kafka(bootstrap="127.0.0.1:9"), "x", 10_000)
        made._closed = True
        return isinstance(made._sender, private.AnsweredSender)

    assert asyncio.run(run())

"""Kafka clients of the worker, and readers of logs to their end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import aiokafka
from aiokafka.errors import DuplicateSequenceNumber, MessageSizeTooLargeError
from aiokafka.structs import TopicPartition

from ...errors import EngineError, RewoundError, TrimmedError
from ...topics.config.model import Kafka
from .access.tokens import client_options
from .forgotten import end_forgotten, never_answered
from .patience import (
    ROLE,
    aio_refusal,
)
from .private.of_aiokafka import fetch_columns
from .private.of_aiokafka_producer import new_epochs, send_once

BATCH_BYTES = 900_000
STOP_SECONDS = 5.0
SETTLE_SECONDS = 5.0
READ_SECONDS = 30.0  # without a record before the end of a log, after which reading fails
START_SECONDS = 60.0  # for a producer to get its id
COMMIT_SECONDS = 30.0  # longer than the broker leaves a transaction open

log = logging.getLogger("hushstream.kafka")


def transactional_producer(
    kafka: Kafka, transactional_id: str, timeout_ms: int
) -> aiokafka.AIOKafkaProducer:
    """Make a producer whose start fences all earlier owners of its id."""
    producer = aiokafka.AIOKafkaProducer(
        **client_options(kafka),
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        acks="all",
        # Most of what is sent is digests, which do not compress.
        compression_type=None,
        max_batch_size=BATCH_BYTES,
        max_request_size=16 * 1024 * 1024,
        linger_ms=0,
    )
    return send_once(producer)


async def start_producer(
    producer: aiokafka.AIOKafkaProducer,
    places: Collection[TopicPartition] = (),
    unread: Collection[TopicPartition] = (),
    answered: Callable[[], Awaitable[bool]] = never_answered,
) -> None:
    """Start a producer; return once the open transaction of an earlier owner has ended.

    The library would wait without end for a coordinator without a leader. A warning is logged,
    once, if brokers cannot protect transactions against repeated requests.

    Args:
        places: readable partitions that it writes, for `end_forgotten`.
        unread: other partitions that it writes.
        answered: returns whether the commit of a hanging transaction was answered.

    Raises:
        TimeoutError: the producer got no id within `START_SECONDS`.
        KafkaError: the broker refuses it, or lacks the end of an earlier transaction.
    """
    try:
        async with asyncio.timeout(START_SECONDS):
            await producer.start()
    except TimeoutError:
        raise TimeoutError("no coordinator of its transactions answers") from None
    await end_forgotten(producer, places, unread, answered)
    if not new_epochs(producer):
        _warn_of_repeats()


@cache
def _warn_of_repeats() -> None:
    log.warning(
        "these brokers keep a producer's epoch from one transaction to the next "
        "(transaction.version below 2): if a proxy between worker and broker sends a request once "
        "more after its answer, half of a transaction may be committed, and records are then lost "
        "or counted twice. Upgrade (Kafka 4.0 or newer: kafka-features.sh upgrade --feature "
        "transaction.version=2, then restart the workers), or let no proxy repeat requests"
    )


def within(timeout_ms: int) -> asyncio.Timeout:
    """Limit the time of a transaction, for whose end the library might wait for ever.

    The library does so if the transaction's coordinator has lost its leader. As after any error,
    whether an abandoned commit succeeded is unknown until the logs are read.
    """
    return asyncio.timeout(timeout_ms / 1000 + COMMIT_SECONDS)


def consumer(kafka: Kafka, committed: bool = True) -> aiokafka.AIOKafkaConsumer:
    """Make a consumer without a group, of committed records or of all records."""
    return aiokafka.AIOKafkaConsumer(
        **client_options(kafka),
        isolation_level="read_committed" if committed else "read_uncommitted",
        enable_auto_commit=False,
        auto_offset_reset="none",
        fetch_max_wait_ms=100,
        max_partition_fetch_bytes=8 * 1024 * 1024,
    )


@asynccontextmanager
async def reader(kafka: Kafka, committed: bool = True) -> AsyncIterator[aiokafka.AIOKafkaConsumer]:
    """Run a `consumer` for the duration of the context."""
    client = consumer(kafka, committed)
    try:
        await client.start()
        yield client
    finally:
        await stop_quietly(client)


def backwards(begin: int, end: int, step: int, growth: int) -> Iterator[int]:
    """Yield offsets to search for a last record, further back each time, down to ``begin``.

    Args:
        step: distance before ``end`` at first.
        growth: factor for the distance each time.
    """
    start = end
    while start > begin:
        start = max(begin, end - step)
        yield start
        step *= growth


async def reached(
    client: aiokafka.AIOKafkaConsumer, known: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Ask for ends of partitions, until none lies below a position that was read before.

    A new leader may briefly report an older end, so the question is repeated for up to
    `SETTLE_SECONDS`. What counts is when it was asked: a suspended process finds an old answer.

    Args:
        known: position reached in each partition; 0 if nothing was read.

    Raises:
        RewoundError: a partition ends below its position.
    """
    until = 0.0
    while True:
        asked = time.monotonic()
        ends: dict[TopicPartition, int] = await client.end_offsets(list(known))
        # Counted from the first answer, which may wait behind a fetch that the broker holds.
        until = until or time.monotonic() + SETTLE_SECONDS
        behind = [f"{tp.topic}-{tp.partition}" for tp, position in known.items()
                  if ends[tp] < position]  # fmt: skip
        if not behind:
            return ends
        if asked > until:
            # Never log the offset: in a raw topic it is an exact count.
            places = ", ".join(sorted(behind))
            raise RewoundError(f"{places} ends before what this worker has read of it")
        await asyncio.sleep(0.2)


async def check_reached(kafka: Kafka, topic: str, partition: int, position: int) -> None:
    """Check that a partition does not end below a position that was reached in it.

    Raises:
        RewoundError: the partition ends below it.
    """
    async with reader(kafka) as client:
        await reached(client, {TopicPartition(topic, partition): position})


async def first_offset(kafka: Kafka, topic: str, partition: int) -> int:
    """Ask for the first offset that a partition still has."""
    tp = TopicPartition(topic, partition)
    async with reader(kafka) as client:
        begins: dict[TopicPartition, int] = await client.beginning_offsets([tp])
    return begins[tp]


class Silence:
    """Notices that no records come although a log has more."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._position = -1
        self._heard = time.monotonic()

    def check(self, position: int) -> None:
        """Take the next position.

        Raises:
            TimeoutError: the position has not changed for `READ_SECONDS`.
        """
        if position > self._position:
            self._position, self._heard = position, time.monotonic()
        elif time.monotonic() - self._heard > READ_SECONDS:
            raise TimeoutError(f"{self._what} was not read to its end")


async def read_span(
    client: aiokafka.AIOKafkaConsumer,
    tp: TopicPartition,
    start: int,
    end: int,
    columns: bool = False,
) -> AsyncIterator[tuple[Sequence[Any], int]]:
    """Read committed records of an assigned partition between two offsets.

    Args:
        columns: whether records may come as a `RawBatch`.

    Yields:
        Records, and the position reached.

    Raises:
        TimeoutError: nothing came for `READ_SECONDS` although ``end`` was not reached.
    """
    client.seek(tp, start)
    silence, position = Silence(f"{tp.topic}-{tp.partition}"), start
    while position < end:
        silence.check(position)
        if columns and (batches := await fetch_columns(client, tp, position, 0.2)) is not None:
            for one in batches:
                position = one.end
                yield one.records, position
            continue
        found = await client.getmany(tp, timeout_ms=200)
        # Not the offset of the last record: transaction markers take up offsets too, and the loop
        # would wait for ever for one at the end.
        position = await client.position(tp)
        yield found.get(tp, []), position


async def read_to_end(
    kafka: Kafka, topic: str, partition: int, start: int | None = None, columns: bool = False
) -> AsyncIterator[tuple[Sequence[Any], int, int]]:
    """Read committed records of one partition from ``start`` to its end at the time of the call.

    Args:
        start: first offset; None: the first that the broker still has.
        columns: whether records may come as a `RawBatch`, without an object for each.

    Yields:
        Records, the position reached, and the end; at least once, possibly without records.

    Raises:
        TrimmedError: ``start`` is below what the topic still has.
        RewoundError: ``start`` is above its end.
        TimeoutError: nothing came for `READ_SECONDS` although the end was not reached.
    """
    tp = TopicPartition(topic, partition)
    async with reader(kafka) as client:
        client.assign([tp])
        begin = (await client.beginning_offsets([tp]))[tp]
        position = begin if start is None else start
        end = (await reached(client, {tp: position}))[tp]
        if position < begin:
            raise TrimmedError(f"{topic}-{partition} does not hold the position that is wanted")
        yield [], position, end
        async for records, reached_now in read_span(client, tp, position, end, columns):
            yield records, reached_now, end


async def answers(sent: Sequence[asyncio.Future[Any]]) -> list[Any]:
    """Wait for the broker's answers to all records of a transaction; call this before the commit.

    A broker may refuse a batch for good, for example because a new leader expects another sequence
    number. At a commit, aiokafka waits for every batch but then commits the transaction without the
    refused one. It also treats a duplicate sequence number as success, with a wrong offset.

    Args:
        sent: futures of all records or batches of the transaction.

    Raises:
        KafkaError: one was refused, so the transaction must not be committed.
        RightError: the right to write is refused, so a retry is useless.
        EngineError: a record is too large for its topic, so a retry is useless.
    """
    for one in sent:
        one.add_done_callback(heard)
    try:
        told = [await one for one in sent]
        if any(one.offset < 0 for one in told):  # of the first record, where it is one's batch
            raise DuplicateSequenceNumber
        return told
    except MessageSizeTooLargeError as error:
        raise EngineError(
            "the brokers refuse a record as too large: let max.message.bytes of the topics that "
            "`hush topics --print` lists be at least 1048588; a restart does not help until then"
        ) from error
    except Exception as error:
        if (refused := aio_refusal(error, ROLE, "WRITE")) is not None:
            raise refused from error
        raise


def heard(answer: asyncio.Future[Any]) -> None:
    """Retrieve the error of an answer that may no longer be awaited, or asyncio would log it."""
    if not answer.cancelled():
        answer.exception()  # the first one was raised


_stopping: set[asyncio.Future[Any]] = set()  # asyncio itself holds a task by a weak reference


async def stop_quietly(client: Any) -> None:
    """Stop a client that may be broken already.

    aiokafka's ``stop`` may raise a stray `CancelledError`, which must not reach the caller, so it
    runs in its own task, for at most `STOP_SECONDS`.
    """
    stopping = asyncio.ensure_future(client.stop())
    _stopping.add(stopping)
    stopping.add_done_callback(_forget)
    await asyncio.wait([stopping], timeout=STOP_SECONDS)
    stopping.cancel()


def _forget(stopping: asyncio.Future[Any]) -> None:
    _stopping.discard(stopping)
    if not stopping.cancelled():
        stopping.exception()  # the client had failed before, so nothing is lost

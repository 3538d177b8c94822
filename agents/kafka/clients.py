"""Kafka clients of the worker: one table of settings for both libraries, logs read to their end."""

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
from aiokafka.errors import DuplicateSequenceNumber
from aiokafka.structs import TopicPartition

from ...errors import EngineError, RewoundError
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
READ_SECONDS = 30.0  # without a record, before the end of a log that is read to its end
START_SECONDS = 60.0  # for a producer to get its id
COMMIT_SECONDS = 30.0  # more than the broker leaves a transaction open

log = logging.getLogger("hushstream.kafka")


def transactional_producer(
    kafka: Kafka, transactional_id: str, timeout_ms: int
) -> aiokafka.AIOKafkaProducer:
    """Make a producer whose start fences every earlier owner of the same id."""
    producer = aiokafka.AIOKafkaProducer(
        **client_options(kafka),
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        acks="all",
        # Digests do not compress, and they are most of what is sent.
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
    """Start a producer; returns once what an earlier owner of its id left open has ended.

    The library waits without end for a coordinator that has no leader. Brokers that cannot protect
    transactions against whatever repeats requests are warned of, once.

    Args:
        places: partitions that it writes and that may be read, for `end_forgotten`.
        unread: others that it writes.
        answered: whether the commit of what hangs was answered.

    Raises:
        TimeoutError: it got no id within `START_SECONDS`.
        EngineError: the brokers have lost the end of a transaction, in part.
        KafkaError: the broker refuses it.
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
    """Limit a transaction: the broker has aborted it by then, and the library may wait for ever.

    It does where the coordinator of the transaction has lost its leader. What becomes of a commit
    that is given up is unknown, as after any error: only the logs tell.
    """
    return asyncio.timeout(timeout_ms / 1000 + COMMIT_SECONDS)


def consumer(kafka: Kafka, committed: bool = True) -> aiokafka.AIOKafkaConsumer:
    """Make a consumer without a group, which reads committed records only, or all."""
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
    """Start a `consumer`, and stop it at the end."""
    client = consumer(kafka, committed)
    try:
        await client.start()
        yield client
    finally:
        await stop_quietly(client)


def backwards(begin: int, end: int, step: int, growth: int) -> Iterator[int]:
    """Offsets from which to look for the last of something: further back each time, to ``begin``.

    Args:
        step: offsets before ``end`` at first.
        growth: times as many each time.
    """
    start = end
    while start > begin:
        start = max(begin, end - step)
        yield start
        step *= growth


async def reached(
    client: aiokafka.AIOKafkaConsumer, known: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Ask for ends of partitions, until none of them lies below a position that was read before.

    A new leader may answer with an older end for a moment, so the answer is asked for again, for
    up to `SETTLE_SECONDS`.

    Args:
        known: position reached in each partition; 0 where nothing was read.

    Raises:
        RewoundError: a partition ends below its position.
    """
    until = 0.0
    while True:
        ends: dict[TopicPartition, int] = await client.end_offsets(list(known))
        # From the first answer on, which may wait behind a fetch that the broker holds.
        until = until or time.monotonic() + SETTLE_SECONDS
        behind = [f"{tp.topic}-{tp.partition}" for tp, position in known.items()
                  if ends[tp] < position]  # fmt: skip
        if not behind:
            return ends
        if time.monotonic() > until:
            # Never log the offset: in a raw topic it is an exact count.
            places = ", ".join(sorted(behind))
            raise RewoundError(f"{places} ends before what this worker has read of it")
        await asyncio.sleep(0.2)


async def check_reached(kafka: Kafka, topic: str, partition: int, position: int) -> None:
    """Check that a partition holds everything below a position that was reached in it.

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
    """Notices that nothing comes although a log has more."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._position = -1
        self._heard = time.monotonic()

    def check(self, position: int) -> None:
        """Take a position, in order.

        Raises:
            TimeoutError: it has been the same for `READ_SECONDS`.
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
        # Not the offset of the last record: ends of transactions take an offset too, and the
        # last one before the end would be waited for without end.
        position = await client.position(tp)
        yield found.get(tp, []), position


async def read_to_end(
    kafka: Kafka, topic: str, partition: int, start: int | None = None, columns: bool = False
) -> AsyncIterator[tuple[Sequence[Any], int, int]]:
    """Read committed records of one partition from ``start`` to its end at the time of the call.

    Args:
        start: an offset; None: the first one that the broker still has.
        columns: whether records may come as a `RawBatch`, without an object for each.

    Yields:
        Records, the position reached, and the end; at least once, perhaps without records.

    Raises:
        EngineError: ``start`` is below what the topic still has.
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
            raise EngineError(f"{topic}-{partition} does not hold the position that is wanted")
        yield [], position, end
        async for records, reached_now in read_span(client, tp, position, end, columns):
            yield records, reached_now, end


async def answers(sent: Sequence[asyncio.Future[Any]]) -> list[Any]:
    """Wait for the broker's answers to all that a transaction holds; call it before the commit.

    The broker may refuse a batch for good (a sequence number that a new leader does not expect, for
    one). aiokafka waits for every batch when it commits, and then commits what is left without it.
    It also takes a number that the broker knows already for success, with an offset that is wrong.

    Args:
        sent: the producer's results for all records or batches of the transaction.

    Raises:
        KafkaError: one was refused: the transaction must not be committed.
        RightError: the right to write is refused, so trying again is of no use.
    """
    for one in sent:
        one.add_done_callback(heard)
    try:
        told = [await one for one in sent]
        if any(one.offset < 0 for one in told):  # of the first record, where it is one's batch
            raise DuplicateSequenceNumber
        return told
    except Exception as error:
        if (refused := aio_refusal(error, ROLE, "WRITE")) is not None:
            raise refused from error
        raise


def heard(answer: asyncio.Future[Any]) -> None:
    """Take an answer that may come when nobody waits any more; asyncio would log its error."""
    if not answer.cancelled():
        answer.exception()  # the first one was raised


_stopping: set[asyncio.Future[Any]] = set()  # asyncio itself holds a task by a weak reference


async def stop_quietly(client: Any) -> None:
    """Stop a client that may be broken already.

    aiokafka's ``stop`` may raise a stray `CancelledError`, which must not reach the caller, so it
    runs in a task of its own, for at most `STOP_SECONDS`.
    """
    stopping = asyncio.ensure_future(client.stop())
    _stopping.add(stopping)
    stopping.add_done_callback(_forget)
    await asyncio.wait([stopping], timeout=STOP_SECONDS)
    stopping.cancel()


def _forget(stopping: asyncio.Future[Any]) -> None:
    _stopping.discard(stopping)
    if not stopping.cancelled():
        stopping.exception()  # it failed before: nothing is lost with it

"""Readers of whole topics, from their beginning to their end, for replay and checks."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from operator import methodcaller
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ...errors import EngineError
from ...topics.config.clients import librdkafka_options
from ...topics.config.model import Kafka
from ...topics.events.decode import RawRecord

TOLD = 2_000
PATIENCE_SECONDS = 30.0
_LEADERLESS = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)

# For a name that is not UTF-8 the extension both returns a broken list and sets an error. The
# interpreter does not check for that error after a specialised call; after this one it always does.
_LISTED = methodcaller("headers")

Advance = Callable[[int], None]


class PartitionLog(NamedTuple):
    """Everything that one partition holds.

    ``begin`` is the first offset that the broker still has.
    """

    begin: int
    records: list[RawRecord]


def read_topic(
    kafka: Kafka,
    topic: str,
    partitions: int,
    committed: bool = True,
    advance: Advance = lambda records: None,
) -> list[PartitionLog]:
    """Read each partition of a topic to its end.

    Args:
        kafka: the connection.
        topic: name of the topic.
        partitions: of the topic.
        committed: False also returns records of aborted transactions.
        advance: called with the number of records read since its last call.

    Returns:
        One log per partition, in order.

    Raises:
        EngineError: the broker is silent, or reports an error.
    """
    client = consumer(kafka, committed)
    try:
        places = [TopicPartition(topic, n, 0) for n in range(partitions)]
        begins = [watermarks(client, place)[0] for place in places]
        client.assign([TopicPartition(topic, n, begin) for n, begin in enumerate(begins)])
        found: list[list[RawRecord]] = [[] for _ in places]
        open_ = set(range(partitions))
        read = told = 0
        while open_:
            message = client.poll(PATIENCE_SECONDS)  # `consume` would wait after the last record
            if message is None:
                raise EngineError(f"{topic} could not be read to its end: the broker is silent")
            _take(topic, message, found, open_)
            read += 1
            if read % TOLD == 0 or not open_:
                advance(read - told)
                told = read
        return [PartitionLog(b, records) for b, records in zip(begins, found, strict=True)]
    finally:
        client.close()


def watermarks(client: Consumer, place: TopicPartition) -> tuple[int, int]:
    """Ask for the first and the end offset of a partition.

    A broker that has just started may not lead its partitions yet, so it is asked again, for up to
    `PATIENCE_SECONDS`.

    Args:
        client: any one.
        place: topic and partition.

    Raises:
        EngineError: the broker is silent, or the partition has no leader for too long.
    """
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            begin, end = client.get_watermark_offsets(place, timeout=PATIENCE_SECONDS)
            return begin, end
        except KafkaException as error:
            if time.monotonic() > until or error.args[0].code() not in _LEADERLESS:
                raise EngineError(f"{place.topic} cannot be read: {error.args[0].str()}") from error
        time.sleep(0.2)


def consumer(kafka: Kafka, committed: bool, more: Mapping[str, Any] | None = None) -> Consumer:
    """Make a client that reads assigned partitions and reports their ends.

    Args:
        kafka: the connection.
        committed: False also returns records of aborted transactions.
        more: further options of librdkafka, which win.
    """
    options = {
        "group.id": f"hush-read-{secrets.token_hex(4)}",
        "enable.auto.commit": False,
        "isolation.level": "read_committed" if committed else "read_uncommitted",
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,  # else the broker delays its answer at the end of the log
    }
    return Consumer(librdkafka_options(kafka) | options | dict(more or {}))


def _take(topic: str, message: Message, found: list[list[RawRecord]], open_: set[int]) -> None:
    error = message.error()
    if error is None:
        found[message.partition()].append(raw(message))
    elif error.code() == KafkaError._PARTITION_EOF:
        open_.discard(message.partition())
    elif not error.retriable():
        raise EngineError(f"{topic}-{message.partition()}: {error.str()}")


def raw(message: Message) -> RawRecord:
    """Turn a message into a record as stages take it; its time stays in milliseconds."""
    return RawRecord(
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        _headers(message),
    )


def _headers(message: Message) -> tuple[tuple[str, bytes], ...]:
    """Headers of a message; none if one has a name that is not UTF-8, as in `tolerant_batches`."""
    try:
        return tuple(_LISTED(message) or ())
    except SystemError:
        return ()

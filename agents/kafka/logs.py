"""Readers of whole topics, from their beginning to their end, for replay and checks."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from operator import methodcaller
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ...errors import EngineError, OutageError
from ...formats.events.decode import RawRecord
from ...topics.config.access.clients import librdkafka_options
from ...topics.config.model import Kafka
from ...topics.names import READ_GROUPS
from .access.refusals import of_group, refusal

TOLD = 2_000
PATIENCE_SECONDS = 30.0
_LEADERLESS = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
_GONE = "_DESTROY_BROKER"  # a broker left the metadata during a request; since librdkafka 2.10
_PASSING = frozenset(
    {
        *_LEADERLESS,
        *(KafkaError._NOENT, KafkaError._UNKNOWN_PARTITION),  # the same, detected by the client
        *(KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE),
        getattr(KafkaError, _GONE, KafkaError._TRANSPORT),
        *(KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE, KafkaError._WAIT_COORD),
        *(KafkaError.BROKER_NOT_AVAILABLE, KafkaError.REPLICA_NOT_AVAILABLE),
        *(KafkaError.NETWORK_EXCEPTION, KafkaError.REQUEST_TIMED_OUT, KafkaError.NOT_CONTROLLER),
        *(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE),
        *(KafkaError.NOT_COORDINATOR, KafkaError.OFFSET_NOT_AVAILABLE),
        *(KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH),
    }
)

# For a name that is not UTF-8, the extension both returns a broken list and sets an error. The
# interpreter misses that error after a specialised call, but never after this one.
_LISTED = methodcaller("headers")

Advance = Callable[[int], None]


class PartitionLog(NamedTuple):
    """All records of one partition.

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
    """Read each partition of a topic to its end; return one log for each, in order.

    If a log is trimmed meanwhile, the result begins at its new beginning.

    Args:
        committed: whether to leave out records of aborted transactions.
        advance: called with the number of records read since its last call.

    Raises:
        OutageError: the broker is silent, or a partition has no leader.
        EngineError: the broker reports another error.
    """
    with closing(consumer(kafka, committed)) as client:
        begins = [_begin(client, topic, n) for n in range(partitions)]
        client.assign([TopicPartition(topic, n, begin) for n, begin in enumerate(begins)])
        found: list[list[RawRecord]] = [[] for _ in begins]
        open_ = set(range(partitions))
        read = told = 0
        while open_:
            message = client.poll(PATIENCE_SECONDS)  # `consume` would wait after the last record
            if message is None:
                raise OutageError(f"{topic} could not be read to its end: the broker is silent")
            if _trimmed(client, topic, message, begins):
                found[message.partition()].clear()
            else:
                _take(kafka, topic, message, found, open_)
            read += 1
            if read % TOLD == 0 or not open_:
                advance(read - told)
                told = read
        return [PartitionLog(b, records) for b, records in zip(begins, found, strict=True)]


def failed(error: KafkaError, text: str) -> EngineError:
    """Make the error for one of the client library: an outage, or a permanent failure."""
    return (OutageError if passing(error) else EngineError)(f"{text}: {error.str()}")


def passing(error: KafkaError) -> bool:
    """Whether an error only means that a broker or a leader is away: a retry may succeed."""
    return error.code() in _PASSING


def watermarks(client: Consumer, place: TopicPartition) -> tuple[int, int]:
    """Ask for the first and the end offset of a partition.

    A broker that has just started may not lead its partitions yet, so the question is repeated for
    up to `PATIENCE_SECONDS`.

    Raises:
        OutageError: the broker is silent, or the partition has no leader for too long.
        EngineError: it reports another error.
    """
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            begin, end = client.get_watermark_offsets(place, timeout=PATIENCE_SECONDS)
            if begin >= 0 and end >= 0:  # otherwise librdkafka got no offsets, but reports no error
                return begin, end
            if time.monotonic() > until:
                raise OutageError(f"{place.topic} cannot be read: a leader is away")
        except KafkaException as error:
            if time.monotonic() > until or error.args[0].code() not in _LEADERLESS:
                raise failed(error.args[0], f"{place.topic} cannot be read") from error
        time.sleep(0.2)


def consumer(kafka: Kafka, committed: bool, more: Mapping[str, Any] | None = None) -> Consumer:
    """Make a client that reads assigned partitions and reports their ends.

    Args:
        committed: whether to leave out records of aborted transactions.
        more: further options of librdkafka, which take precedence.
    """
    options = {
        "group.id": f"{READ_GROUPS}{secrets.token_hex(4)}",
        "enable.auto.commit": False,
        "isolation.level": "read_committed" if committed else "read_uncommitted",
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,  # otherwise the broker delays its answer at the end of the log
    }
    return Consumer(librdkafka_options(kafka) | options | dict(more or {}))


def _begin(client: Consumer, topic: str, partition: int) -> int:
    return watermarks(client, TopicPartition(topic, partition))[0]


def _trimmed(client: Consumer, topic: str, message: Message, begins: list[int]) -> bool:
    """Whether the next records were trimmed; if so, continue at the new beginning."""
    error, n = message.error(), message.partition()
    if error is None or error.code() != KafkaError._AUTO_OFFSET_RESET:
        return False
    if (begin := _begin(client, topic, n)) <= begins[n]:
        return False
    begins[n] = begin
    place = TopicPartition(topic, n, begin)
    client.incremental_unassign([place])  # the client has stopped reading it, and cannot seek
    client.incremental_assign([place])
    return True


def _take(
    kafka: Kafka, topic: str, message: Message, found: list[list[RawRecord]], open_: set[int]
) -> None:
    error = message.error()
    if error is None:
        found[message.partition()].append(raw(message))
    elif error.code() == KafkaError._PARTITION_EOF:
        open_.discard(message.partition())
    else:
        check(kafka, f"{topic}-{message.partition()}", error, topic)


def check(kafka: Kafka, what: str, error: KafkaError, topic: str, role: str = "") -> None:
    """Raise the error of a client with assigned partitions, unless it is transient.

    Args:
        error: error of the client; not the end of a partition.
        role: the client's role; empty: not known.

    Raises:
        EngineError: the error is permanent; a `RightError` if the right to read is missing.
    """
    if error.retriable() or of_group(error):  # it reads assigned partitions, without its group
        return
    raise refusal(kafka, error, "READ", topic, role) or failed(error, what)


def raw(message: Message) -> RawRecord:
    """Convert a message to a record for stages; its time stays in milliseconds."""
    return RawRecord(
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        _headers(message),
    )


def _headers(message: Message) -> tuple[tuple[str, bytes], ...]:
    """Read the headers; none if a name is not UTF-8, as in `batches.tolerant`."""
    try:
        return tuple(_LISTED(message) or ())
    except SystemError:
        return ()

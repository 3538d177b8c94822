"""Declaring transactions: how others than the clock's owner write to the ledger."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from ...errors import EngineError
from ...topics.signatures import SigningKey
from ..kafka.cluster import Cluster
from .ledger import Ledger
from .ledger_record import Record

FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH,
          KafkaError.UNKNOWN_TOPIC_OR_PART)  # its topics were deleted as orphans  # fmt: skip


class Overtaken(EngineError):
    """A concurrent write: another process wrote to the ledger at the same time."""


class Line(NamedTuple):
    """One record of a declaring transaction."""

    topic: str
    key: bytes | None
    value: bytes


def ledger_line(topic: str, record: Record) -> Line:
    """Make the line for a ledger record, keyed by its pipeline if it has one."""
    key = str(record.body.get("pipeline", "")).encode() or None
    return Line(topic, key, record.encode())


def append(
    cluster: Cluster,
    identity: str,
    topic: str,
    key: SigningKey | None,
    compose: Callable[[Ledger], list[Line]],
) -> None:
    """Write lines in a transaction, under an id that fences its earlier owner.

    Args:
        topic: the ledger, which is read after the fence.
        key: signing key for new records.
        compose: makes the lines, chained to the ledger that it is given.

    Raises:
        Overtaken: another process has taken the id meanwhile, or the ledger was not read to its
            end; nothing was written.
        RightError: this user may not use the id, or may not write a topic.
    """
    refused: list[tuple[KafkaError, str]] = []
    placed: list[int] = []  # offsets of the lines in the ledger

    def told(error: KafkaError | None, message: Any) -> None:
        if error is not None:
            refused.append((error, message.topic()))
        elif message.topic() == topic:
            placed.append(message.offset())

    producer = cluster.producer(**{"transactional.id": identity, "acks": "all"})
    try:
        producer.init_transactions(30)
        ends: list[int] = []
        ledger = Ledger.read((m.value() for m in cluster.each(topic, ended=ends.append)), key)
        lines = compose(ledger)
        if not lines:
            return
        producer.begin_transaction()
        for line in lines:
            producer.produce(line.topic, line.value, key=line.key, partition=0, on_delivery=told)
        until = time.monotonic() + 30
        while len(producer) and time.monotonic() < until:
            producer.poll(0.1)  # `flush` would call `told` while a fatal error is being raised
        if len(producer):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{topic} does not answer"))
        # A leader that is cut off may show an old end to readers; writes go to the current one.
        if placed and placed[:1] != ends:
            producer.abort_transaction(30)
            raise Overtaken(
                f"the ledger {topic!r} was not read to its end, as a broker that is cut off from "
                "the others may not know it: nothing was written here; run this again"
            )
        producer.commit_transaction(30)
        for written in {line.topic for line in lines}:
            cluster.offsets.settle(written, 30)  # a worker may be started as soon as this returns
    except KafkaException as error:
        if error.args[0].code() in FENCED:
            raise Overtaken(
                "another `hush topics` runs at the same time and was faster: nothing was written "
                "here; run it again when the other one has ended"
            ) from None
        for said, where in refused:
            cluster.rights.refuse(KafkaException(said), "WRITE", where)
        cluster.rights.refuse(error, "WRITE", identity)
        raise

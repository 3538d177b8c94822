"""Times and epochs that Kafka itself writes into a log, independent of its records.

`docs/guarantee.md` says what a reader of the ledger and of releases learns from them.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from hushstream.agents.kafka.clients import start_producer, transactional_producer
from hushstream.agents.kafka.private.of_aiokafka_producer import new_epochs
from hushstream.deploy.broker import Broker
from hushstream.topics.config.model import Kafka

pytestmark = pytest.mark.broker

MINUTE = 60_000
CONTROL = 0x20


def batches(data: bytes) -> Iterator[tuple[bool, int, int]]:
    """Batches of a segment, which a fetch returns unchanged: (is it a marker, its time, epoch)."""
    place = 0
    while place + 61 <= len(data):
        (length,) = struct.unpack_from(">i", data, place + 8)
        if length <= 0:
            return
        (attributes,) = struct.unpack_from(">h", data, place + 21)
        (moment,) = struct.unpack_from(">q", data, place + 35)
        yield bool(attributes & CONTROL), moment, *struct.unpack_from(">h", data, place + 51)
        place += 12 + length


@pytest.mark.thorough
def test_a_record_of_the_minute_is_followed_by_a_marker_of_the_moment(
    broker: Broker, unique: Callable[[str], str]
) -> None:
    topic = unique("ledger")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1)])[topic].result(60)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    before = int(time.time() * 1000)
    producer.produce(topic, b"charge", timestamp=before // MINUTE * MINUTE)
    producer.commit_transaction(60)
    (segment,) = (broker.data / "kafka" / f"{topic}-0").glob("*.log")
    until = time.monotonic() + 60
    while len(found := list(batches(segment.read_bytes()))) < 2 and time.monotonic() < until:
        time.sleep(0.1)
    (record, stated, _), (marker, moment, _) = found
    assert (record, stated) == (False, before // MINUTE * MINUTE)
    assert marker and before - 1000 <= moment <= int(time.time() * 1000) + 1000

    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic})
    reader.assign([TopicPartition(topic, 0, 0)])
    copied = reader.consume(2, 10)  # a copy consists of this: only the record
    reader.close()
    assert [one.timestamp()[1] for one in copied] == [stated]


@pytest.mark.thorough
@pytest.mark.parametrize("between", [0, 3])
def test_batches_of_releases_count_the_transactions_between_them(
    broker: Broker, unique: Callable[[str], str], between: int
) -> None:
    public, inside = unique("releases"), unique("changelog")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for made in admin.create_topics([NewTopic(public, 1), NewTopic(inside, 1)]).values():
        made.result(60)

    async def run() -> bool:
        producer = transactional_producer(Kafka(bootstrap=broker.bootstrap), public, 60_000)
        await start_producer(producer)
        for topic in (public, *[inside] * between, public):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"row", partition=0)
            await producer.commit_transaction()
        await producer.stop()
        return new_epochs(producer)

    assert asyncio.run(run())  # the brokers have transaction.version 2
    (segment,) = (broker.data / "kafka" / f"{public}-0").glob("*.log")
    until = time.monotonic() + 60
    while len(found := list(batches(segment.read_bytes()))) < 4 and time.monotonic() < until:
        time.sleep(0.1)
    first, last = (epoch for marker, _, epoch in found if not marker)
    assert last - first == 1 + between

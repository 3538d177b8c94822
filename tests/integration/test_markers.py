"""Times that Kafka itself writes into a log, independent of its records.

`docs/guarantee.md` says what a reader of the ledger and of releases learns from them.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from hushstream.deploy.broker import Broker

pytestmark = pytest.mark.broker

MINUTE = 60_000
CONTROL = 0x20


def batches(data: bytes) -> Iterator[tuple[bool, int]]:
    """Batches of a segment, which a fetch returns unchanged: (is it a marker, its time)."""
    place = 0
    while place + 61 <= len(data):
        (length,) = struct.unpack_from(">i", data, place + 8)
        if length <= 0:
            return
        (attributes,) = struct.unpack_from(">h", data, place + 21)
        yield bool(attributes & CONTROL), struct.unpack_from(">q", data, place + 35)[0]
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
    (record, stated), (marker, moment) = found
    assert (record, stated) == (False, before // MINUTE * MINUTE)
    assert marker and before - 1000 <= moment <= int(time.time() * 1000) + 1000

    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic})
    reader.assign([TopicPartition(topic, 0, 0)])
    copied = reader.consume(2, 10)  # a copy consists of this: only the record
    reader.close()
    assert [one.timestamp()[1] for one in copied] == [stated]

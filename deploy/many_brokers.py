"""``python -m hushstream.deploy.many_brokers``: run once before starting many brokers."""

from __future__ import annotations

import tempfile
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from . import class_archive
from .broker import Broker, classpath_of_kafka
from .java import find_java, java_version
from .settings import JVM_FLAGS, BrokerNode

SECONDS = 60.0


def make_class_archive() -> Path | None:
    """Make the archive of classes for this user's brokers: use one, and record what it loads.

    An existing archive is kept. Returns None if Java is too old to make one. Raises `BrokerError`
    if Kafka or Java is missing, or Java made no archive.
    """
    java, classpath = find_java(), classpath_of_kafka(quiet=True)
    archive = class_archive.place(java, classpath)
    if archive.is_file():
        return archive
    if java_version(java) < class_archive.LEAST:
        return None
    with tempfile.TemporaryDirectory(prefix="hush-classes-") as folder:
        recorded = Path(folder) / "classes"
        node = BrokerNode(java_flags=class_archive.recording(recorded))
        with Broker(quiet=True, node=node) as running:
            _use(running.bootstrap)
            running.stop(timeout=SECONDS)  # Java writes the record when it ends
        return class_archive.make(java, JVM_FLAGS, classpath, recorded)


def _use(bootstrap: str) -> None:
    """Do once what deployments do: make a topic, write a transaction, read it in a group."""
    to: dict[str, str | int] = {"bootstrap.servers": bootstrap, "log_level": 0}
    topic, admin = "t", AdminClient(to)
    admin.create_topics([NewTopic(topic, 1)])[topic].result(SECONDS)
    producer = Producer({**to, "transactional.id": topic})
    consumer = Consumer({**to, "group.id": topic, "auto.offset.reset": "earliest"})
    try:
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
        producer.produce(topic, b"value", b"key")
        consumer.subscribe([topic])
        group = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, 0)], group, SECONDS)
        producer.commit_transaction(SECONDS)
        consumer.poll(SECONDS)
    finally:
        consumer.close()
    admin.delete_topics([topic])[topic].result(SECONDS)


if __name__ == "__main__":
    print(make_class_archive())

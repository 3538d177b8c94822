"""A topic is followed from the first needed record, past its end, and over a broker's restart."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from hushstream.deploy.broker import Broker
from hushstream.formats.events.decode import RawRecord
from hushstream.reading.live import tail as tail_module
from hushstream.reading.live.tail import Tail
from hushstream.topics.config.model import Kafka

HOUR = 3_600_000  # milliseconds
PATIENCE = 180.0


def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "the condition never became true"
        time.sleep(0.05)


class Seen:
    """Values that a tail passed on, and how often it began."""

    def __init__(self) -> None:
        self.values: list[bytes | None] = []
        self.begun = 0

    def begin(self) -> None:
        self.begun += 1
        self.values = []

    def take(self, records: list[RawRecord]) -> None:
        self.values += [record.value for record in records]


def create(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {"message.timestamp.after.max.ms": str((1 << 63) - 1), "retention.ms": "-1"}
    admin.create_topics([NewTopic(name, 2, 1, config=config)])[name].result(120)


def send(bootstrap: str, topic: str, *records: tuple[bytes, int]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for n, (value, at) in enumerate(records):
        producer.produce(topic, value, partition=n % 2, timestamp=at)
    assert producer.flush(120) == 0


@contextmanager
def tailed(bootstrap: str, topic: str, span: int | None = None) -> Iterator[tuple[Tail, Seen]]:
    seen = Seen()
    tail = Tail(Kafka(bootstrap=bootstrap), topic, seen.begin, seen.take, span)
    tail.start()
    try:
        yield tail, seen
    finally:
        tail.end()
        tail.join(150)
        assert not tail.is_alive()


def test_what_is_there_comes_then_what_follows(
    broker: Broker, unique: Callable[[str], str]
) -> None:
    topic = unique("tailed")
    with tailed(broker.bootstrap, topic) as (tail, seen):
        until(lambda: tail.trouble)
        assert tail.trouble == "there is no such topic" and not tail.caught_up.is_set()
        create(broker.bootstrap, topic)
        send(broker.bootstrap, topic, (b"1", HOUR), (b"2", HOUR))
        until(lambda: sorted(v or b"" for v in seen.values) == [b"1", b"2"])
        until(tail.caught_up.is_set)
        send(broker.bootstrap, topic, (b"3", HOUR))
        until(lambda: b"3" in seen.values)
        assert (seen.begun, tail.trouble) == (1, "")


def test_a_span_leaves_out_what_is_older_than_that(
    broker: Broker, unique: Callable[[str], str]
) -> None:
    topic = unique("tailed")
    create(broker.bootstrap, topic)
    times = {1: b"old", 2: b"old", 7: b"kept", 8: b"kept", 9: b"new"}
    send(broker.bootstrap, topic, *((value, hour * HOUR) for hour, value in times.items()))
    with tailed(broker.bootstrap, topic, 3 * HOUR * 1000) as (tail, seen):
        until(tail.caught_up.is_set)
        assert sorted(v or b"" for v in seen.values) == [b"kept", b"kept", b"new"]


def test_times_are_those_of_records_whatever_the_markers_of_transactions_say(
    broker: Broker, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_module, "LAST", 1)  # the last record is a marker, written today
    topic = unique("tailed")
    create(broker.bootstrap, topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions()
    for hour, value in {1: b"old", 7: b"kept", 9: b"new"}.items():
        producer.begin_transaction()
        for partition in range(2):
            producer.produce(topic, value, partition=partition, timestamp=hour * HOUR)
        producer.commit_transaction()
    producer.begin_transaction()  # aborted records were not released
    producer.produce(topic, b"aborted", partition=0, timestamp=8 * HOUR)
    producer.flush()
    producer.abort_transaction()
    with tailed(broker.bootstrap, topic, 3 * HOUR * 1000) as (tail, seen):
        until(tail.caught_up.is_set)
        assert sorted(v or b"" for v in seen.values) == [b"kept"] * 2 + [b"new"] * 2
    with tailed(broker.bootstrap, topic, 100 * HOUR * 1000) as (tail, seen):
        until(tail.caught_up.is_set)
        assert len(seen.values) == 6


@pytest.mark.thorough
@pytest.mark.slow
def test_a_restart_of_the_broker_loses_nothing(own_broker: Broker) -> None:
    create(own_broker.bootstrap, "tailed")
    send(own_broker.bootstrap, "tailed", (b"1", HOUR))
    with tailed(own_broker.bootstrap, "tailed") as (tail, seen):
        until(tail.caught_up.is_set)
        own_broker.kill()
        time.sleep(2)
        own_broker.start()
        send(own_broker.bootstrap, "tailed", (b"2", HOUR))
        until(lambda: b"2" in seen.values)
        assert sorted(set(seen.values), key=str) == [b"1", b"2"] and tail.is_alive()


def test_a_mistake_of_ours_is_told_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail_module, "AGAIN_SECONDS", 0.01)
    asked: list[int] = []

    def follow(self: Tail) -> None:
        asked.append(1)
        raise KeyError("x")

    monkeypatch.setattr(Tail, "_follow", follow)
    with tailed("127.0.0.1:1", "t") as (tail, _):
        until(lambda: len(asked) > 2)
        assert tail.is_alive() and tail.trouble == "this is a mistake of hush: KeyError: 'x'"

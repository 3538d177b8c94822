"""Internal topics are trimmed below what was applied one round before, and nowhere else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from aiokafka.consumer.fetcher import FetchError
from aiokafka.errors import KafkaConnectionError, OffsetOutOfRangeError
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from faust.types import TP
from hushstream.agents.kafka import transport, trim
from hushstream.agents.kafka.trim import Trimmer
from hushstream.deploy.broker import Broker
from hushstream.errors import EngineError, RewoundError
from hushstream.topics.config.model import Kafka

from ...support import messages

pytestmark = pytest.mark.broker


@pytest.fixture
def topic(broker: Broker, unique: Callable[[str], str]) -> str:
    name = unique("trimmed")
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    client.create_topics([NewTopic(name, 2, 1)])[name].result(120)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for n in range(20):
        producer.produce(name, b"%d" % n, partition=n % 2)
    assert producer.flush(120) == 0
    return name


class Rounds:
    """A trimmer whose rounds call `check` of this object.

    Args:
        kafka: the connection.
    """

    def __init__(self, kafka: Kafka) -> None:
        self.trimmer = Trimmer(kafka)
        self.error: BaseException | None = None
        self.checks = 0

    async def check(self) -> None:
        """Stand for a worker's check of the cluster's history."""
        self.checks += 1
        if self.error is not None:
            raise self.error

    def round(self, applied: dict[TP, int]) -> None:
        """Run one round."""
        asyncio.run(self.trimmer.round(applied, self.check))


def begins(broker: Broker, topic: str) -> list[int]:
    client = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "x"})
    found = [client.get_watermark_offsets(TopicPartition(topic, p), 20)[0] for p in (0, 1)]
    client.close()
    return found


def test_a_round_cuts_at_what_the_round_before_had_applied(broker, topic):
    trimmer = Rounds(Kafka(bootstrap=broker.bootstrap))
    trimmer.round({TP(topic, 0): 4, TP(topic, 1): 6})
    assert begins(broker, topic) == [0, 0]
    trimmer.round({TP(topic, 0): 9, TP(topic, 1): 6})
    assert begins(broker, topic) == [4, 6]
    trimmer.round({TP(topic, 0): 9})  # another worker has the other partition now
    assert begins(broker, topic) == [9, 6]
    trimmer.round({TP(topic, 0): 9, TP(topic, 1): 8})
    trimmer.round({TP(topic, 0): 9, TP(topic, 1): 9})
    assert begins(broker, topic) == [9, 8]


def test_nothing_is_cut_in_a_cluster_that_was_set_back_or_may_have_been(broker, topic):
    trimmer = Rounds(Kafka(bootstrap=broker.bootstrap))
    trimmer.round({TP(topic, 0): 4})
    assert trimmer.checks == 0  # there was nothing to trim
    trimmer.error = RewoundError("set back")
    with pytest.raises(RewoundError, match="set back"):
        trimmer.round({TP(topic, 0): 6})
    trimmer.error = KafkaConnectionError()  # the history is unknown, so the next round checks again
    trimmer.round({TP(topic, 0): 7})
    assert begins(broker, topic) == [0, 0] and trimmer.checks == 2
    trimmer.error = None
    trimmer.round({TP(topic, 0): 8})
    assert begins(broker, topic) == [7, 0] and trimmer.checks == 3


def test_a_topic_that_cannot_be_trimmed_is_only_reported(broker, topic, caplog):
    trimmer = Rounds(Kafka(bootstrap=broker.bootstrap))
    missing = TP("no-such-topic", 0)
    for _ in range(2):
        trimmer.round({missing: 3, TP(topic, 0): 5})
    assert begins(broker, topic) == [5, 0]
    assert "no-such-topic is not trimmed" in caplog.text and "DELETE" not in caplog.text


def test_an_outage_is_not_a_missing_right(caplog, monkeypatch):
    monkeypatch.setattr(trim, "PATIENCE_SECONDS", 1.0)
    trimmer = Rounds(Kafka(bootstrap="127.0.0.1:9"))
    for _ in range(2):
        trimmer.round({TP("t", 0): 3})
    assert messages(caplog.records) == []


def test_a_fetch_from_before_a_trim_is_no_loss_if_the_shard_stands_beyond_it():
    place = TP("t", 0)
    failed = FetchError(error=OffsetOutOfRangeError({TopicPartition("t", 0): 2}), backoff=0)
    gone = transport.Gone(patience=0.0)
    gone.check(failed, {place: 7})  # asked for the group, before the shard gave its position
    gone.check(failed, {})  # the shard is not open here either
    for wanted in ({place: 2}, {place: 1}):
        with pytest.raises(EngineError, match="restore it"):
            gone.check(failed, wanted)


def test_a_worker_that_was_overtaken_while_it_slept_has_time_to_hear_of_it(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(transport.time, "monotonic", lambda: now[0])
    doubted: list[TP] = []
    place, gone = TP("t", 0), transport.Gone(patience=30.0, doubt=doubted.append)

    def ask(position: int, seconds: float) -> None:
        now[0] += seconds
        error = OffsetOutOfRangeError({TopicPartition("t", 0): position})
        gone.check(FetchError(error=error, backoff=0), {place: position})

    ask(2, 0)
    ask(2, 9)
    assert doubted == []
    ask(2, 2)
    ask(2, 18)
    assert doubted == [place]  # the shard reopens once before the partition is given up
    ask(5, 10)  # it asks for another position; the missing records are no longer needed
    ask(5, 29)
    with pytest.raises(EngineError, match=r"gone: t-0; it was deleted"):  # no offset: it is a count
        ask(5, 2)
    ask(5, 31)  # time without questions, in an outage or asleep, does not count
    ask(5, 29)
    with pytest.raises(EngineError, match=r"gone: t-0; it was deleted"):
        ask(5, 2)

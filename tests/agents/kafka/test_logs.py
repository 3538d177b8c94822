"""Reading whole topics: if a leader is missing, ask again; if the log is trimmed, read on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hushstream.agents.kafka.logs as logs
import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from hushstream.deploy.broker import Broker
from hushstream.errors import EngineError, OutageError
from hushstream.topics.config.model import Kafka

PLACE = TopicPartition("t", 0)


class Answers:
    """A client that fails with each of some codes and then answers.

    None stands for an answer that is no error but has no offset.
    """

    def __init__(self, *codes: int | None) -> None:
        self.codes = list(codes)

    def get_watermark_offsets(self, place: Any, timeout: float) -> tuple[int, int]:
        if self.codes:
            if (code := self.codes.pop(0)) is None:
                return OFFSET_INVALID, OFFSET_INVALID
            raise KafkaException(KafkaError(code))
        return 3, 7


def test_a_partition_that_has_no_leader_yet_is_asked_again(monkeypatch):
    monkeypatch.setattr(logs.time, "sleep", lambda _: None)
    client = Answers(KafkaError.NOT_LEADER_FOR_PARTITION, None, KafkaError.LEADER_NOT_AVAILABLE)
    assert logs.watermarks(client, PLACE) == (3, 7)  # type: ignore[arg-type]


def test_other_errors_and_lasting_ones_name_the_topic(monkeypatch):
    with pytest.raises(EngineError, match="t cannot be read"):
        logs.watermarks(Answers(KafkaError.TOPIC_AUTHORIZATION_FAILED), PLACE)  # type: ignore[arg-type]
    monkeypatch.setattr(logs, "PATIENCE_SECONDS", -1.0)
    with pytest.raises(EngineError, match="t cannot be read"):
        logs.watermarks(Answers(KafkaError.NOT_LEADER_FOR_PARTITION), PLACE)  # type: ignore[arg-type]
    with pytest.raises(OutageError, match="t cannot be read"):
        logs.watermarks(Answers(None), PLACE)  # type: ignore[arg-type]


@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError._DESTROY_BROKER])
def test_a_broker_that_goes_while_it_is_asked_is_an_outage(code):
    """A start waits for it; otherwise it would end, as it did when a broker left the metadata."""
    with pytest.raises(OutageError, match="t cannot be read"):
        logs.watermarks(Answers(code), PLACE)  # type: ignore[arg-type]


@pytest.fixture
def topic(broker: Broker, unique: Callable[[str], str]) -> str:
    """Two partitions of ten records each; a client needs several fetches to read them."""
    name = unique("read")
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    client.create_topics([NewTopic(name, 2, 1)])[name].result(120)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for n in range(20):
        producer.produce(name, b"%04d" % n * 500, partition=n % 2)
        assert producer.flush(120) == 0
    return name


def trim(broker: Broker, topic: str, *before: int) -> None:
    places = [TopicPartition(topic, n, offset) for n, offset in enumerate(before)]
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    for answer in client.delete_records(places).values():
        answer.result(60)


def offsets(read: list[logs.PartitionLog]) -> list[tuple[int, list[int]]]:
    return [(log.begin, [record.offset for record in log.records]) for log in read]


@pytest.mark.broker
@pytest.mark.parametrize("before", [(7, 0), (10, 3)])
def test_a_topic_that_is_trimmed_before_its_first_record_came_begins_later(
    broker, topic, monkeypatch, before
):
    asked = []

    def trimming(client, place, watermarks=logs.watermarks):
        answer = watermarks(client, place)
        asked.append(place.partition)
        if len(asked) == 2:
            trim(broker, topic, *before)
        return answer

    monkeypatch.setattr(logs, "watermarks", trimming)
    read = logs.read_topic(Kafka(bootstrap=broker.bootstrap), topic, 2)
    assert offsets(read) == [(begin, list(range(begin, 10))) for begin in before]


@pytest.mark.broker
def test_records_before_those_that_went_while_they_were_read_are_left_out(
    broker, topic, monkeypatch
):
    """A log has no gaps: if it is trimmed past records that were read, these do not count."""
    few = {"queued.min.messages": 1, "fetch.message.max.bytes": 1000}
    monkeypatch.setattr(logs, "TOLD", 1)
    monkeypatch.setattr(
        logs, "consumer", lambda *all, made=logs.consumer, more=few: made(*all, more)
    )
    told = []

    def advance(records: int) -> None:
        told.append(records)
        if len(told) == 3:
            trim(broker, topic, 9, 9)

    read = logs.read_topic(Kafka(bootstrap=broker.bootstrap), topic, 2, advance=advance)
    assert offsets(read) == [(9, [9]), (9, [9])]
    assert len(told) > 5  # some records came before

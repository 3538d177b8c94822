"""`DescribeProducers` (KIP-664), which aiokafka lacks: the open transactions of a partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)
from aiokafka.structs import TopicPartition


class Traces(NamedTuple):
    """The newest epoch of one producer in a partition, and whether its transaction is open.

    ``epoch`` is the newest one in records or markers.
    """

    epoch: int
    open: bool  # it has records of an unfinished transaction


class _ProducersTold(Response):
    API_KEY = 61
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("topics", CompactArray(
            ("name", CompactString("utf-8")),
            ("partitions", CompactArray(
                ("partition", Int32), ("error_code", Int16),
                ("error_message", CompactString("utf-8")),
                ("producers", CompactArray(
                    ("producer_id", Int64), ("producer_epoch", Int32), ("last_sequence", Int32),
                    ("last_timestamp", Int64), ("coordinator_epoch", Int32),
                    ("start", Int64), ("tags", TaggedFields))),
                ("tags", TaggedFields))),
            ("tags", TaggedFields))),
        ("tags", TaggedFields),
    )  # fmt: skip


class _ProducersAsked(RequestStruct):
    API_KEY = 61
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _ProducersTold
    SCHEMA = Schema(
        ("topics", CompactArray(
            ("name", CompactString("utf-8")), ("partitions", CompactArray(Int32)),
            ("tags", TaggedFields))),
        ("tags", TaggedFields),
    )  # fmt: skip


class _Describe(Request[_ProducersAsked]):
    API_KEY = 61

    def __init__(self, places: Iterable[TopicPartition]) -> None:
        topics: dict[str, list[int]] = {}
        for place in places:
            topics.setdefault(place.topic, []).append(place.partition)
        self._topics: list[Any] = [(name, numbers, {}) for name, numbers in topics.items()]

    def build(self, request_struct_class: type[_ProducersAsked]) -> _ProducersAsked:
        return request_struct_class(self._topics, {})


async def describe(
    client: Any, node: int, places: Iterable[TopicPartition], producer_id: int
) -> Mapping[TopicPartition, Traces | int]:
    """Ask the leader of partitions for their traces of a producer.

    Returns:
        For each partition, the traces of the producer, or an error code; partitions without traces
        are left out.

    Raises:
        IncompatibleBrokerVersion: the broker is older than Kafka 2.8.
    """
    answer = await client.send(node, _Describe(places))
    found: dict[TopicPartition, Traces | int] = {}
    for topic, partitions, _ in answer.topics:
        for number, error, _, producers, _ in partitions:
            place = TopicPartition(topic, number)
            if error:
                found[place] = error
            for one, epoch, _, _, _, start, _ in producers:
                if one == producer_id:
                    found[place] = Traces(epoch, start >= 0)
    return found

"""The last committed marker of a shard, from the end of its changelog backwards."""

from __future__ import annotations

from collections.abc import Mapping

import aiokafka
from aiokafka.structs import TopicPartition

from ...topics.config.model import Kafka
from ...topics.records import Marker, decode_marker
from ..state.layout import MARKER
from .clients import consumer, stop_quietly

TAIL = 64  # records in which the last marker is looked for first


async def last_marker(kafka: Kafka, changelog: str, partition: int) -> Marker | None:
    """The last committed marker of a changelog partition; None before the first."""
    client = consumer(kafka)
    await client.start()
    try:
        return await _last(client, TopicPartition(changelog, partition))
    finally:
        await stop_quietly(client)


async def last_markers(
    kafka: Kafka, changelogs: Mapping[str, int]
) -> dict[str, list[Marker | None]]:
    """Last committed markers of all partitions of changelogs, given their numbers."""
    client = consumer(kafka)
    await client.start()
    try:
        return {
            topic: [await _last(client, TopicPartition(topic, n)) for n in range(partitions)]
            for topic, partitions in changelogs.items()
        }
    finally:
        await stop_quietly(client)


async def _last(client: aiokafka.AIOKafkaConsumer, tp: TopicPartition) -> Marker | None:
    """Every transaction of a shard ends with its marker, so one is among the last records."""
    client.assign([tp])
    begin = (await client.beginning_offsets([tp]))[tp]
    end = (await client.end_offsets([tp]))[tp]
    back = TAIL
    while True:
        start = max(begin, end - back)
        row = await _marker_row(client, tp, start, end)
        if row is not None:
            return decode_marker(row)
        if start == begin:
            return None
        back *= 64


async def _marker_row(
    client: aiokafka.AIOKafkaConsumer, tp: TopicPartition, start: int, end: int
) -> bytes | None:
    """The last marker at or above an offset."""
    client.seek(tp, start)
    row: bytes | None = None
    while await client.position(tp) < end:
        for record in (await client.getmany(tp, timeout_ms=200)).get(tp, []):
            row = record.value if record.key == MARKER else row
    return row

"""Committed markers of a shard in its changelog: the last one, and those beside a position."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import aiokafka
from aiokafka.structs import TopicPartition

from ...topics.config.model import Kafka
from ...topics.records import Marker, decode_marker
from ..state.layout import MARKER
from .clients import backwards, read_span, reader

TAIL = 64  # records in which the last marker is looked for first


class Sought(NamedTuple):
    """Answer of a changelog partition about a marker, where it was met before."""

    last: Marker | None  # the last committed marker of the partition; None: it has none
    found: bool  # whether the one that is looked for is there
    before: bool  # whether any lies below the place
    aborted: bool = False  # whether the next one says that its transaction was aborted


async def seek_marker(
    kafka: Kafka, changelog: str, partition: int, position: int, marker: Marker
) -> Sought:
    """Look for a committed marker beside a position of a changelog partition.

    Args:
        position: a table's position, not beyond the end. Its marker is the last one below it or,
            after a step of its own, the first one at or above it.
    """
    tp = TopicPartition(changelog, partition)
    async with reader(kafka) as client:
        last = await _last(client, tp)
        if last == marker:  # the usual case: nothing was written since
            return Sought(last, True, True)
        before = await _last(client, tp, position)
        after = await _first(client, tp, position)
        aborted = after is not None and tells_aborted(after, marker)
        return Sought(last, marker in (before, after), before is not None, aborted)


def tells_aborted(after: Marker, marker: Marker) -> bool:
    """Whether a marker tells that the transaction of another one was aborted before it."""
    return bool(marker.transaction) and after.aborted == marker.transaction


async def hanging_marker(kafka: Kafka, changelog: str, partition: int) -> Marker | None:
    """The marker with which a changelog partition ends behind its last stable offset, if any.

    Then all rows of the transaction that hangs there are in the partition.
    """
    tp = TopicPartition(changelog, partition)
    async with reader(kafka) as client:
        stable = (await client.end_offsets([tp]))[tp]
    last: Marker | None = None
    async with reader(kafka, committed=False) as client:
        client.assign([tp])
        end = (await client.end_offsets([tp]))[tp]
        async for records, _ in read_span(client, tp, stable, end):
            for record in records:
                last = decode_marker(record.value) if record.key == MARKER else None
    return last


async def last_markers(
    kafka: Kafka, changelogs: Mapping[str, int], place: Callable[[str, int], tuple[str, int]]
) -> dict[str, list[Marker | None]]:
    """Last committed markers of all partitions of changelogs, given their numbers.

    ``place`` tells where a partition lies on the cluster.
    """
    async with reader(kafka) as client:
        return {
            topic: [
                await _last(client, TopicPartition(*place(topic, n))) for n in range(partitions)
            ]
            for topic, partitions in changelogs.items()
        }


async def _last(
    client: aiokafka.AIOKafkaConsumer, tp: TopicPartition, end: int | None = None
) -> Marker | None:
    """The last one below ``end``.

    Every transaction of a shard ends with its marker, so one is among the last records.
    """
    client.assign([tp])
    begin = (await client.beginning_offsets([tp]))[tp]
    if end is None:
        end = (await client.end_offsets([tp]))[tp]
    for start in backwards(begin, end, TAIL, 64):
        if (row := await _marker_row(client, tp, start, end)) is not None:
            return decode_marker(row)
    return None


async def _first(
    client: aiokafka.AIOKafkaConsumer, tp: TopicPartition, start: int
) -> Marker | None:
    """The first one at or above an offset."""
    begin = (await client.beginning_offsets([tp]))[tp]
    end = (await client.end_offsets([tp]))[tp]
    async for records, _ in read_span(client, tp, max(start, begin), end):
        for record in records:
            if record.key == MARKER:
                return decode_marker(record.value)
    return None


async def _marker_row(
    client: aiokafka.AIOKafkaConsumer, tp: TopicPartition, start: int, end: int
) -> bytes | None:
    """The last marker at or above an offset and below another."""
    row: bytes | None = None
    async for records, _ in read_span(client, tp, start, end):
        for record in records:
            row = record.value if record.key == MARKER and record.offset < end else row
    return row

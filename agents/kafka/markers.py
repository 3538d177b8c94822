"""Committed markers of a shard in its changelog: the last one, and those around a position."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import aiokafka
from aiokafka.structs import TopicPartition

from ...topics.config.model import Kafka
from ...topics.records import Marker, decode_marker
from ..state.layout import MARKER
from .clients import backwards, read_span, reader

TAIL = 64  # records that are searched first for the last marker


class Sought(NamedTuple):
    """The result of a search for a marker in a changelog partition."""

    last: Marker | None  # the last committed marker of the partition; None: it has none
    found: bool  # whether the wanted marker is there
    before: bool  # whether any marker lies below the position
    aborted: bool = False  # whether a later marker shows that its transaction was aborted


async def seek_marker(
    kafka: Kafka, changelog: str, partition: int, position: int, marker: Marker
) -> Sought:
    """Search for a committed marker around a position of a changelog partition.

    Args:
        position: position of a table, not beyond the end. The table's marker is the last one below
            it or, after a step of its own, the first one at or above it.
    """
    tp = TopicPartition(changelog, partition)
    async with reader(kafka) as client:
        last = await _last(client, tp)
        if last == marker:  # the usual case: nothing was written after it
            return Sought(last, True, True)
        # In this order: compaction meanwhile may delete the marker, but those before it first.
        after = await _first(client, tp, position)
        before = await _last(client, tp, position)
        aborted = after is not None and tells_aborted(after, marker)
        return Sought(last, marker in (before, after), before is not None, aborted)


async def continues(
    client: aiokafka.AIOKafkaConsumer, tp: TopicPartition, position: int, marker: Marker | None
) -> bool:
    """Whether a marker is the last one below a position of a changelog partition.

    Otherwise the partition was rewound and has grown again, or compaction has deleted the marker.

    Args:
        marker: last marker that was read below the position; None: none was read.
    """
    return await _last(client, tp, position) == marker


def tells_aborted(after: Marker, marker: Marker) -> bool:
    """Whether a marker shows that the transaction of an earlier marker was aborted."""
    return bool(marker.transaction) and after.aborted == marker.transaction


async def hanging_marker(kafka: Kafka, changelog: str, partition: int) -> Marker | None:
    """Read the last marker beyond the last stable offset of a changelog partition, if there is one.

    If there is, the partition has all rows of the hanging transaction.
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
    """Read the last committed markers of all partitions of changelogs.

    ``place`` maps a partition to its topic and number on the cluster.
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
    """Find the last marker below ``end``.

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
    """Find the first marker at or above an offset."""
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
    """Find the last marker between two offsets."""
    row: bytes | None = None
    async for records, _ in read_span(client, tp, start, end):
        for record in records:
            row = record.value if record.key == MARKER and record.offset < end else row
    return row

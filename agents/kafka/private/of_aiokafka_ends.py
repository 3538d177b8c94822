"""The end of a transaction in a partition: its control record, which aiokafka skips."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from aiokafka.errors import for_code
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.structs import TopicPartition

from ..batches.header import SIZE, BatchHeader, end_of

TAIL = 2_000  # last offsets of a partition that are searched
_MOST = 4 << 20  # bytes of one fetch
_WAIT = 500  # milliseconds
_EARLIEST, _LATEST = -2, -1
_CONTROL = 0x20  # bit of a batch's attributes
_KEY = struct.Struct(">hh")  # version and type of a control record
_TYPES = {0: False, 1: True}  # abort, commit


async def committed(
    client: Any, node: int, place: TopicPartition, producer_id: int, epoch: int
) -> bool | None:
    """Whether a producer's transaction was committed, by the marker with that epoch.

    Returns:
        None if the marker is not among the last `TAIL` offsets of the partition.

    Raises:
        KafkaError: the broker refuses, or does not answer.
    """
    from ..batches.scan import scan  # here: a compiler takes long to load

    begin, end = [await _offset(client, node, place, which) for which in (_EARLIEST, _LATEST)]
    at = max(begin, end - TAIL)
    while at < end:
        data = await _fetched(client, node, place, at)
        before = at
        for batch in _batches(data):
            head = BatchHeader.of(batch)
            at = head.base + head.last + 1
            if head.attributes & _CONTROL and (head.producer, head.epoch) == (producer_id, epoch):
                return _TYPES.get(_KEY.unpack_from(scan(batch)[0].key or b"\0\0\0\2")[1])
        if at == before:
            return None
    return None


def _batches(data: bytes) -> Iterator[memoryview]:
    """Yield the whole batches of a fetch, which may end with a part of one."""
    begin, view = 0, memoryview(data)
    while begin + SIZE <= len(data) and (end := end_of(data, begin)) <= len(data):
        yield view[begin:end]
        begin = end


async def _offset(client: Any, node: int, place: TopicPartition, which: int) -> int:
    asked = OffsetRequest(-1, 0, [(place.topic, [(place.partition, which)])])
    answer = await client.send(node, asked)
    ((_, ((_, error, *_, offset),)),) = answer.topics
    if error:
        raise for_code(error)(f"{place.topic}-{place.partition}")
    return int(offset)


async def _fetched(client: Any, node: int, place: TopicPartition, at: int) -> bytes:
    asked = FetchRequest(_WAIT, 1, _MOST, 0, [(place.topic, [(place.partition, at, _MOST)])])
    answer = await client.send(node, asked)
    ((_, ((_, error, *_, data),)),) = answer.topics
    if error:
        raise for_code(error)(f"{place.topic}-{place.partition}")
    return bytes(data or b"")

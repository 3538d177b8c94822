"""Parses batches whatever a producer put into them, within limits.

To a broker, the name of a header is bytes. aiokafka decodes it as UTF-8 and gives up the whole
fetch if that fails, so one such record would stop its partition for ever. Here, such a record is
read without its headers, which carry no event; all others are read normally. Similarly, the
attributes of a record are one byte without a meaning so far, so brokers accept any value. aiokafka
reads a varint there, which may be longer, and would misread everything after it. Compressed batches
come from `inflated`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecord, DefaultRecordBatch
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import decode_varint

from ....formats.events.raw import RawChunk
from ..private.of_aiokafka import opened, read_batches_with
from .header import CODEC, SIZE, BatchHeader, end_of
from .inflated import Allowed, portions

_VERSION = 2  # earlier formats have no headers


class TolerantBatches:
    """The batches of one fetched partition, as aiokafka iterates over them.

    Attributes:
        reading: limits of the partition, set by the caller that takes records.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._begin = 0
        self._batches = MemoryRecords(data)
        self.reading = Allowed()

    def size_in_bytes(self) -> int:
        """Bytes fetched, including an incomplete batch."""
        return len(self._data)

    def has_next(self) -> bool:
        """Whether there is another whole batch."""
        return bool(self._batches.has_next())

    def next_batch(self) -> Any:
        """The next batch, or None."""
        batch = self._batches.next_batch()
        if batch is None:
            return None
        begin = self._begin
        self._begin = end_of(self._data, begin)
        if getattr(batch, "magic", 0) < _VERSION:  # the first formats lack this attribute
            return batch
        return TolerantBatch(batch, memoryview(self._data)[begin : self._begin], self.reading)


class TolerantBatch:
    """A batch, parsed by aiokafka; if that fails, record by record."""

    def __init__(self, batch: Any, data: memoryview, reading: Allowed) -> None:
        self._batch = batch
        self._data = data
        self._reading = reading
        for name in ("producer_id", "base_offset", "next_offset"):
            setattr(self, name, getattr(batch, name))
        self.is_control_batch = batch.is_control_batch
        self.is_transactional = batch.is_transactional
        self.validate_crc = batch.validate_crc

    def __next__(self) -> Any:  # aiokafka calls this for control batches only
        return next(self._batch)

    def __iter__(self) -> Iterator[Any]:
        codec = BatchHeader.of(self._data).attributes & CODEC
        if codec:
            return self._inflated(codec)
        return self._read(self._batch, self._data)

    def _read(self, batch: Any, data: memoryview) -> Iterator[Any]:
        return _chunk(data) if self._reading.columns else _records(batch, data)

    def _inflated(self, codec: int) -> Iterator[Any]:
        for portion in portions(self._data, codec, self._reading):
            if isinstance(portion, bytes):
                yield from self._read(DefaultRecordBatch(portion), memoryview(portion))
            else:
                yield portion


def _chunk(data: memoryview) -> Iterator[RawChunk]:
    """Yield all records of an uncompressed batch, as arrays."""
    from .scan import scan

    records = scan(data)
    if len(records):
        yield RawChunk(int(records.offset[-1]), records, records.size)


def _records(batch: Any, data: memoryview) -> Iterator[Any]:
    """Iterate over the records of an uncompressed batch."""
    if not _ordinary(data):
        return patiently(data)
    try:
        return iter(list(batch))  # as a list: a generator would cost more than parsing
    except UnicodeDecodeError:
        return patiently(data)


def _ordinary(data: memoryview) -> bool:
    """Whether all records have attributes 0 and lie within the batch."""
    place, end = SIZE, len(data)
    for _ in range(BatchHeader.of(data).records):
        if place >= end:
            return False
        length, place = decode_varint(data, place)
        if length < 1 or place + length > end or data[place]:
            return False
        place += length
    return True


def patiently(data: memoryview) -> Iterator[Any]:
    """Parse records one by one; a record with a header name that is not UTF-8 loses all headers.

    Raises:
        CorruptRecordException: the records contradict the batch.
    """
    batch, buffer, place, number = opened(data)
    found = []
    try:
        for _ in range(number):
            length, place = decode_varint(buffer, place)
            record, end = _record(batch, buffer, place)
            if end != place + length:
                raise CorruptRecordException("a record does not end where it should")
            found.append(record)
            place = end
    except IndexError:
        raise CorruptRecordException("a record ends after its batch") from None
    if place != len(buffer):
        raise CorruptRecordException("a batch goes on after its last record")
    return iter(found)


def _record(batch: Any, buffer: bytearray, place: int) -> tuple[Any, int]:
    """Read a record; return it and the place where it ends."""
    later, place = decode_varint(buffer, place + 1)  # after the attributes
    offset, place = decode_varint(buffer, place)
    key, place = _bytes(buffer, place)
    value, place = _bytes(buffer, place)
    kind = batch.timestamp_type
    appended = kind == batch.LOG_APPEND_TIME
    stamp = batch.max_timestamp if appended else batch.first_timestamp + later
    headers, place = _headers(buffer, place)
    return DefaultRecord(batch.base_offset + offset, stamp, kind, key, value, headers), place


def _headers(buffer: bytearray, place: int) -> tuple[list[tuple[str, bytes | None]], int]:
    """Read headers, none if a name is not UTF-8; return them and the place where they end."""
    found: list[tuple[str, bytes | None]] = []
    texts = True
    count, place = decode_varint(buffer, place)
    if count < 0:
        raise CorruptRecordException("a record has fewer than no headers")
    for _ in range(count):
        name, place = _bytes(buffer, place)
        value, place = _bytes(buffer, place)
        if name is None:
            raise CorruptRecordException("a header has no name")
        try:
            found.append((name.decode(), value))
        except UnicodeDecodeError:
            texts = False
    return found if texts else [], place


def _bytes(buffer: bytearray, place: int) -> tuple[bytes | None, int]:
    length, place = decode_varint(buffer, place)
    if length < 0:
        return None, place
    if place + length > len(buffer):
        raise CorruptRecordException("a record ends after its batch")
    return bytes(buffer[place : place + length]), place + length


def install() -> None:
    """Make every consumer of this process read batches in this way."""
    read_batches_with(TolerantBatches)

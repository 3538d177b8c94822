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
from typing import TYPE_CHECKING, Any

from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecord, DefaultRecordBatch
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import decode_varint

from ....formats.events.raw import RawChunk
from ..private.of_aiokafka import opened, read_batches_with
from .header import CODEC, OVERHEAD, SIZE, BatchHeader, end_of
from .inflated import Allowed, portions

if TYPE_CHECKING:
    from .scan import Adjacent

_VERSION = 2  # earlier formats have no headers
_SMALLEST = 26  # bytes of a batch of any format


class TolerantBatches:
    """The batches of one fetched partition, as aiokafka iterates over them.

    Where records are read into arrays, adjacent batches that need nothing else come as one: a
    producer with many partitions writes batches of a record or two, each of which would cost as
    much as a hundred records.

    Attributes:
        reading: limits of the partition, set by the caller that takes records.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._begin = 0
        self.reading = Allowed()

    def size_in_bytes(self) -> int:
        """Bytes fetched, including an incomplete batch."""
        return len(self._data)

    def has_next(self) -> bool:
        """Whether there is another whole batch."""
        left = len(self._data) - self._begin
        return left >= OVERHEAD and end_of(self._data, self._begin) <= len(self._data)

    def next_batch(self) -> Any:
        """The next batch, or a run of them, or None.

        Raises:
            CorruptRecordException: it is shorter than any batch.
        """
        if not self.has_next():
            return None
        if self.reading.columns and (run := self._run()) is not None:
            return run
        begin, self._begin = self._begin, end_of(self._data, self._begin)
        if self._begin - begin < _SMALLEST:
            raise CorruptRecordException("a batch that is shorter than its header")
        data = self._data[begin : self._begin]
        batch = MemoryRecords(data).next_batch()
        if getattr(batch, "magic", 0) < _VERSION:  # the first formats lack this attribute
            return batch
        return TolerantBatch(batch, memoryview(data), self.reading)

    def _run(self) -> AdjacentBatches | None:
        from .scan import scan_run

        run = scan_run(self._data, self._begin)
        if run is None:
            return None
        self._begin = run.end
        return AdjacentBatches(run)


class AdjacentBatches:
    """Adjacent batches in place of one; their checksums have been compared."""

    producer_id = None  # outside any transaction
    is_control_batch = is_transactional = False

    def __init__(self, run: Adjacent) -> None:
        self.base_offset, self.next_offset = run.base_offset, run.next_offset
        self._records = run.records

    def validate_crc(self) -> bool:
        """True: a run holds no other batches."""
        return True

    def __iter__(self) -> Iterator[RawChunk]:
        yield RawChunk(int(self._records.offset[-1]), self._records, self._records.size)


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

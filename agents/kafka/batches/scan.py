"""A compiled parser of uncompressed record batches into arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from aiokafka.errors import CorruptRecordException
from aiokafka.record.util import calc_crc32c
from numpy.typing import NDArray

from ....compiled import compiled
from ....formats.events.raw import RawBatch
from .header import APPENDED, CHECKED_FROM, OVERHEAD, SIZE, BatchHeader

RUN = 1 << 17  # bytes of adjacent batches that are read at once
_BATCHES = RUN // SIZE


@compiled
def _varint(data: NDArray[np.uint8], at: int, end: int) -> tuple[int, int]:
    """Read a zigzag number; return it and the place after it, -1 if the number is incomplete."""
    value, shift = np.uint64(0), np.uint64(0)
    while at < end and shift < np.uint64(64):
        byte = np.uint64(data[at])
        at += 1
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            half = np.int64(value >> np.uint64(1))
            return int(-half - 1 if value & np.uint64(1) else half), at
        shift += np.uint64(7)
    return 0, -1


@compiled
def _scan(
    data: NDArray[np.uint8], at: int, end: int, base: int, first: int, append: int,
    out: NDArray[np.int64],
) -> bool:  # fmt: skip
    """Read records in [at, end) into the columns of a `RawBatch`; False if they are incomplete."""
    for row in range(out.shape[1]):
        length, at = _varint(data, at, end)
        last = at + length
        if at < 0 or length < 0 or last > end:
            return False
        later, at = _varint(data, at + 1, last)  # after the attributes
        if at < 0:
            return False
        offset, at = _varint(data, at, last)
        if at < 0:
            return False
        out[0, row] = base + offset
        out[1, row] = append if append >= 0 else first + later
        for column in (2, 4):
            length, at = _varint(data, at, last)
            if at < 0 or at + length > last:
                return False
            out[column, row] = -1 if length < 0 else at
            out[column + 1, row] = -1 if length < 0 else at + length
            at += max(length, 0)
        out[6, row] = at
        count, at = _varint(data, at, last)
        if at < 0 or count < 0:
            return False
        for place in range(2 * count):
            length, at = _varint(data, at, last)
            if at < 0 or at + length > last or (length < 0 and place % 2 == 0):
                return False  # a header's value may be null, but not its name
            at += max(length, 0)
        if at != last:
            return False
        out[7, row] = last
    return bool(at == end)


def scan(data: memoryview) -> RawBatch:
    """Parse an uncompressed batch, from its base offset on.

    Raises:
        CorruptRecordException: the records contradict the header.
    """
    head = BatchHeader.of(data)
    if not 0 <= head.records <= len(data):
        raise CorruptRecordException("a batch with an impossible number of records")
    buffer, out = np.frombuffer(data, np.uint8), np.empty((8, head.records), np.int64)
    append = head.latest_time if head.attributes & APPENDED else -1
    if not _scan(buffer, SIZE, len(buffer), head.base, head.first_time, append, out):
        raise CorruptRecordException("a record does not end where it should")
    return RawBatch(buffer, *out)


class Adjacent(NamedTuple):
    """Adjacent batches that are read at once.

    ``base_offset`` is of the first record, and ``next_offset`` follows the last batch. ``end`` is
    the place after it.
    """

    records: RawBatch
    base_offset: int
    next_offset: int
    end: int


@compiled
def _number(data: NDArray[np.uint8], at: int, size: int) -> int:
    """Read a number of ``size`` bytes as a header stores it."""
    value = np.int64(-1 if data[at] >= np.uint8(0x80) else 0)
    for place in range(at, at + size):
        value = (value << np.int64(8)) | np.int64(data[place])
    return int(value)


@compiled
def _plain(
    data: NDArray[np.uint8], at: int, most: int, ends: NDArray[np.int64], rows: NDArray[np.int64]
) -> int:
    """Find adjacent batches that hold nothing but records as they are; return their number.

    Writes the end of each and the number of its records; they take at most ``most`` bytes.
    """
    last = min(len(data), at + most)
    for n in range(len(ends)):
        if at + SIZE > last:
            return n
        end = at + OVERHEAD + _number(data, at + 8, 4)
        count = _number(data, at + 57, 4)
        usual = data[at + 16] == 2 and _number(data, at + 21, 2) in (0, APPENDED)
        if not usual or end > last or not 0 < count <= end - at - SIZE:
            return n
        ends[n], rows[n], at = end, count, end
    return len(ends)


@compiled
def _scan_run(
    data: NDArray[np.uint8], at: int, ends: NDArray[np.int64], rows: NDArray[np.int64],
    out: NDArray[np.int64],
) -> int:  # fmt: skip
    """Read batches into the columns of a `RawBatch`; return the number of the complete ones."""
    row = 0
    for n in range(len(ends)):
        append = _number(data, at + 35, 8) if data[at + 22] & APPENDED else -1
        base, first = _number(data, at, 8), _number(data, at + 27, 8)
        part = out[:, row : row + rows[n]]
        if not _scan(data, at + SIZE, ends[n], base, first, append, part):
            return n
        at, row = ends[n], row + rows[n]
    return len(ends)


def scan_run(data: bytes, begin: int) -> Adjacent | None:
    """Parse adjacent batches from ``begin`` on, up to about `RUN` bytes.

    A run holds uncompressed batches of format 2, outside transactions, whose checksums and records
    are right. It ends before any other, which is left to be read alone. None: there are fewer than
    two.
    """
    buffer = np.frombuffer(data, np.uint8)
    ends, rows = np.empty((2, _BATCHES), np.int64)
    number = _plain(buffer, begin, RUN, ends, rows)
    if number > 1:
        number = _checked(data, begin, ends[:number].tolist())
    if number < 2:
        return None
    out = np.empty((8, int(rows[:number].sum())), np.int64)
    number = _scan_run(buffer, begin, ends[:number], rows[:number], out)
    if number < 2:
        return None
    last = BatchHeader.of(memoryview(data)[int(ends[number - 2]) :])
    records = RawBatch(buffer, *out[:, : rows[:number].sum()])
    first = BatchHeader.of(memoryview(data)[begin:])
    return Adjacent(records, first.base, last.base + last.last + 1, int(ends[number - 1]))


def _checked(data: bytes, begin: int, ends: list[int]) -> int:
    """Count the batches before the first one whose checksum is wrong."""
    view = memoryview(data)
    for n, end in enumerate(ends):
        stored = view[begin + CHECKED_FROM - 4 : begin + CHECKED_FROM]
        if calc_crc32c(view[begin + CHECKED_FROM : end]) != int.from_bytes(stored, "big"):
            return n
        begin = end
    return len(ends)

"""A compiled parser of uncompressed record batches into arrays."""

from __future__ import annotations

import numpy as np
from aiokafka.errors import CorruptRecordException
from numpy.typing import NDArray

from ....compiled import compiled
from ....formats.events.raw import RawBatch
from .header import APPENDED, SIZE, BatchHeader


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
    data: NDArray[np.uint8], base: int, first: int, append: int, out: NDArray[np.int64]
) -> bool:
    """Read records into the columns of a `RawBatch`; False if they are incomplete."""
    at, end = SIZE, len(data)
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
    if not _scan(buffer, head.base, head.first_time, append, out):
        raise CorruptRecordException("a record does not end where it should")
    return RawBatch(buffer, *out)

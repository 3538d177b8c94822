"""Raw records: one at a time, or many in one buffer with arrays of their places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from ..bytes_in import Bytes

I64 = NDArray[np.int64]
WIDTH = 72  # bytes of the arrays for one record


class RawRecord(NamedTuple):
    """One record of a raw topic."""

    offset: int
    timestamp: int  # milliseconds
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


class RawBatch(Sequence[RawRecord]):
    """n records in one buffer; a record object is made only on access.

    Attributes:
        data: the buffer.
        offset, timestamp: (n,).
        key, key_end: (n,) bounds of each key; -1: none.
        value, value_end: (n,) bounds of each value; -1: none.
        headers: (n,) place of the number of headers.
        end: (n,) end of each record.
    """

    __slots__ = (
        "data", "end", "headers", "key", "key_end", "offset", "timestamp", "value", "value_end",
    )  # fmt: skip

    def __init__(
        self, data: NDArray[np.uint8], offset: I64, timestamp: I64, key: I64, key_end: I64,
        value: I64, value_end: I64, headers: I64, end: I64,
    ) -> None:  # fmt: skip
        self.data = data
        self.offset, self.timestamp = offset, timestamp
        self.key, self.key_end, self.value, self.value_end = key, key_end, value, value_end
        self.headers, self.end = headers, end

    def __len__(self) -> int:
        return len(self.offset)

    @overload
    def __getitem__(self, row: int) -> RawRecord: ...
    @overload
    def __getitem__(self, row: slice) -> RawBatch: ...
    def __getitem__(self, row: int | slice) -> RawRecord | RawBatch:
        if isinstance(row, slice):
            return RawBatch(self.data, *(column[row] for column in self._columns()))
        return RawRecord(
            int(self.offset[row]),
            int(self.timestamp[row]),
            self._bytes(int(self.key[row]), int(self.key_end[row])),
            self._bytes(int(self.value[row]), int(self.value_end[row])),
            _headers(self.data[int(self.headers[row]) : int(self.end[row])].tobytes()),
        )

    def _bytes(self, begin: int, end: int) -> bytes | None:
        return None if begin < 0 else self.data[begin:end].tobytes()

    def _columns(self) -> tuple[I64, ...]:
        return (self.offset, self.timestamp, self.key, self.key_end, self.value, self.value_end,
                self.headers, self.end)  # fmt: skip

    @property
    def size(self) -> int:
        """Bytes that the records need, without the rest of a larger buffer."""
        low, high = self._span()
        return high - low + WIDTH * len(self)

    def _span(self) -> tuple[int, int]:
        """Begin and end of the part of the buffer that belongs to these records."""
        if len(self) == 0:
            return 0, 0
        places = (self.key[0], self.value[0], self.headers[0])
        return int(min(place for place in places if place >= 0)), int(self.end[-1])

    @staticmethod
    def joined(parts: Sequence[RawBatch]) -> RawBatch:
        """Concatenate batches in a buffer that holds nothing else."""
        spans = [part._span() for part in parts]
        data = [part.data[low:high] for part, (low, high) in zip(parts, spans, strict=True)]
        columns = np.empty((8, sum(map(len, parts))), np.int64)
        row = begin = 0
        for part, (low, high) in zip(parts, spans, strict=True):
            part._moved(begin - low, columns[:, row : row + len(part)])
            row, begin = row + len(part), begin + high - low
        return RawBatch(np.concatenate(data), *columns)

    def _moved(self, by: int, out: I64) -> None:
        """Write all columns, with places moved by ``by`` bytes."""
        out[0], out[1] = self.offset, self.timestamp
        for place, row in zip(self._columns()[2:], out[2:], strict=True):
            np.add(place, by, out=row)
        for place, row in zip(self._columns()[2:6], out[2:6], strict=True):
            np.copyto(row, place, where=place < 0)  # missing keys and values


class RawChunk(NamedTuple):
    """Many records in place of one."""

    offset: int  # of the last record; the fetcher continues after it
    records: RawBatch  # in order
    size: int  # bytes that they take


def offsets_of(records: Sequence[RawRecord]) -> I64:
    """(n,) offsets."""
    if isinstance(records, RawBatch):
        return records.offset
    return np.fromiter((r.offset for r in records), np.int64, len(records))


def timestamps_of(records: Sequence[RawRecord]) -> I64:
    """(n,) timestamps in milliseconds."""
    if isinstance(records, RawBatch):
        return records.timestamp
    return np.fromiter((r.timestamp for r in records), np.int64, len(records))


def _headers(stored: bytes) -> tuple[tuple[str, bytes], ...]:
    """Headers as a record stores them; none if one of their names is not UTF-8."""
    data = Bytes(stored, 0, len(stored))
    found = [(_sized(data), _sized(data)) for _ in range(data.zigzag())]
    try:
        return tuple(((name or b"").decode(), value) for name, value in found)  # type: ignore[misc]
    except UnicodeDecodeError:
        return ()


def _sized(data: Bytes) -> bytes | None:
    length = data.zigzag()
    return None if length < 0 else data.take(length)

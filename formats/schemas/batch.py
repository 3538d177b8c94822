"""Payloads of many records side by side, read column by column instead of record by record.

A reader takes the same step of the schema in all records at once, so they share its cost. A record
whose bytes do not fit becomes bad and is skipped from then on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...mechanisms.columns import I64

Rows = NDArray[np.intp]
U64 = NDArray[np.uint64]

PAD = 16  # bytes after the last payload: reading a number may look past its end
FAR = 1 << 40  # a length that no payload has


class FieldColumn:
    """Values of one field by record.

    Attributes:
        values: one for each record; None where there is none.
        wrong: reason by row, for unusable values.
    """

    def __init__(self, size: int) -> None:
        self.values: list[Any] = [None] * size
        self.wrong: dict[int, str] = {}

    def put(self, rows: Rows, values: list[Any]) -> None:
        """Set the values of some rows."""
        if len(values) == len(self.values):  # rows are distinct and in order: all of them
            self.values = values
            self.wrong.clear()
            return
        mine = self.values
        for row, value in zip(rows.tolist(), values, strict=True):
            mine[row] = value
        if self.wrong:
            for row in rows.tolist():
                self.wrong.pop(row, None)

    def put_one(self, row: int, value: Any) -> None:
        self.values[row] = value
        self.wrong.pop(row, None)

    def refuse(self, rows: Rows, reason: str) -> None:
        """Note that the values of some rows cannot be used."""
        self.wrong.update(dict.fromkeys(rows.tolist(), reason))

    def forget(self, rows: Rows) -> None:
        """Clear what was set in some rows."""
        for row in rows.tolist():
            self.values[row] = None
            self.wrong.pop(row, None)


class Payloads:
    """Payloads of n records without their first ``skip`` bytes, and how far each was read.

    Attributes:
        data: all bytes, one payload after the other.
        at: (n,) next place to read in each record.
        end: (n,) end of each record, or of the part being read.
        bad: (n,) mask of records whose bytes do not fit their schema.
    """

    def __init__(self, payloads: Sequence[bytes], skip: int = 0) -> None:
        self.blob = b"".join(payloads) + bytes(PAD)
        self.data = np.frombuffer(self.blob, np.uint8)
        lengths = np.fromiter(map(len, payloads), np.int64, len(payloads))
        self.end: I64 = lengths.cumsum()
        self.at: I64 = self.end - lengths + skip
        self.bad = np.zeros(len(payloads), np.bool_)
        self._wide = np.arange(8)

    def __len__(self) -> int:
        return len(self.bad)

    def keep(self, rows: Rows, good: NDArray[np.bool_]) -> Rows:
        """Mark the rows that are not ``good`` as bad; return the others."""
        if good.all():
            return rows
        self.bad[rows[~good]] = True
        return np.asarray(rows[good])

    def varints(self, rows: Rows) -> tuple[Rows, U64]:
        """Read one variable-length number of each row; a number of more than ten bytes is bad."""
        at = self.at[rows]
        byte = self.data[at]
        values = (byte & 0x7F).astype(np.uint64)
        at += 1
        live = np.flatnonzero(byte >= 0x80)
        for shift in range(7, 70, 7):
            if not live.size:
                break
            place = at[live]
            byte = self.data[place]
            values[live] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            at[live] = place + 1
            live = live[byte >= 0x80]
        self.at[rows] = at
        good = at <= self.end[rows]
        good[live] = False
        kept = self.keep(rows, good)
        return kept, values if len(kept) == len(rows) else values[good]

    def zigzag(self, rows: Rows) -> tuple[Rows, I64]:
        """Read one signed number of each row, in zigzag form."""
        rows, values = self.varints(rows)
        return rows, unzigzag(values)

    def take(self, rows: Rows, sizes: I64 | int) -> tuple[Rows, I64]:
        """Skip ``sizes`` bytes of each row; return where they begin."""
        starts = self.at[rows]
        ends = starts + np.minimum(sizes, FAR)
        good = (ends <= self.end[rows]) & (ends >= starts)
        kept = self.keep(rows, good)
        if len(kept) < len(rows):
            starts, ends = starts[good], ends[good]
        self.at[kept] = ends
        return kept, starts

    def fixed(self, rows: Rows, kind: str) -> tuple[Rows, NDArray[Any]]:
        """Read one little-endian number of fixed width, such as "<f8", of each row."""
        width = np.dtype(kind).itemsize
        rows, starts = self.take(rows, width)
        table = self.data[starts[:, None] + self._wide[:width]]
        return rows, table.reshape(-1).view(kind)

    def texts(self, rows: Rows, starts: I64, ends: I64, column: FieldColumn) -> None:
        """Put the UTF-8 texts between two places into a column; invalid ones are malformed."""
        blob = self.blob
        places = list(zip(starts.tolist(), ends.tolist(), strict=True))
        try:
            column.put(rows, [blob[a:b].decode() for a, b in places])
        except UnicodeDecodeError:
            for row, (a, b) in zip(rows.tolist(), places, strict=True):
                try:
                    column.put_one(row, blob[a:b].decode())
                except UnicodeDecodeError:
                    column.wrong[row] = "malformed"


def leaves_of(wanted: Mapping[str, Any] | None, path: str) -> Iterator[str]:
    """Paths of the leaves below a path; ``wanted`` has nested names, None for a leaf."""
    if wanted is None:
        yield path
        return
    for name, inner in wanted.items():
        yield from leaves_of(inner, f"{path}.{name}" if path else name)


def unzigzag(values: U64) -> I64:
    """Decode zigzag numbers.

    >>> unzigzag(np.array([0, 1, 2, 2**64 - 1], np.uint64)).tolist()
    [0, -1, 1, -9223372036854775808]
    """
    one = np.uint64(1)
    return ((values >> one) ^ (np.uint64(0) - (values & one))).view(np.int64)

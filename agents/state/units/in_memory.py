"""Rows of units in memory, one table for each pipeline and epoch."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ....mechanisms.keys import Keys
from ..layout import DIGEST, UNIT_WIDTH
from ..rows.columns import RowColumns, by_epoch, column_of, pick
from ..rows.table import HeldTable

_SCANNED = 2_000  # keys looked up at once


class MemoryUnits:
    """Rows of units by key; a table is dropped once all of its rows are deleted."""

    def __init__(self) -> None:
        self._epochs: dict[bytes, _Epoch] = {}  # by key without the digest

    def put(self, rows: RowColumns) -> None:
        """Write rows of distinct keys; an empty row deletes."""
        for prefix, places in by_epoch(rows.keys):
            some = rows
            if len(places) < len(rows.keys):
                some = RowColumns(pick(rows.keys, places), rows.values.take(places))
            epoch = self._epochs.setdefault(prefix, _Epoch())
            epoch.put(some)
            if epoch.live == 0:
                del self._epochs[prefix]

    def look(self, keys: Keys) -> Keys:
        """Read rows, in the order of their keys; an empty row means none."""
        found: list[bytes | None] = [None] * len(keys)
        for prefix, places in by_epoch(keys):
            epoch = self._epochs.get(prefix)
            if epoch is None:
                continue
            values = epoch.look(pick(keys, places))
            if len(places) == len(keys):
                return values
            for place, row in zip(places.tolist(), values.tolist(), strict=True):
                found[place] = row or None
        return column_of(found)

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield rows with start ≤ key < end, in key order."""
        for prefix in sorted(self._epochs):
            if prefix < end and start < prefix + b"\xff" * (DIGEST + 1):
                yield from self._epochs[prefix].scan(start, end)


class _Epoch:
    """Rows of one pipeline and epoch."""

    def __init__(self) -> None:
        self._table = HeldTable(UNIT_WIDTH)
        self._dead = 0  # keys whose rows were deleted
        self._sorted: list[bytes] | None = None  # all other keys, made on demand

    @property
    def live(self) -> int:
        """Number of rows that have not been deleted."""
        return len(self._table) - self._dead

    def look(self, keys: Keys) -> Keys:
        return self._table.look(keys).values

    def put(self, rows: RowColumns) -> None:
        gone = _empty(rows.values)
        if self._dead or gone.any():
            values, known = self._table.look(rows.keys)
            self._dead += int(gone.sum()) - int((known & _empty(values)).sum())
        self._table.put(rows)
        # Deleted keys may stay in the list, since `scan` skips them, but no other may be missing.
        # At most half may be deleted, or the end of a window would scan its deleted keys again and
        # again.
        kept = self._sorted or []
        if not gone.all() or 2 * self.live < len(kept):
            self._sorted = None

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        if self._sorted is None:
            self._sorted = sorted(key for key, row in self._table.rows().pairs() if row)
        ordered = self._sorted
        low, high = bisect_left(ordered, start), bisect_left(ordered, end)
        for begun in range(low, high, _SCANNED):
            keys = ordered[begun : min(begun + _SCANNED, high)]
            for key, row in zip(keys, self.look(Keys.of(keys)).tolist(), strict=True):
                if row:
                    yield key, row


def _empty(values: Keys) -> NDArray[np.bool_]:
    return np.equal(values.offsets[1:], values.offsets[:-1])

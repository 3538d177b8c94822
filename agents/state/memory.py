"""State in memory, for simulation, replay and tests."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from ...mechanisms.keys import Keys
from .columns import NO_ROWS, RowColumns, column_of


class MemoryStore:
    """State in a dictionary; implements `StateReader`."""

    def __init__(self) -> None:
        self._rows: dict[bytes, dict[bytes, bytes]] = {}  # by tag
        self._sorted: dict[bytes, list[bytes]] = {}

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read the rows of ``keys``, in their order; None where a row is missing."""
        rows = self._rows
        return [rows.get(key[:1], {}).get(key) for key in keys]

    def get_columns(self, keys: Keys) -> Keys:
        """Read the rows of units, in the order of their keys; an empty one stands for none."""
        return column_of(self.get_many(keys.tolist()))

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield rows with start ≤ key < end, in key order; both share their tag."""
        tag = start[:1]
        rows = self._rows.get(tag, {})
        if tag not in self._sorted:
            self._sorted[tag] = sorted(rows)
        ordered = self._sorted[tag]
        for key in ordered[bisect_left(ordered, start) : bisect_left(ordered, end)]:
            value = rows.get(key)
            if value is not None:
                yield key, value

    def write(self, changes: Mapping[bytes, bytes | None], units: RowColumns = NO_ROWS) -> None:
        """Apply a batch of changes, ``units`` first."""
        for key, value in chain(units.pairs(), changes.items()):
            tag = key[:1]
            rows = self._rows.setdefault(tag, {})
            if value is not None and key not in rows:
                # A deleted key may stay in the list, since `scan` skips it; a new one may not lack.
                self._sorted.pop(tag, None)
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value

    def close(self) -> None:
        """Do nothing: memory needs no closing."""

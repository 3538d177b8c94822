"""State in memory, for simulation, replay and tests."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from ...mechanisms.keys import Keys
from .layout import UNIT, of_unit
from .rows.columns import NO_ROWS, RowColumns
from .units.in_memory import MemoryUnits


class MemoryStore:
    """State in dictionaries, and rows of units in columns; implements `StateReader`."""

    def __init__(self) -> None:
        self._rows: dict[bytes, dict[bytes, bytes]] = {}  # by tag
        self._sorted: dict[bytes, list[bytes]] = {}
        self._units = MemoryUnits()

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read the rows of ``keys``, in their order; None where a row is missing."""
        rows = self._rows
        found = [rows.get(key[:1], {}).get(key) for key in keys]
        places = [place for place, key in enumerate(keys) if of_unit(key)]
        units = self.get_columns(Keys.of(keys[place] for place in places))
        for place, row in zip(places, units.tolist(), strict=True):
            found[place] = row or None
        return found

    def get_columns(self, keys: Keys) -> Keys:
        """Read the rows of units, in the order of ``keys``; an empty row means none."""
        return self._units.look(keys)

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield rows with start ≤ key < end, in key order; both share their tag."""
        found = self._scan(start, end)
        if start[:1] == UNIT:
            found = heapq.merge(found, self._units.scan(start, end))
        yield from found

    def _scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
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
        single = {key: value for key, value in changes.items() if of_unit(key)}
        for one in (units, RowColumns.of(single)):
            self._units.put(one)
        for key, value in changes.items():
            if key in single:
                continue
            tag = key[:1]
            rows = self._rows.setdefault(tag, {})
            if value is not None and key not in rows:
                # A deleted key may stay in the list, since `scan` skips it, but a new key must be
                # added.
                self._sorted.pop(tag, None)
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value

    def close(self) -> None:
        """Do nothing: memory needs no closing."""

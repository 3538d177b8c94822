"""Rows of units that are on disk, kept in memory as far as there is room, so that few are read."""

from __future__ import annotations

import numpy as np

from ...mechanisms.keys import Keys
from .columns import Found, RowColumns, pick, put_in
from .layout import UNIT_WIDTH
from .row_table import HeldTable


class UnitRoom:
    """The bytes that the tables of one process may fill with rows that are on disk."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._tables = 0

    @property
    def share(self) -> int:
        """Bytes for each table that is open."""
        return self._size // max(self._tables, 1)

    def enter(self) -> None:
        """Count a table that was opened."""
        self._tables += 1

    def leave(self) -> None:
        """Count a table that was closed."""
        self._tables -= 1


class KnownUnits:
    """The newest rows of units that went to disk, in two generations of half the room each.

    What is written goes to the younger one. When that is full, the older one is forgotten as a
    whole: to choose single rows would cost more than to read some of them from disk once more.
    At least what was written last is kept, however small the room is.

    Args:
        room: shared with the other tables of this process.
    """

    def __init__(self, room: UnitRoom) -> None:
        self._room = room
        self._young, self._old = HeldTable(UNIT_WIDTH), HeldTable(UNIT_WIDTH)

    @property
    def memory(self) -> int:
        """Bytes of memory in use, about."""
        return self._young.memory + self._old.memory

    def put(self, rows: RowColumns, beside: int = 0) -> None:
        """Take rows that are on disk from now on; an empty one was deleted.

        Args:
            beside: bytes of this table's share that something else takes.
        """
        if 2 * self._young.memory + beside > self._room.share:
            self._young, self._old = self._old, self._young
            self._young.clear()
        self._young.put(rows)

    def look(self, keys: Keys) -> Found:
        """Read rows."""
        values, known = self._young.look(keys)
        rows = np.flatnonzero(~known)
        if len(rows) == 0 or len(self._old) == 0:
            return Found(values, known)
        older = self._old.look(pick(keys, rows))
        known[rows] = older.known
        return Found(put_in(values, rows, older.values), known)

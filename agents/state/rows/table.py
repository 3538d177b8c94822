"""Tables of rows in memory, with keys of one width."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....mechanisms.columns import writeable
from ....mechanisms.keys import Keys
from .apart import zeros
from .columns import Found, RowColumns

_LEAST = 16  # fewest slots of a table that has rows
_NONE = np.zeros(1, np.uint64)  # arrays of an empty table; there may be one for each open window
_OBJECTS = 1024  # bytes of the objects of a table


class HeldTable:
    """Rows by keys of ``width`` bytes; the newest value counts, and an empty value means no row.

    The table is arrays: some seventy bytes per row besides its value, and no object.
    """

    __slots__ = ("_arena", "_count", "_loops", "_slots", "_used", "_wide", "_width")

    def __init__(self, width: int) -> None:
        from . import scan as row_scan

        self._loops: Any = row_scan
        self._width, self._wide = width, -(-width // 8)
        self._count = self._used = 0
        self._slots = self._arena = _NONE  # the first row replaces both

    def __len__(self) -> int:
        """Number of known rows, including deleted ones."""
        return self._count

    @property
    def size(self) -> int:
        """Bytes of the rows, including replaced ones."""
        return 8 * self._used

    @property
    def memory(self) -> int:
        """Approximate bytes of memory in use."""
        return _OBJECTS + 8 * (self._used + len(self._slots))

    def put(self, rows: RowColumns) -> None:
        """Write rows."""
        keys, values = self._words(rows.keys), rows.values
        n, size = len(keys), int(values.offsets[-1] - values.offsets[0])
        self._reserve(self._count + n, size // 8 + n * (self._wide + 3 + self._loops.SPARE // 8))
        self._count, self._used = self._loops.put(
            self._slots, self._arena, self._arena.view(np.uint8), self._count, self._used,
            keys, writeable(values.data), values.offsets, *_space(n),
        )  # fmt: skip

    def look(self, keys: Keys) -> Found:
        """Read rows."""
        n = len(keys)
        begins, ends = np.empty(n, np.int64), np.empty(n + 1, np.int64)
        self._loops.look(self._slots, self._arena, self._words(keys), *_space(n), begins, ends)
        return Found(self._values(begins, ends), begins >= 0)

    def known(self, keys: Keys) -> NDArray[np.bool_]:
        """Whether (n,) each key is known."""
        n = len(keys)
        begins, ends = np.empty(n, np.int64), np.empty(n + 1, np.int64)
        self._loops.look(self._slots, self._arena, self._words(keys), *_space(n), begins, ends)
        return begins >= 0

    def rows(self) -> RowColumns:
        """All known rows, each key once."""
        n = self._count
        keys = np.empty((n, self._wide), np.uint64)
        begins, ends = np.empty(n, np.int64), np.empty(n + 1, np.int64)
        self._loops.listed(self._arena, self._used, keys, begins, ends)
        matrix = keys.view(np.uint8).reshape(n, 8 * self._wide)[:, : self._width]
        return RowColumns(Keys.fixed(matrix), self._values(begins, ends))

    def clear(self) -> None:
        """Forget everything."""
        self._count = self._used = 0
        self._slots = self._arena = _NONE

    def _values(self, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> Keys:
        out = np.empty(int(ends[-1]), np.uint8)
        self._loops.gather(self._arena.view(np.uint8), begins, ends, out)
        return Keys(out, ends)

    def _words(self, keys: Keys) -> NDArray[np.uint64]:
        """View keys as (n, w) words, which compare faster than bytes."""
        if len(keys) and keys.width() != self._width:
            raise ValueError("a key of another width")
        padded = np.zeros((len(keys), 8 * self._wide), np.uint8)
        padded[:, : self._width] = keys.packed().reshape(len(keys), self._width)
        return padded.view(np.uint64)

    def _reserve(self, rows: int, words: int) -> None:
        if self._used + words > len(self._arena):
            arena = zeros(max(self._used + words, 2 * len(self._arena)), np.uint64)
            arena[: self._used] = self._arena[: self._used]
            self._arena = arena
        if 4 * rows > 3 * len(self._slots):
            self._slots = zeros(max(1 << (2 * rows - 1).bit_length(), _LEAST), np.uint64)
            self._loops.rebuild(self._slots, self._arena, self._used, self._wide)


def _space(n: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    return np.empty(n, np.uint64), np.empty(n, np.uint64)

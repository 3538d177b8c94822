"""Tables of units and keys that are numbered 0…n-1: the in-memory runner for tens of millions.

They keep the contract of the tables of `hushstream.mechanisms.testing`. The cost of a step grows
with the rows that it touches, and not with the size of the tables.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..columns import I64, Part, Rows, Units
from ..contract import Mechanism
from ..keys import Keys
from .rows import joined


class DenseUnits:
    """Units 0…n-1 of one bound shard; pairs live in a log that is compacted when half is stale."""

    def __init__(self, mechanism: Mechanism, size: int) -> None:
        self.left: I64 = mechanism.init_units(1).left.repeat(size)
        self.begin = np.zeros(size, np.int64)
        self.width = np.zeros(size, np.int32)
        self.pair = np.empty(1024, np.uint32)
        self.used = np.empty((1024, mechanism.lanes), np.uint16)
        self.end = 0

    def load(self, ids: NDArray[np.int64]) -> Units:
        """State of the sorted distinct ``ids``."""
        start, where = _spread(self.begin[ids], self.width[ids])
        return Units(self.left[ids], start, self.pair[where], self.used[where])

    def store(self, ids: NDArray[np.int64], units: Units) -> None:
        """Replace the rows of the sorted distinct ``ids``."""
        self.left[ids] = units.left
        self.width[ids] = np.diff(units.start)
        self._reserve(len(units.pair), ids)
        self.begin[ids] = self.end + units.start[:-1]
        self.pair[self.end : self.end + len(units.pair)] = units.pair
        self.used[self.end : self.end + len(units.pair)] = units.used
        self.end += len(units.pair)

    def _reserve(self, more: int, ids: NDArray[np.int64]) -> None:
        if self.end + more <= len(self.pair):
            return
        widths = self.width.copy()
        widths[ids] = 0  # their rows are about to be written anew
        start, where = _spread(self.begin, widths)
        live = len(where)
        pair = np.empty(2 * (live + more) + 1024, np.uint32)
        used = np.empty((len(pair), self.used.shape[1]), np.uint16)
        pair[:live], used[:live] = self.pair[where], self.used[where]
        self.pair, self.used, self.begin, self.end = pair, used, start[:-1].copy(), live


def _spread(begin: I64, width: NDArray[np.int32]) -> tuple[I64, I64]:
    start = np.zeros(len(begin) + 1, np.int64)
    np.cumsum(width, out=start[1:])
    return start, np.arange(start[-1]) + np.repeat(begin - start[:-1], width)


class DenseRows:
    """Rows of the keys ``Keys.of_codes(0…n-1)`` of one aggregate shard, with their due index."""

    def __init__(self, mechanism: Mechanism, size: int) -> None:
        self.cell = mechanism.init_rows(Keys.of_codes(np.zeros(1, np.uint64))).cell.repeat(size)
        self.due = np.zeros(size, np.int32)
        self.shared: Rows | None = None  # of the empty key, where a mechanism keeps one
        self._always: I64 = np.empty(0, np.int64)
        self._calendar: dict[int, list[I64]] = {}

    def load(self, part: Part, t: int) -> Rows:
        """Rows of the keys of ``part`` and of those that are due at trigger ``t``."""
        written = np.concatenate([np.empty(0, np.int64), *self._calendar.get(t, [])])
        due = written[self.due[written] == t]  # others were moved after they were written down
        here = part.key.codes().astype(np.int64)
        codes = np.unique(np.concatenate([here, due, self._always]))
        rows = Rows(Keys.of_codes(codes.astype(np.uint64)), self.cell[codes], self.due[codes])
        return rows if self.shared is None else joined(self.shared, rows)

    def store(self, rows: Rows) -> None:
        """Write back the rows that a release returned."""
        if len(rows.key) and rows.key[0] == b"":
            self.shared = Rows(rows.key[:1], rows.cell[:1], rows.due[:1])
            rows = Rows(rows.key[1:], rows.cell[1:], rows.due[1:])
        codes = rows.key.codes().astype(np.int64)
        self.cell[codes] = rows.cell
        always = codes[(rows.due == -1) & (self.due[codes] != -1)]
        self._always = np.concatenate([self._always, always])
        self.due[codes] = rows.due
        order = codes[rows.due > 0]
        order = order[np.argsort(self.due[order], kind="stable")]
        dates, begin = np.unique(self.due[order], return_index=True)
        ends = np.append(begin[1:], len(order))
        for date, a, b in zip(dates.tolist(), begin.tolist(), ends.tolist(), strict=False):
            self._calendar.setdefault(date, []).append(order[a:b])

"""Tables of units and keys in memory, for one shard: whole columns, no object per row.

The cost of a step grows with the rows that it touches; only new rows move others.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .columns import I64, Part, Rows, Units, joined
from .contract import Traits
from .keys import Keys

Places = NDArray[np.intp]
Known = NDArray[np.bool_]


class UnitTable:
    """Units of one bound shard; pairs are in a log that is compacted when half of it is stale.

    Args:
        size: number of units 0…size-1; None: units may be any integers.
    """

    def __init__(self, traits: Traits, size: int | None = None) -> None:
        self._bound = traits.bound
        self._numbered = size is not None
        self.ids: I64 = np.arange(size or 0)
        self._row: Places = np.arange(size or 0)  # of each id
        self._left: I64 = np.full(size or 0, self._bound, np.int64)
        self._begin: I64 = np.zeros(size or 0, np.int64)
        self._width: I64 = np.zeros(size or 0, np.int64)
        self._pair = np.empty(1024, np.uint32)
        self._used = np.empty((1024, traits.lanes), np.uint16)
        self._end = 0

    @property
    def units(self) -> Units:
        """State of all units, in order of their ids."""
        return self.load(self.ids)

    def load(self, ids: I64) -> Units:
        """State of the sorted distinct ``ids``; unseen ones are fresh."""
        rows = self._rows(ids)
        start, where = _spread(self._begin[rows], self._width[rows])
        return Units(self._left[rows], start, self._pair[where], self._used[where])

    def store(self, ids: I64, units: Units) -> None:
        """Replace or add the rows of the sorted distinct ``ids``."""
        rows = self._rows(ids)
        self._left[rows] = units.left
        self._width[rows] = np.diff(units.start)
        self._reserve(len(units.pair), rows)
        self._begin[rows] = self._end + units.start[:-1]
        end = self._end + len(units.pair)
        self._pair[self._end : end], self._used[self._end : end] = units.pair, units.used
        self._end = end

    def _rows(self, ids: I64) -> Places:
        if self._numbered:
            return ids
        place, known = _find(self.ids, ids)
        if not known.all():
            new, count = place[~known], int((~known).sum())
            rows = np.arange(len(self._row), len(self._row) + count)
            self.ids, self._row = (
                np.insert(self.ids, new, ids[~known]),
                np.insert(self._row, new, rows),
            )
            self._left = np.concatenate([self._left, np.full(count, self._bound)])
            none = np.zeros(count, np.int64)
            self._begin = np.concatenate([self._begin, none])
            self._width = np.concatenate([self._width, none])
            place = np.searchsorted(self.ids, ids)
        return self._row[place]

    def _reserve(self, more: int, rows: Places) -> None:
        if self._end + more <= len(self._pair):
            return
        widths = self._width.copy()
        widths[rows] = 0  # these rows are about to be rewritten
        start, where = _spread(self._begin, widths)
        live = len(where)
        pair = np.empty(2 * (live + more) + 1024, np.uint32)
        used = np.empty((len(pair), self._used.shape[1]), np.uint16)
        pair[:live], used[:live] = self._pair[where], self._used[where]
        self._pair, self._used, self._begin, self._end = pair, used, start[:-1].copy(), live


def _spread(begin: I64, width: I64) -> tuple[I64, I64]:
    start = np.zeros(len(begin) + 1, np.int64)
    np.cumsum(width, out=start[1:])
    return start, np.arange(start[-1]) + np.repeat(begin - start[:-1], width)


def _find(among: NDArray[Any], wanted: NDArray[Any]) -> tuple[Places, Known]:
    """Positions of ``wanted`` values among sorted ones, and whether each is present."""
    place = np.searchsorted(among, wanted)
    known = np.zeros(len(wanted), np.bool_)
    inside = place < len(among)
    known[inside] = among[place[inside]] == wanted[inside]
    return place, known


class _Order:
    """Distinct keys in canonical order: integers while all are eight bytes wide, else bytes."""

    def __init__(self) -> None:
        self.key: NDArray[Any] = np.empty(0, np.uint64)

    def of(self, keys: Keys) -> NDArray[Any]:
        """Keys in the form that this order compares."""
        if self.key.dtype == np.uint64:
            if not len(keys) or keys.width() == 8:
                return keys.codes()
            self.key = _objects(Keys.of_codes(self.key))
        return _objects(keys)

    def keys(self, key: NDArray[Any]) -> Keys:
        """Keys from the form that this order compares."""
        return Keys.of_codes(key) if key.dtype == np.uint64 else Keys.of(key.tolist())


def _objects(keys: Keys) -> NDArray[Any]:
    out = np.empty(len(keys), object)
    out[:] = keys.tolist()
    return out


class RowTable:
    """Rows of one aggregate shard's keys; the empty key's row, if any, is kept apart.

    Attributes:
        state, due: (k,) columns of all other keys, in canonical order.
        empty: row of the empty key.
    """

    def __init__(self, traits: Traits) -> None:
        self._traits = traits
        self._order = _Order()
        self.state = traits.rows(Keys.of([])).state
        self.due = np.empty(0, np.int32)
        self.empty: Rows | None = None

    def load(self, part: Part, t: int, scan: bool = False) -> Rows:
        """Rows that a release at trigger ``t`` may read; ``scan`` loads every stored one."""
        every = scan or self._traits.load == "all"
        none, rest = _parted(part.key)
        new = np.unique(self._order.of(rest))
        place, known = _find(self._order.key, new)
        due = (self.due == t) | (self.due == -1)
        touched = np.union1d(np.arange(len(due)) if every else np.flatnonzero(due), place[known])
        key = np.concatenate([self._order.key[touched], new[~known]])
        order = np.argsort(key, kind="stable")
        rows = self._traits.rows(self._order.keys(key[order]))
        stored = order < len(touched)
        rows.state[stored] = self.state[touched[order[stored]]]
        rows.due[stored] = self.due[touched[order[stored]]]
        if self.empty is not None and (none or every or self.empty.due[0] in (t, -1)):
            return joined(self.empty, rows)
        return joined(self._traits.rows(Keys.of([b""])), rows) if none else rows

    def store(self, rows: Rows) -> None:
        """Write back the rows that a release returned."""
        none, rest = _parted(rows.key)
        if none:
            self.empty = Rows(rows.key[:1], rows.state[:1].copy(), rows.due[:1].copy())
        key = self._order.of(rest)
        order = np.argsort(key, kind="stable")
        key, state, due = key[order], rows.state[none:][order], rows.due[none:][order]
        place, known = _find(self._order.key, key)
        self.state[place[known]], self.due[place[known]] = state[known], due[known]
        if not known.all():
            at = place[~known]
            self._order.key = np.insert(self._order.key, at, key[~known])
            self.state = np.insert(self.state, at, state[~known])
            self.due = np.insert(self.due, at, due[~known])

    @property
    def rows(self) -> Rows:
        """All stored rows, in canonical order."""
        rows = Rows(self._order.keys(self._order.key), self.state, self.due)
        return rows if self.empty is None else joined(self.empty, rows)


def _parted(keys: Keys) -> tuple[int, Keys]:
    """Number of empty keys in a canonical order, and the other keys."""
    none = int((np.diff(keys.offsets) == 0).sum())
    return none, keys[none:]


class StatusTable:
    """Statuses of released keys as of an earlier trigger.

    Args:
        delay: triggers until a status takes effect.
    """

    def __init__(self, delay: int) -> None:
        self._order = _Order()
        self._row: Places = np.empty(0, np.intp)  # of each key, in order of arrival
        none = np.zeros(0, np.int32)
        self._past: deque[NDArray[np.int32]] = deque([none] * (delay + 1), delay + 1)

    def of(self, keys: Keys) -> NDArray[np.int32]:
        """(k,) statuses of some keys, 0 where there is none yet."""
        key, then = self._order.of(keys), self._past[0]
        place, known = _find(self._order.key, key)
        status = np.zeros(len(keys), np.int32)
        rows = self._row[place[known]]
        status[known] = np.append(then, 0)[np.minimum(rows, len(then))]
        return status

    def add(self, keys: Keys, status: NDArray[np.int32]) -> None:
        """Take the statuses of a trigger; keys are distinct."""
        key = self._order.of(keys)
        order = np.argsort(key, kind="stable")
        place, known = _find(self._order.key, key[order])
        new = place[~known]
        rows = np.arange(len(self._row), len(self._row) + len(new))
        self._row = np.insert(self._row, new, rows)
        self._order.key = np.insert(self._order.key, new, key[order][~known])
        now = np.zeros(len(self._row), np.int32)
        now[: len(self._past[-1])] = self._past[-1]
        now[self._row[np.searchsorted(self._order.key, key)]] = status
        self._past.append(now)

"""Compiled loops over rows of open sessions: records join them, and those that are over leave.

A row is one session after the other: two bytes of the key's length, the first and the last time and
the number of events in eight bytes each, and the key.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ....compiled import compiled

Bytes = NDArray[np.uint8]
I64 = NDArray[np.int64]
HEAD = 26  # bytes before a session's key


@compiled
def _read(data: Bytes, at: np.int64, size: int) -> np.int64:
    word = np.uint64(0)
    for n in range(size):
        word |= np.uint64(data[at + n]) << np.uint64(8 * n)
    return np.int64(word)


@compiled
def _write(data: Bytes, at: np.int64, size: int, number: np.int64) -> None:
    word = np.uint64(number)
    for n in range(size):
        data[at + n] = np.uint8(word >> np.uint64(8 * n))


@compiled
def _same(one: Bytes, begin: np.int64, other: Bytes, low: np.int64, size: np.int64) -> bool:
    for n in range(size):
        if one[begin + n] != other[low + n]:
            return False
    return True


@compiled
def count(data: Bytes, ends: I64, number: I64) -> bool:
    """Count the sessions of rows; False if one has a length that no row has.

    Args:
        data, ends: the rows, one after the other, and the (u+1,) places where they end.
        number: (u,), taken.
    """
    for n in range(len(number)):
        at, end, found = ends[n], ends[n + 1], np.int64(0)
        while at < end:
            if end - at < HEAD or end - at < HEAD + _read(data, at, 2):
                return False
            at += HEAD + _read(data, at, 2)
            found += 1
        number[n] = found
    return True


@compiled
def read(
    data: Bytes, ends: I64, unit: I64, begin: I64, end: I64, first: I64, last: I64, events: I64
) -> None:
    """Read all sessions of rows that `count` has found whole.

    Args:
        unit: taken, the number of each session's row.
        begin, end: taken, where the key of each lies.
        first, last, events: taken.
    """
    s = np.int64(0)
    for n in range(len(ends) - 1):
        at = ends[n]
        while at < ends[n + 1]:
            unit[s], begin[s] = n, at + HEAD
            end[s] = begin[s] + _read(data, at, 2)
            first[s], last[s] = _read(data, at + 2, 8), _read(data, at + 10, 8)
            events[s] = _read(data, at + 18, 8)
            at = end[s]
            s += 1


@compiled
def take(
    data: Bytes, ends: I64, begins: I64, texts: Bytes, text_ends: I64, key: I64, time: I64,
    gap: int, most: int, out: Bytes, out_ends: I64,
) -> int:  # fmt: skip
    """Let records join the open sessions of their units; returns how many found no room.

    Args:
        data, ends: rows that `count` has found whole, of at most ``most`` sessions each.
        begins: (u+1,) the records of each unit, in log order.
        texts, text_ends: the keys that records name.
        key, time: (n,) of the records.
        gap: microseconds between two records of a session at most.
        most: open sessions of a unit.
        out, out_ends: taken, the new rows.
    """
    stored = np.empty(most, np.bool_)  # whether a session's key lies in ``data``, or in ``texts``
    low, size = np.empty(most, np.int64), np.empty(most, np.int64)
    first, last = np.empty(most, np.int64), np.empty(most, np.int64)
    events = np.empty(most, np.int64)
    left, place = 0, np.int64(0)
    out_ends[0] = 0
    for n in range(len(begins) - 1):
        s, at = 0, ends[n]
        while at < ends[n + 1]:
            stored[s], low[s], size[s] = True, at + HEAD, _read(data, at, 2)
            first[s], last[s] = _read(data, at + 2, 8), _read(data, at + 10, 8)
            events[s] = _read(data, at + 18, 8)
            at += HEAD + size[s]
            s += 1
        for r in range(begins[n], begins[n + 1]):
            begin = text_ends[key[r]]
            length, now = text_ends[key[r] + 1] - begin, time[r]
            mine, kept = -1, 0
            for m in range(s):
                near = first[m] - gap <= now <= last[m] + gap and size[m] == length
                if near and _same(data if stored[m] else texts, low[m], texts, begin, length):
                    if mine >= 0:  # the record joins two of them
                        first[mine] = min(first[mine], first[m])
                        last[mine] = max(last[mine], last[m])
                        events[mine] += events[m]
                        continue
                    mine = kept
                    first[m], last[m] = min(first[m], now), max(last[m], now)
                    events[m] += 1
                stored[kept], low[kept], size[kept] = stored[m], low[m], size[m]
                first[kept], last[kept], events[kept] = first[m], last[m], events[m]
                kept += 1
            s = kept
            if mine >= 0:
                continue
            if s == most:
                left += 1
                continue
            stored[s], low[s], size[s] = False, begin, length
            first[s], last[s], events[s] = now, now, 1
            s += 1
        for m in range(s):
            _write(out, place, 2, size[m])
            _write(out, place + 2, 8, first[m])
            _write(out, place + 10, 8, last[m])
            _write(out, place + 18, 8, events[m])
            place += HEAD
            source = data if stored[m] else texts
            for b in range(size[m]):
                out[place + b] = source[low[m] + b]
            place += size[m]
        out_ends[n + 1] = place
    return left


@compiled
def keep(data: Bytes, ends: I64, over: NDArray[np.bool_], out: Bytes, out_ends: I64) -> int:
    """Leave out sessions that are ``over`` (in the order of `read`); returns the bytes that stay.

    Args:
        out, out_ends: taken, the new rows.
    """
    s, place = np.int64(0), np.int64(0)
    out_ends[0] = 0
    for n in range(len(ends) - 1):
        at = ends[n]
        while at < ends[n + 1]:
            size = HEAD + _read(data, at, 2)
            if not over[s]:
                for b in range(size):
                    out[place + b] = data[at + b]
                place += size
            at += size
            s += 1
        out_ends[n + 1] = place
    return int(place)

"""Compiled loops over rows of open sessions: adding records, and taking out closed sessions.

A row is one session after the other: two bytes of the key's length; the first and the last time,
the number of events and a trigger in eight bytes each; and the key. The trigger is 0, or the
ordinal of an open trigger whose cut the session's records are beyond.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ....compiled import compiled
from .unit_scan import number_at, put_number

Bytes = NDArray[np.uint8]
I64 = NDArray[np.int64]
HEAD = 34  # bytes before a session's key


@compiled
def _same(one: Bytes, begin: np.int64, other: Bytes, low: np.int64, size: np.int64) -> bool:
    n = np.int64(0)
    while n < size and one[begin + n] == other[low + n]:
        n += 1
    return bool(n == size)


@compiled
def count(data: Bytes, ends: I64, number: I64) -> bool:
    """Count the sessions of rows; False if a row has an impossible length.

    Args:
        data, ends: concatenated rows, and the (u+1,) offsets where they end.
        number: (u,) output.
    """
    for n in range(len(number)):
        at, end, found = ends[n], ends[n + 1], np.int64(0)
        while at < end:
            if end - at < HEAD or end - at < HEAD + number_at(data, at, 2):
                return False
            at += HEAD + number_at(data, at, 2)
            found += 1
        number[n] = found
    return True


@compiled
def read(
    data: Bytes, ends: I64, unit: I64, begin: I64, end: I64, first: I64, last: I64, events: I64,
    beyond: I64,
) -> None:  # fmt: skip
    """Read all sessions of rows that `count` has accepted.

    Args:
        unit: output, index of each session's row.
        begin, end: output, bounds of each key.
        first, last, events, beyond: output.
    """
    s = np.int64(0)
    for n in range(len(ends) - 1):
        at = ends[n]
        while at < ends[n + 1]:
            unit[s], begin[s] = n, at + HEAD
            end[s] = begin[s] + number_at(data, at, 2)
            first[s], last[s] = number_at(data, at + 2, 8), number_at(data, at + 10, 8)
            events[s], beyond[s] = number_at(data, at + 18, 8), number_at(data, at + 26, 8)
            at = end[s]
            s += 1


@compiled
def _add(
    data: Bytes, texts: Bytes, held: I64, s: int, most: int, gap: int, stored: int,
    low: np.int64, size: np.int64, begin: np.int64, end: np.int64, number: np.int64,
    beyond: np.int64,
) -> int:  # fmt: skip
    """Add an interval to the ``s`` held sessions; return their new number, -1 if there is no room.

    Sessions are rows of ``held``: whether the key lies in ``data`` (1) or in ``texts`` (0), its
    offset and length, first and last time, events, trigger. Sessions of one key and trigger are
    further apart than the gap, so the interval meets all its neighbours before it grows.
    """
    kept, own = 0, data if stored else texts
    near_begin, near_end = begin - gap, end + gap
    for m in range(s):
        if (
            held[m, 3] <= near_end
            and held[m, 4] >= near_begin
            and held[m, 2] == size
            and held[m, 6] == beyond
            and _same(data if held[m, 0] else texts, held[m, 1], own, low, size)
        ):
            begin, end = min(begin, held[m, 3]), max(end, held[m, 4])
            number += held[m, 5]
            continue
        if kept < m:
            held[kept] = held[m]
        kept += 1
    if kept == most:
        return -1
    held[kept, 0], held[kept, 1], held[kept, 2] = stored, low, size
    held[kept, 3], held[kept, 4], held[kept, 5], held[kept, 6] = begin, end, number, beyond
    return kept + 1


@compiled
def take(
    data: Bytes, ends: I64, begins: I64, texts: Bytes, text_ends: I64, key: I64, time: I64,
    beyond: I64, closed: int, gap: int, most: int, out: Bytes, out_ends: I64,
) -> int:  # fmt: skip
    """Add records to the open sessions of their units; return how many found no room.

    Args:
        data, ends: rows that `count` has accepted, of at most ``most`` sessions each.
        begins: (u+1,) bounds of each unit's records, which are in log order.
        texts, text_ends: keys that records name.
        key, time, beyond: (n,) columns of the records.
        closed: ordinal of the last closed trigger; sessions beyond it no longer wait.
        gap: most microseconds between two records of a session.
        most: most open sessions of a unit.
        out, out_ends: output, new rows.
    """
    held = np.empty((most, 7), np.int64)
    left, place = 0, np.int64(0)
    out_ends[0] = 0
    for n in range(len(begins) - 1):
        s, at = 0, ends[n]
        for late in range(2):  # first sessions that did not wait, then those that did
            at = ends[n]
            while at < ends[n + 1]:
                size, wait = number_at(data, at, 2), number_at(data, at + 26, 8)
                if (0 < wait <= closed) == (late == 1):
                    s = _add(
                        data, texts, held, s, most, gap, 1, at + HEAD, size,
                        number_at(data, at + 2, 8), number_at(data, at + 10, 8),
                        number_at(data, at + 18, 8), wait if wait > closed else np.int64(0),
                    )  # fmt: skip
                at += HEAD + size
        for r in range(begins[n], begins[n + 1]):
            begin, wait = text_ends[key[r]], beyond[r] if beyond[r] > closed else np.int64(0)
            found = _add(
                data, texts, held, s, most, gap, 0, begin, text_ends[key[r] + 1] - begin,
                time[r], time[r], np.int64(1), wait,
            )  # fmt: skip
            if found < 0:
                left += 1
            else:
                s = found
        for m in range(s):
            put_number(out, place, 2, held[m, 2])
            for column in range(4):
                put_number(out, place + 2 + 8 * column, 8, held[m, 3 + column])
            place += HEAD
            source = data if held[m, 0] else texts
            for b in range(held[m, 2]):
                out[place + b] = source[held[m, 1] + b]
            place += held[m, 2]
        out_ends[n + 1] = place
    return left


@compiled
def keep(data: Bytes, ends: I64, over: NDArray[np.bool_], out: Bytes, out_ends: I64) -> int:
    """Leave out sessions that are ``over`` (in the order of `read`); return the bytes kept.

    Args:
        out, out_ends: output, new rows.
    """
    s, place = np.int64(0), np.int64(0)
    out_ends[0] = 0
    for n in range(len(ends) - 1):
        at = ends[n]
        while at < ends[n + 1]:
            size = HEAD + number_at(data, at, 2)
            if not over[s]:
                for b in range(size):
                    out[place + b] = data[at + b]
                place += size
            at += size
            s += 1
        out_ends[n + 1] = place
    return int(place)

"""Compiled loops over a table of rows in memory: open addressing, with one arena for the rows.

In the arena, a row is its key in whole words, one word with the size and capacity of its value, and
the value. So key and value are in the same cache lines: the main cost of a large table is waiting
for memory. For the same reason, a slot holds a part of the hash, and look-ups first only fetch
slots, without branches.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....compiled import compiled

Bytes = NDArray[np.uint8]
I64 = NDArray[np.int64]
Place = int | np.signedinteger[Any]
Words = NDArray[np.uint64]

SPARE = 16  # spare bytes after a value, so that it can grow in place
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_DEAD = np.uint64(0xFFFFFFFF)  # size of a row that was replaced by a newer one elsewhere


@compiled
def _copy(data: Bytes, begin: Place, out: Bytes, to: Place, size: Place) -> None:
    """Copy bytes. Places are unsigned, which saves a check for negative indices."""
    at, place = np.uint64(begin), np.uint64(to)
    for b in range(np.uint64(size)):
        out[place + b] = data[at + b]


@compiled
def _hash(keys: Words, n: int) -> np.uint64:
    state = np.uint64(0)
    for word in range(keys.shape[1]):
        state = (state ^ keys[n, word]) * np.uint64(0x9E3779B97F4A7C15)
        state ^= state >> np.uint64(29)
    return state ^ (state >> _HALF)


@compiled
def _hashes(slots: Words, arena: Words, keys: Words, hashed: Words, met: Words) -> None:
    """Compute the hash of each key, and prefetch the slot and row that it probably meets."""
    mask, wide = np.uint64(len(slots) - 1), keys.shape[1]
    for n in range(len(keys)):
        state = _hash(keys, n)
        hashed[n] = state
        met[n] = slots[state & mask]
    for n in range(len(keys)):
        met[n] = arena[np.int64(max(met[n] & _LOW, np.uint64(1))) - 1 + wide]


@compiled
def _seek(slots: Words, arena: Words, keys: Words, n: int, state: np.uint64) -> tuple[int, int]:
    """Find a key's slot and the place of its row; without a row, the slot to use and -1."""
    mask = np.uint64(len(slots) - 1)
    slot = state & mask
    while True:
        held = slots[slot]
        if held == 0:
            return int(slot), -1
        if (held >> _HALF) == (state >> _HALF):
            at = np.int64(held & _LOW) - 1
            same = True
            for word in range(keys.shape[1]):
                same &= arena[at + word] == keys[n, word]
            if same:
                return int(slot), int(at)
        slot = (slot + np.uint64(1)) & mask


@compiled
def put(
    slots: Words, arena: Words, space: Bytes, count: int, used: int,
    keys: Words, values: Bytes, ends: I64, hashed: Words, met: Words,
) -> tuple[int, int]:  # fmt: skip
    """Write rows, for which there must be room; return the new ``count`` and ``used``.

    Args:
        slots: slots, a power of two of them, at most three quarters full.
        space: the arena as bytes.
        count: rows in use.
        used: words of the arena in use.
        keys: (n, w) keys to write.
        hashed, met: (n,) work space.
    """
    wide = keys.shape[1]
    _hashes(slots, arena, keys, hashed, met)
    for n in range(len(keys)):
        slot, at = _seek(slots, arena, keys, n, hashed[n])
        size = ends[n + 1] - ends[n]
        room = np.int64(-1)
        if at < 0:
            count += 1
        else:
            room = np.int64(arena[at + wide] >> _HALF)
            if size > room:
                arena[at + wide] |= _DEAD
        if size > room:
            at = used
            room = (size + SPARE + 7) // 8 * 8
            used += wide + 1 + room // 8
            for word in range(wide):
                arena[at + word] = keys[n, word]
            slots[slot] = ((hashed[n] >> _HALF) << _HALF) | np.uint64(at + 1)
        arena[at + wide] = (np.uint64(room) << _HALF) | np.uint64(size)
        _copy(values, ends[n], space, 8 * (at + wide + 1), size)
    return count, used


@compiled
def look(
    slots: Words, arena: Words, keys: Words, hashed: Words, met: Words, begins: I64, ends: I64
) -> None:
    """Find keys.

    Args:
        slots, arena, keys, hashed, met: the same as for `put`.
        begins: (n,) output, byte of the arena where each value begins; -1: none.
        ends: (n+1,) output, ends of the concatenated values.
    """
    wide, total = keys.shape[1], np.int64(0)
    _hashes(slots, arena, keys, hashed, met)
    ends[0] = 0
    for n in range(len(keys)):
        _, at = _seek(slots, arena, keys, n, hashed[n])
        begins[n] = -1
        if at >= 0:
            begins[n] = 8 * (at + wide + 1)
            total += np.int64(arena[at + wide] & _LOW)
        ends[n + 1] = total


@compiled
def gather(space: Bytes, begins: I64, ends: I64, out: Bytes) -> None:
    """Copy the values that `look` or `listed` has found."""
    for n in range(len(begins)):
        _copy(space, begins[n], out, ends[n], ends[n + 1] - ends[n])


@compiled
def listed(arena: Words, used: int, keys: Words, begins: I64, ends: I64) -> None:
    """List all rows in use, in arena order; ``keys``, ``begins`` and ``ends`` are output."""
    wide, at, n, total = keys.shape[1], np.int64(0), np.int64(0), np.int64(0)
    ends[0] = 0
    while at < used:
        size, room = arena[at + wide] & _LOW, np.int64(arena[at + wide] >> _HALF)
        if size != _DEAD:
            for word in range(wide):
                keys[n, word] = arena[at + word]
            begins[n] = 8 * (at + wide + 1)
            total += np.int64(size)
            n += 1
            ends[n] = total
        at += wide + 1 + room // 8


@compiled
def rebuild(slots: Words, arena: Words, used: int, wide: int) -> None:
    """Enter all rows in use into empty slots."""
    mask, at = np.uint64(len(slots) - 1), np.int64(0)
    while at < used:
        head = arena[at + wide]
        if (head & _LOW) != _DEAD:
            state = _hash(arena[at : at + wide].reshape(1, wide), 0)
            slot = state & mask
            while slots[slot] != 0:
                slot = (slot + np.uint64(1)) & mask
            slots[slot] = ((state >> _HALF) << _HALF) | np.uint64(at + 1)
        at += wide + 1 + np.int64(head >> _HALF) // 8


@compiled
def merge(
    data: Bytes, ends: I64, rows: I64, other: Bytes, others: I64, out: Bytes, out_ends: I64
) -> None:
    """Copy values, taking those of ``rows`` (increasing) from ``other``."""
    at, m = np.int64(0), np.int64(0)
    out_ends[0] = 0
    for n in range(len(ends) - 1):
        if m < len(rows) and rows[m] == n:
            size = others[m + 1] - others[m]
            _copy(other, others[m], out, at, size)
            m += 1
        else:
            size = ends[n + 1] - ends[n]
            _copy(data, ends[n], out, at, size)
        at += size
        out_ends[n + 1] = at

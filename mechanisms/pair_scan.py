"""Compiled loops over pairs of a key and a value: find the start of the value, and hash it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..compiled import compiled


@compiled
def cuts(
    data: NDArray[np.uint8],
    ends: NDArray[np.int64],
    cut: NDArray[np.int64],
    hashed: NDArray[np.uint64],
) -> bool:
    """Find the last comma of each JSON list of scalars, and hash what follows.

    ``cut`` (k,) receives the position of that comma in ``data``, or of the only element if there is
    no comma; ``hashed`` (k,) receives FNV-1a of the last element, mixed as in MurmurHash3. Returns
    False if a list is empty.
    """
    prime, begun = np.uint64(0x100000001B3), np.uint64(0xCBF29CE484222325)
    first, second = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
    for n in range(len(cut)):
        place, at, inside = np.int64(-1), ends[n], False
        while at < ends[n + 1]:
            byte = data[at]
            if inside and byte == 92:  # a backslash: the next byte is part of the text
                at += 1
            elif byte == 34:
                inside = not inside
            elif byte == 44 and not inside:
                place = at
            at += 1
        begin = place + 1
        if place < 0:  # a total has no key, and the list holds the value alone
            begin = place = ends[n] + 1
        if begin >= ends[n + 1] - 1 or data[ends[n]] != 91:
            return False
        cut[n] = place
        state = begun
        for at in range(begin, ends[n + 1] - 1):
            state = (state ^ np.uint64(data[at])) * prime
        state = (state ^ (state >> np.uint64(33))) * first
        state = (state ^ (state >> np.uint64(33))) * second
        hashed[n] = state ^ (state >> np.uint64(33))
    return True


@compiled
def named(
    data: NDArray[np.uint8],
    ends: NDArray[np.int64],
    cut: NDArray[np.int64],
    hashed: NDArray[np.uint64],
    tail: int,
    out: NDArray[np.uint8],
    starts: NDArray[np.int64],
) -> None:
    """Write each list without its last element, followed by ``tail`` bytes of the hash."""
    at = np.int64(0)
    for n in range(len(cut)):
        starts[n] = at
        for place in range(ends[n], cut[n]):
            out[at] = data[place]
            at += 1
        out[at] = np.uint8(93)
        at += 1
        for shift in range(tail):
            out[at] = np.uint8((hashed[n] >> np.uint64(56 - 8 * shift)) & np.uint64(0xFF))
            at += 1
    starts[len(cut)] = at

"""A compiled loop over keys: the hash of each of them in a window."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..compiled import compiled


@compiled
def hashes(
    data: NDArray[np.uint8], ends: NDArray[np.int64], window: int, out: NDArray[np.uint32]
) -> None:
    """Hash keys with FNV-1a, folded to 32 bits, into ``out`` (k,)."""
    prime, begun = np.uint64(0x100000001B3), np.uint64(0xCBF29CE484222325)
    for shift in (24, 16, 8, 0):
        begun = (begun ^ np.uint64((window >> shift) & 0xFF)) * prime
    for n in range(len(out)):
        state = begun
        for at in range(ends[n], ends[n + 1]):
            state = (state ^ np.uint64(data[at])) * prime
        out[n] = np.uint32((state >> np.uint64(32)) ^ (state & np.uint64(0xFFFFFFFF)))

"""Draws for every key with every index, a bounded chunk at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..keys import Keys
from ._prf import Prf
from ._samplers import Sampler
from ._tables import I64, U64, Positions

CHUNK = 1 << 16  # draws at a time: the work buffers stay in a core's cache
TIE = 1 << 32  # counter of the first block that breaks ties


def words(prf: Prf, key: Keys, index: I64) -> U64:
    """(r, m, 2) uniform words."""
    out = np.empty((len(key), len(index), 2), np.uint64)
    for states, rows, columns in _chunks(prf, key, index):
        out[rows, columns] = prf.blocks(states[:, None], index[columns], 0)
    return out


def draws(prf: Prf, key: Keys, index: I64, sampler: Sampler) -> I64:
    """(r, m) integers."""
    out = np.empty((len(key), len(index)), np.int64)
    for states, rows, columns in _chunks(prf, key, index):
        out[rows, columns] = chunk(prf, states, index[columns], sampler)
    return out


def chunk(prf: Prf, states: U64, index: I64, sampler: Sampler) -> I64:
    """(r, m) integers; the longer axis is the inner one in memory, which decides the speed."""
    if len(index) < len(states):
        return _grid(prf, states[None], index[:, None], sampler).T
    return _grid(prf, states[:, None], index[None], sampler)


def _grid(prf: Prf, states: U64, index: I64, sampler: Sampler) -> I64:
    """Draws of all broadcast (state, index): stage i reads word i mod 2 of block i // 2."""
    stages = len(sampler.stages)
    blocks = [prf.blocks(states, index, counter) for counter in range((stages + 1) // 2)]
    shape = blocks[0].shape[:-1]

    def low(stage: int, ties: Positions) -> U64:
        at = np.unravel_index(ties, shape)
        tied = np.broadcast_to(states, (*shape, 2))[at], np.broadcast_to(index, shape)[at]
        return prf.blocks(*tied, TIE + stage)[:, 0]

    high = [blocks[i // 2][..., i % 2].reshape(-1) for i in range(stages)]
    return sampler.draw(high, low).reshape(shape)


def _chunks(prf: Prf, key: Keys, index: I64) -> Iterator[tuple[U64, slice, slice]]:
    """Blocks of at most `CHUNK` draws: chaining values, rows and columns."""
    width = min(max(len(index), 1), CHUNK)
    height = CHUNK // width
    for top in range(0, len(key), height):
        rows = slice(top, min(top + height, len(key)))
        # A slice of the column shares its bytes.
        states = prf.states(Keys(key.data, key.offsets[rows.start : rows.stop + 1]))
        for left in range(0, len(index), width):
            yield states, rows, slice(left, min(left + width, len(index)))

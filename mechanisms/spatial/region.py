"""Public regions inside a spatial domain: polygons and lists of cells."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
U64 = NDArray[np.uint64]
Bool = NDArray[np.bool_]
Ring = tuple[tuple[float, float], ...]

_POWERS = np.uint64(1) << np.arange(64, dtype=np.uint64)


def bit_level(codes: U64) -> NDArray[np.int64]:
    """(m,) number of bits of a node code below its leading one; exact for all 64-bit integers."""
    return np.searchsorted(_POWERS, codes, side="right").astype(np.int64) - 1


def in_polygon(ring: Ring, x: F64, y: F64) -> Bool:
    """(n,) which points lie inside a ring, by the even-odd rule."""
    inside = np.zeros(len(x), bool)
    for (x1, y1), (x2, y2) in pairwise((*ring, ring[0])):
        if y1 != y2:
            crosses = (y1 > y) != (y2 > y)
            inside ^= crosses & (x < (x2 - x1) * ((y - y1) / (y2 - y1)) + x1)
    return inside


def boxes_meet_polygon(ring: Ring, low: F64, high: F64) -> Bool:
    """(m,) which closed boxes (m, 2) have a point in common with a closed ring."""
    meets = in_polygon(ring, low[:, 0], low[:, 1])
    for x, y in ring:
        meets |= (low[:, 0] <= x) & (x <= high[:, 0]) & (low[:, 1] <= y) & (y <= high[:, 1])
    for start, end in pairwise((*ring, ring[0])):
        meets |= _segment_meets(np.array(start), np.array(end), low, high)
    return meets


def _segment_meets(start: F64, end: F64, low: F64, high: F64) -> Bool:
    """Clip the segment against the slabs of both axes (Liang & Barsky 1984)."""
    enter, leave = np.zeros(len(low)), np.ones(len(low))
    possible = np.ones(len(low), bool)
    for axis in range(2):
        run = end[axis] - start[axis]
        if run == 0:
            possible &= (low[:, axis] <= start[axis]) & (start[axis] <= high[:, axis])
            continue
        first, second = (low[:, axis] - start[axis]) / run, (high[:, axis] - start[axis]) / run
        enter = np.maximum(enter, np.minimum(first, second))
        leave = np.minimum(leave, np.maximum(first, second))
    return possible & (enter <= leave)


def covered(cells: U64, codes: U64) -> Bool:
    """(m,) whether each node is one of ``cells`` or lies below one."""
    inside = np.zeros(len(codes), bool)
    levels, depth = bit_level(codes), bit_level(cells)
    for level in np.unique(depth).tolist():
        drop = np.maximum(levels - level, 0).astype(np.uint64)
        inside |= (levels >= level) & np.isin(codes >> drop, cells[depth == level])
    return inside


def meets_cells(cells: U64, codes: U64) -> Bool:
    """(m,) whether each node lies below, is, or contains one of ``cells``."""
    inside = covered(cells, codes)
    levels, depth = bit_level(codes), bit_level(cells)
    for level in np.unique(levels).tolist():
        above = cells[depth > level] >> (depth[depth > level] - level).astype(np.uint64)
        inside |= (levels == level) & np.isin(codes, above)
    return inside

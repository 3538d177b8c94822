"""The part of a cell that lies in the domain's public region, as pieces with known volumes.

A released leaf may reach beyond the region's polygons or listed cells. No record can lie there, so
a leaf's records are spread over the pieces inside the region alone. Polygons are divided into
trapezoids with horizontal sides (even-odd rule), which are then clipped to each cell.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..columns import F64
from .domain import U64, Domain, bit_level
from .region import Rings, covered, edges_of

_PAIRS = 1 << 20  # pairs of cells and trapezoids clipped at a time


class Pieces(NamedTuple):
    """Disjoint pieces of some cells, in order of their cells."""

    cell: NDArray[np.intp]  # (p,) row of each piece's cell
    volume: F64  # (p,) in the axes' units
    # low, high: (p, d) box around each piece; exact except for the first axis with a polygon
    low: F64
    high: F64
    # left, right: (p, 2) ends along the first axis, at the lower and the upper end of the
    # second; equal pairs without a polygon
    left: F64
    right: F64

    def take(self, rows: NDArray[np.intp]) -> Pieces:
        """Some of the pieces."""
        return Pieces._make(column[rows] for column in self)

    def points(self, uniform: F64) -> F64:
        """(p, d) one point in each piece, uniform in it, from (p, d) numbers in [0, 1).

        In a trapezoid the second coordinate has a linear density; its distribution function is
        inverted without a difference of nearly equal numbers.
        """
        out = self.low + uniform * (self.high - self.low)
        if out.shape[1] < 2:
            return out
        width = self.right - self.left
        u, bottom, top = uniform[:, 1], width[:, 0], width[:, 1]
        root = np.sqrt(bottom**2 + u * (top**2 - bottom**2))
        share = np.where(
            bottom + top > 0, u * (bottom + top) / np.maximum(bottom + root, 1e-300), u
        )
        out[:, 1] = self.low[:, 1] + share * (self.high[:, 1] - self.low[:, 1])
        start = self.left[:, 0] + share * (self.left[:, 1] - self.left[:, 0])
        end = self.right[:, 0] + share * (self.right[:, 1] - self.right[:, 0])
        out[:, 0] = start + uniform[:, 0] * (end - start)
        return out


def pieces(domain: Domain, codes: U64, low: F64 | None = None, high: F64 | None = None) -> Pieces:
    """The pieces of nodes that lie in the region, and in the box [low, high) if there is one.

    Args:
        domain: public geometry.
        codes: (m,) nodes.
        low, high: (d,) corners of one box in the axes' units.
    """
    cell, start, end = _boxes(domain, codes)
    if low is not None and high is not None:
        start, end = np.maximum(start, low), np.minimum(end, high)
        some = np.flatnonzero((start < end).all(axis=1))
        cell, start, end = cell[some], start[some], end[some]
    whole = Pieces(
        cell, np.prod(end - start, axis=1), start, end,
        np.repeat(start[:, :1], 2, axis=1), np.repeat(end[:, :1], 2, axis=1),
    )  # fmt: skip
    return _cut(whole, domain.rings) if domain.rings else whole


def _boxes(domain: Domain, codes: U64) -> tuple[NDArray[np.intp], F64, F64]:
    """The nodes as boxes; a node above listed cells is replaced by those cells."""
    rows = np.arange(len(codes))
    if domain.cells:
        listed = _outermost(tuple(domain.cells))
        inside = covered(listed, codes)
        pairs = [(rows[inside], codes[inside])]
        for level in np.unique(bit_level(listed)).tolist():
            mine = listed[bit_level(listed) == level]
            above = np.flatnonzero(~inside & (bit_level(codes) < level))
            drop = (level - bit_level(codes[above])).astype(np.uint64)
            row, place = np.nonzero(mine[None, :] >> drop[:, None] == codes[above, None])
            pairs.append((above[row], mine[place]))
        rows = np.concatenate([row for row, _ in pairs])
        codes = np.concatenate([code for _, code in pairs])
        order = np.argsort(rows, kind="stable")
        rows, codes = rows[order], codes[order]
    return rows, *domain.boxes(codes)


@lru_cache(maxsize=8)
def _outermost(cells: tuple[int, ...]) -> U64:
    """Listed cells that lie in no other listed cell: nested cells would count twice."""
    found = np.unique(np.array(cells, np.uint64))
    levels = bit_level(found)
    keep = [not covered(found[levels < level], found[i : i + 1])[0]
            for i, level in enumerate(levels.tolist())]  # fmt: skip
    outermost: U64 = found[np.array(keep)]
    return outermost


@lru_cache(maxsize=8)
def trapezoids(rings: Rings) -> F64:
    """(p, 6) trapezoids of some rings: lower and upper y, left x at both, right x at both.

    >>> trapezoids((((0.0, 0.0), (2.0, 0.0), (0.0, 2.0)),)).tolist()
    [[0.0, 2.0, 0.0, 0.0, 2.0, 0.0]]
    """
    edges = edges_of(rings)
    edges = edges[edges[:, 1] != edges[:, 3]]
    down = edges[:, 1] > edges[:, 3]
    edges[down] = edges[down][:, [2, 3, 0, 1]]
    heights = np.unique(np.concatenate([edges[:, 1], edges[:, 3], _crossings(edges)]))
    found = []
    for bottom, top in pairwise(heights.tolist()):
        spanning = edges[(edges[:, 1] <= bottom) & (edges[:, 3] >= top)]
        share = (np.array([bottom, top]) - spanning[:, 1:2]) / (spanning[:, 3:] - spanning[:, 1:2])
        x = spanning[:, :1] + share * (spanning[:, 2:3] - spanning[:, :1])
        x = x[np.argsort(x.sum(axis=1), kind="stable")]
        found += [
            [bottom, top, *a, *b] for a, b in zip(x[::2].tolist(), x[1::2].tolist(), strict=True)
        ]
    return np.array(found, float).reshape(-1, 6)


def _crossings(edges: F64) -> F64:
    """Heights at which edges cross each other; between two such heights their order is fixed."""
    step = max(1, _PAIRS // max(len(edges), 1))
    found = [_crossings_with(edges[rows], edges) for rows in _chunks(len(edges), step)]
    return np.concatenate([np.empty(0), *found])


def _crossings_with(some: F64, edges: F64) -> F64:
    x, y, right, top = edges.T
    dx, dy = right - x, top - y
    own_x, own_y, own_right, own_top = (column[:, None] for column in some.T)
    own_dx, own_dy = own_right - own_x, own_top - own_y
    with np.errstate(divide="ignore", invalid="ignore"):
        det = own_dx * dy - own_dy * dx
        along = ((x - own_x) * dy - (y - own_y) * dx) / det
        across = ((x - own_x) * own_dy - (y - own_y) * own_dx) / det
        proper = (along > 0) & (along < 1) & (across > 0) & (across < 1)
        height = own_y + along * own_dy
    heights: F64 = height[proper]
    return heights


def _cut(whole: Pieces, rings: Rings) -> Pieces:
    """Clip boxes to the trapezoids of some rings in the first two axes."""
    shapes = trapezoids(rings)
    step = max(1, _PAIRS // max(len(shapes), 1))
    parts = [_cut_some(whole.take(rows), shapes) for rows in _chunks(len(whole.cell), step)]
    if not parts:
        return whole
    return Pieces._make(np.concatenate(column) for column in zip(*parts, strict=True))


def _chunks(n: int, step: int) -> Iterator[NDArray[np.intp]]:
    for begin in range(0, n, step):
        yield np.arange(begin, min(begin + step, n))


def _cut_some(whole: Pieces, shapes: F64) -> Pieces:
    left_end = shapes[:, 2:4].min(axis=1)
    right_end = shapes[:, 4:6].max(axis=1)
    meets = (whole.low[:, 1, None] < shapes[:, 1]) & (whole.high[:, 1, None] > shapes[:, 0])
    meets &= (whole.low[:, 0, None] < right_end) & (whole.high[:, 0, None] > left_end)
    row, shape = np.nonzero(meets)
    box, one = whole.take(row), shapes[shape]
    y = _levels(box, one)
    lines = [_along(one, y, side) for side in (2, 4)]
    left = np.maximum(lines[0], box.low[:, :1])
    right = np.minimum(lines[1], box.high[:, :1])
    # Between two levels the width is linear and does not change its sign.
    width = np.maximum(right - left, 0)
    area = (y[:, 1:] - y[:, :-1]) * (width[:, 1:] + width[:, :-1]) / 2
    pair, part = np.nonzero(area > 0)
    out = box.take(pair)
    base = np.prod((out.high - out.low)[:, 2:], axis=1)
    low, high = out.low.copy(), out.high.copy()
    low[:, 1], high[:, 1] = y[pair, part], y[pair, part + 1]
    ends = np.stack([part, part + 1], axis=1)
    return Pieces(
        out.cell, area[pair, part] * base, low, high,
        left[pair[:, None], ends], np.maximum(right, left)[pair[:, None], ends],
    )  # fmt: skip


def _along(one: F64, y: F64, side: int) -> F64:
    """(k, n) x of an edge at heights ``y`` (k, n)."""
    share = (y - one[:, :1]) / (one[:, 1:2] - one[:, :1])
    edge: F64 = one[:, side : side + 1] + share * (
        one[:, side + 1 : side + 2] - one[:, side : side + 1]
    )
    return edge


def _levels(box: Pieces, one: F64) -> F64:
    """(k, 6) heights between which neither edge of a trapezoid crosses a side of its box."""
    bottom = np.maximum(box.low[:, 1], one[:, 0])
    top = np.minimum(box.high[:, 1], one[:, 1])
    found = [bottom, top]
    for side in (2, 4):
        run = one[:, side + 1] - one[:, side]
        for end in (box.low[:, 0], box.high[:, 0]):
            with np.errstate(divide="ignore", invalid="ignore"):
                y = one[:, 0] + (end - one[:, side]) / run * (one[:, 1] - one[:, 0])
            found.append(np.clip(np.where(np.isfinite(y), y, bottom), bottom, top))
    return np.sort(np.stack(found, axis=1), axis=1)

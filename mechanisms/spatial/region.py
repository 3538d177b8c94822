"""Public regions inside a spatial domain: polygons with holes, and lists of cells.

Points lie inside by the even-odd rule over all rings together, so a hole is a ring like any other.
An edge is compared only with points and boxes that may be near it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...errors import ParameterError

F64 = NDArray[np.float64]
U64 = NDArray[np.uint64]
Bool = NDArray[np.bool_]
Ring: TypeAlias = tuple[tuple[float, float], ...]
Rings: TypeAlias = tuple[Ring, ...]

MOST_CORNERS = 10_000
"""Corners of all rings together: each record and each manifest pays for them."""

_POWERS = np.uint64(1) << np.arange(64, dtype=np.uint64)
_PAIRS = 1 << 20  # pairs of edges and boxes compared at a time


@dataclass(frozen=True)
class Region:
    """Polygons with holes in the first two axes; their interiors are disjoint.

    Attributes:
        polygons: outer ring of each, then its holes; a ring does not repeat its first corner.

    Raises:
        ParameterError: there is no polygon, a ring has fewer than 3 corners, a corner is not
            finite, or there are more than `MOST_CORNERS` corners.
    """

    polygons: tuple[Rings, ...]

    def __post_init__(self) -> None:
        if not self.polygons or not all(self.polygons):
            raise ParameterError("region", len(self.polygons), "needs polygons with rings")
        if min(map(len, self.rings)) < 3:
            raise ParameterError("region", min(map(len, self.rings)), "a ring needs 3 corners")
        if self.corners > MOST_CORNERS:
            rule = f"at most {MOST_CORNERS} corners are possible: simplify the polygons"
            raise ParameterError("region", self.corners, rule)
        if not all(np.isfinite(np.array(ring, float)).all() for ring in self.rings):
            raise ParameterError("region", "a corner", "must be finite")

    @cached_property
    def rings(self) -> Rings:
        """All rings of all polygons."""
        return tuple(ring for polygon in self.polygons for ring in polygon)

    @property
    def corners(self) -> int:
        """Number of corners of all rings."""
        return sum(map(len, self.rings))

    @property
    def box(self) -> tuple[float, float, float, float]:
        """West, south, east and north end; east-west is the first axis."""
        every = np.array([corner for ring in self.rings for corner in ring], float)
        (west, south), (east, north) = every.min(axis=0).tolist(), every.max(axis=0).tolist()
        return west, south, east, north

    @classmethod
    def of(cls, polygons: Iterable[Iterable[Iterable[Iterable[float]]]]) -> Region:
        """Make a region from the coordinates of a GeoJSON MultiPolygon, whose rings are closed."""
        made = tuple(
            tuple(tuple((float(x), float(y)) for x, y, *_ in ring)[:-1] for ring in polygon)
            for polygon in polygons
        )
        return cls(made)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Region:
        """Make the region that `to_json` described."""
        return cls.of(plain["coordinates"])

    def to_json(self) -> dict[str, Any]:
        """Describe it as a GeoJSON MultiPolygon."""
        rings = [[[list(c) for c in (*ring, ring[0])] for ring in p] for p in self.polygons]
        return {"type": "MultiPolygon", "coordinates": rings}

    def pinned(self) -> dict[str, Any]:
        """Describe it by its size and the SHA-256 of its coordinates, for canonical settings."""
        text = json.dumps(self.to_json()["coordinates"], separators=(",", ":"))
        digest = hashlib.sha256(text.encode()).hexdigest()
        return {"polygons": len(self.polygons), "corners": self.corners, "sha256": digest}


def bit_level(codes: U64) -> NDArray[np.int64]:
    """(m,) number of bits of a node code below its leading one; exact for all 64-bit integers."""
    return np.searchsorted(_POWERS, codes, side="right").astype(np.int64) - 1


def edges_of(rings: Rings) -> F64:
    """(e, 4) both ends of every edge: x, y, x, y."""
    parts = []
    for ring in rings:
        corners = np.array([*ring, ring[0]], float)
        parts.append(np.concatenate([corners[:-1], corners[1:]], axis=1))
    return np.concatenate(parts)


def in_polygon(rings: Rings, x: F64, y: F64) -> Bool:
    """(n,) whether each point lies inside, by the even-odd rule over all rings."""
    order = np.argsort(y, kind="stable")
    x, y = x[order], y[order]
    crossed = np.zeros(len(x), bool)
    edges = edges_of(rings)
    # An edge matters for points between the heights of its ends, including the lower one.
    begin = np.searchsorted(y, edges[:, 1::2].min(axis=1), side="left").tolist()
    end = np.searchsorted(y, edges[:, 1::2].max(axis=1), side="left").tolist()
    for (x1, y1, x2, y2), low, high in zip(edges.tolist(), begin, end, strict=True):
        if low < high:
            near = slice(low, high)
            crossed[near] ^= x[near] < (x2 - x1) * ((y[near] - y1) / (y2 - y1)) + x1
    inside = np.empty(len(x), bool)
    inside[order] = crossed
    return inside


def boxes_meet_polygon(rings: Rings, low: F64, high: F64) -> Bool:
    """(m,) whether each closed box (m, 2) meets the closed inside of the rings."""
    meets = in_polygon(rings, low[:, 0], low[:, 1])
    edges = edges_of(rings)
    least, most = np.minimum(edges[:, :2], edges[:, 2:]), np.maximum(edges[:, :2], edges[:, 2:])
    step = max(1, _PAIRS // max(len(low), 1))
    for begin in range(0, len(edges), step):
        part = slice(begin, begin + step)
        near = np.ones((len(edges[part]), len(low)), bool)
        for axis in range(2):
            near &= least[part, axis, None] <= high[:, axis]
            near &= most[part, axis, None] >= low[:, axis]
        edge, box = np.nonzero(near)
        hit = _segments_meet(edges[part][edge], low[box], high[box])
        meets[box[hit]] = True
    return meets


def _segments_meet(edges: F64, low: F64, high: F64) -> Bool:
    """(k,) whether each edge meets its box, by clipping to both slabs (Liang & Barsky 1984)."""
    start, end = edges[:, :2], edges[:, 2:]
    enter, leave = np.zeros(len(low)), np.ones(len(low))
    possible = np.ones(len(low), bool)
    for axis in range(2):
        run = end[:, axis] - start[:, axis]
        flat = run == 0
        with np.errstate(divide="ignore", invalid="ignore"):
            first = (low[:, axis] - start[:, axis]) / run
            second = (high[:, axis] - start[:, axis]) / run
        enter = np.where(flat, enter, np.maximum(enter, np.minimum(first, second)))
        leave = np.where(flat, leave, np.minimum(leave, np.maximum(first, second)))
        inside = (low[:, axis] <= start[:, axis]) & (start[:, axis] <= high[:, axis])
        possible &= ~flat | inside
    corner = ((low <= start) & (start <= high)).all(axis=1)
    return corner | (possible & (enter <= leave))


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

"""Spatial domains: boxes divided into a public hierarchy of half-open cells.

A node is one integer: a leading one followed by the bits of its path, so that the root is 1, the
binary children of c are 2c and 2c+1, and integer order is breadth first. Bit l halves coordinate
(l-1) mod d; cells are half open, and the upper edge of the box belongs to the last cell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...errors import ContractError, ParameterError
from ..columns import F64, Encoded
from ..keys import Keys
from ..validate import at_least, one_of
from .region import (
    U64,
    Bool,
    Region,
    Rings,
    bit_level,
    boxes_meet_polygon,
    covered,
    in_polygon,
    meets_cells,
)

Split = Literal["binary", "all"]

__all__ = ["U64", "Axis", "Bool", "Domain", "bit_level", "interleave"]

MAX_BITS = 62
_ONE = np.uint64(1)


@dataclass(frozen=True)
class Axis:
    """One public coordinate.

    Raises:
        ParameterError: the range is empty, not finite, or wider than 2^32 integers.
    """

    name: str  # the record column
    # low, high: the range. ``real``: low ≤ x ≤ high. ``integer``: both ends included, each integer
    # one unit wide. ``day``: low is 0, high the length of a day in the column's unit; any finite
    # instant counts by its time of day
    low: float
    high: float
    kind: Literal["real", "integer", "day"] = "real"  # "real", "integer" or "day"

    def __post_init__(self) -> None:
        one_of("axis.kind", self.kind, ("real", "integer", "day"))
        if not (math.isfinite(self.low) and math.isfinite(self.high)):
            raise ParameterError("axis.low, axis.high", (self.low, self.high), "must be finite")
        if self.width <= 0 or not math.isfinite(self.width):
            raise ParameterError("axis.high", self.high, f"must exceed the low end {self.low}")
        if self.kind == "integer":
            self._check_integer()
        if self.kind == "day" and self.low != 0:
            raise ParameterError("axis.low", self.low, "must be 0 for a time of day")

    def _check_integer(self) -> None:
        whole = float(self.low).is_integer() and float(self.high).is_integer()
        if not whole or self.width > 2**32 or max(abs(self.low), abs(self.high)) > 2**53:
            rule = "an integer axis needs whole ends below 2^53 and at most 2^32 values"
            raise ParameterError("axis.low, axis.high", (self.low, self.high), rule)

    @property
    def width(self) -> float:
        """Length of the range in the column's unit."""
        return self.high - self.low + (1 if self.kind == "integer" else 0)

    def fraction(self, column: NDArray[Any]) -> tuple[F64, Bool]:
        """(n,) positions in [0, 1], 0 for records outside, and whether each record lies inside."""
        x = np.asarray(column, np.float64)
        inside = np.isfinite(x)
        x = np.where(inside, x, self.low)
        if self.kind == "day":
            x = np.mod(x, self.high)
        if self.kind == "integer":
            inside = inside & (x == np.floor(x))
        inside = inside & (x >= self.low) & (x <= self.high)
        return (np.where(inside, x, self.low) - self.low) / self.width, inside


def _complete(
    where: str, given: Mapping[str, Any], needed: tuple[str, ...], made: type[Any]
) -> None:
    for name in needed:
        if name not in given:
            raise ParameterError(f"{where}.{name}", None, "is missing")
    known = [one.name for one in fields(made)]
    for name in given:
        if name not in known:
            rule = f"is unknown; expected one of {', '.join(known)}"
            raise ParameterError(f"{where}.{name}", given[name], rule)


@lru_cache(maxsize=64)
def _spread_table(dimensions: int) -> U64:
    """(256,) every byte with its bits ``dimensions`` places apart."""
    byte = np.arange(256, dtype=np.uint64)
    out = np.zeros(256, np.uint64)
    for bit in range(min(8, -(-64 // dimensions))):
        out |= ((byte >> np.uint64(bit)) & _ONE) << np.uint64(bit * dimensions)
    return out


def _spread(place: U64, bits: int, dimensions: int) -> U64:
    """Bits of ``place`` moved ``dimensions`` places apart."""
    table = _spread_table(dimensions)
    out: U64 = table[place & np.uint64(255)]
    for begin in range(8, bits, 8):
        byte = (place >> np.uint64(begin)) & np.uint64(255)
        out = out | table[byte] << np.uint64(begin * dimensions)
    return out


def interleave(places: U64, bits: int) -> U64:
    """(n,) node codes at bit level ``bits`` of (n, d) places of ceil(bits/d) bits each.

    >>> interleave(np.array([[1, 0], [2, 3]], np.uint64), 4).tolist()
    [18, 29]
    """
    n, dimensions = places.shape
    each = -(-bits // dimensions)
    code = np.zeros(n, np.uint64)
    for axis in range(dimensions):
        shift = np.uint64(dimensions - 1 - axis)
        code |= _spread(places[:, axis], each, dimensions) << shift
    return (code >> np.uint64(each * dimensions - bits)) | (_ONE << np.uint64(bits))


@dataclass(frozen=True)
class Domain:
    """A box in d dimensions (longitude and latitude first) and its public hierarchy of cells.

    Attributes:
        axes: the coordinates.
        depth: public cap on the depth of the tree (0 = the root alone).
        split: "binary" halves one coordinate per level, in turn; "all" halves every coordinate,
            which makes 2^d children.
        polygon: (longitude, latitude) corners of a public region in the first two axes; records
            outside it are dropped (even-odd rule). Empty = no polygon.
        cells: node codes of a public region; records outside all of them are dropped. Empty = all.
        region: instead of ``polygon``, polygons with holes in the first two axes. A setting gives
            it as GeoJSON or as the path of a GeoJSON file.

    Raises:
        ParameterError: more than 62 bits are needed, names repeat, or the region is malformed or
            lies outside the axes.

    >>> domain = Domain.unit(2, depth=2)
    >>> codes, keep = domain.locate({"x1": np.array([0.0, 1.0, 2.0]), "x2": np.full(3, 0.75)})
    >>> codes.tolist(), keep.tolist()
    ([5, 7, 5], [True, True, False])
    """

    axes: tuple[Axis, ...]
    depth: int
    split: Split = "binary"
    polygon: tuple[tuple[float, float], ...] = ()
    cells: tuple[int, ...] = ()
    region: Region | None = None

    def __post_init__(self) -> None:
        at_least("domain.depth", self.depth, 0)
        one_of("domain.split", self.split, ("binary", "all"))
        if not self.axes or len(set(self.names)) < len(self.axes):
            raise ParameterError("domain.axes", self.names, "needs at least one, all different")
        if max(self.bits, self._bits_each * self.dimensions - 1) > MAX_BITS:
            raise ParameterError("domain.depth", self.depth, f"needs more than {MAX_BITS} bits")
        if self.polygon and (len(self.polygon) < 3 or self.dimensions < 2):
            raise ParameterError("domain.polygon", self.polygon, "needs 3 corners and 2 axes")
        if not np.isfinite(np.array(self.polygon, float)).all():
            raise ParameterError("domain.polygon", self.polygon, "must be finite")
        if self.region is not None:
            self._check_region(self.region)
        top = 2 << self.bits
        if any(not 1 <= cell < top or (cell.bit_length() - 1) % self.step for cell in self.cells):
            raise ParameterError("domain.cells", self.cells, "must be nodes of the hierarchy")

    def _check_region(self, region: Region) -> None:
        shown = f"{region.corners} corners"
        if self.polygon:
            raise ParameterError("domain.region", shown, "and polygon exclude each other")
        if self.dimensions < 2:
            raise ParameterError("domain.region", shown, "needs 2 axes")
        west, south, east, north = region.box
        for axis, low, high in ((self.axes[0], west, east), (self.axes[1], south, north)):
            if high <= axis.low or low >= axis.high:
                rule = (
                    f"lies outside {axis.name} = {axis.low:g} to {axis.high:g}: it goes from "
                    f"{low:g} to {high:g}. GeoJSON has longitude first, and so must the axes"
                )
                raise ParameterError("domain.region", shown, rule)

    @classmethod
    def unit(
        cls, dimensions: int, depth: int, split: Literal["binary", "all"] = "binary"
    ) -> Domain:
        """[0, 1]^d with columns x1 … xd."""
        axes = tuple(Axis(f"x{i + 1}", 0.0, 1.0) for i in range(dimensions))
        return cls(axes, depth, split)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Domain:
        """The domain that `to_json` described.

        Raises:
            ParameterError: a setting is missing, unknown or out of range.
        """
        _complete("domain", plain, ("axes", "depth"), cls)
        for place, axis in enumerate(plain["axes"]):
            _complete(f"domain.axes[{place}]", axis, ("name", "low", "high"), Axis)
        axes = tuple(Axis(**axis) for axis in plain["axes"])
        polygon = tuple((float(x), float(y)) for x, y in plain.get("polygon", ()))
        cells = tuple(int(cell) for cell in plain.get("cells", ()))
        found = plain.get("region")
        region = Region.from_json(found) if found else None
        depth, split = int(plain["depth"]), plain.get("split", "binary")
        return cls(axes, depth, split, polygon, cells, region)

    def to_json(self) -> dict[str, Any]:
        """Public parameters as plain lists, numbers and strings; no field for an absent region."""
        plain = {
            "axes": [asdict(axis) for axis in self.axes],
            "depth": self.depth,
            "split": self.split,
            "polygon": [list(corner) for corner in self.polygon],
            "cells": list(self.cells),
        }
        return plain if self.region is None else plain | {"region": self.region.to_json()}

    def pinned(self) -> dict[str, Any]:
        """`to_json` for canonical settings, with the digest of a region instead of its corners."""
        plain = self.to_json()
        return plain if self.region is None else plain | {"region": self.region.pinned()}

    @cached_property
    def rings(self) -> Rings:
        """Rings of the polygon or the region; () without either."""
        if self.region is not None:
            return self.region.rings
        return (self.polygon,) if self.polygon else ()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The record columns, in order."""
        return tuple(axis.name for axis in self.axes)

    @property
    def dimensions(self) -> int:
        """d."""
        return len(self.axes)

    @property
    def step(self) -> int:
        """Bits per level of the tree: 1 or d."""
        return 1 if self.split == "binary" else self.dimensions

    @property
    def fanout(self) -> int:
        """β, children of a node: 2 or 2^d."""
        return 1 << self.step

    @property
    def bits(self) -> int:
        """Number of bits of a finest cell below the root."""
        return self.depth * self.step

    @property
    def _bits_each(self) -> int:
        return -(-self.bits // self.dimensions)

    def place(self, fractions: F64) -> U64:
        """(n,) finest node codes of (n, d) points of [0, 1]^d; 1.0 belongs to the last cell."""
        top = 1 << self._bits_each
        places = (fractions * float(top)).astype(np.uint64)  # exact product, then rounded down
        return interleave(np.minimum(places, np.uint64(top - 1)), self.bits)

    def locate(self, columns: Mapping[str, NDArray[Any]]) -> tuple[U64, Bool]:
        """(n,) finest node codes and whether each record lies in the domain and its region.

        Raises:
            ContractError: a column is missing or the lengths differ.
        """
        missing = [name for name in self.names if name not in columns]
        if missing or len({len(columns[name]) for name in self.names}) != 1:
            raise ContractError(f"domain needs equally long columns {', '.join(self.names)}")
        pairs = [axis.fraction(columns[axis.name]) for axis in self.axes]
        keep = np.logical_and.reduce([inside for _, inside in pairs])
        codes = self.place(np.stack([fraction for fraction, _ in pairs], axis=1))
        if self.rings:
            place = [np.asarray(columns[name], float) for name in self.names[:2]]
            keep = keep & self.in_polygon(np.stack(place, axis=1))
        return codes, keep & self.covered(codes)

    def encode(self, columns: Mapping[str, NDArray[Any]]) -> Encoded:
        """Records as keys of their finest cells, as `Mechanism.encode` returns them."""
        codes, keep = self.locate(columns)
        distinct, row = np.unique(codes, return_inverse=True)
        value = np.empty((len(codes), 0), np.int64)
        return Encoded(Keys.of_codes(distinct), row.astype(np.intp), value, keep)

    def level(self, codes: U64) -> NDArray[np.int64]:
        """(m,) depth of each node in the tree."""
        return bit_level(codes) // self.step

    def parents(self, codes: U64) -> U64:
        """(m,) parent of each node; 0 for the root."""
        return codes >> np.uint64(self.step)

    def children(self, codes: U64) -> U64:
        """(m, β) children of each node, in order."""
        first = codes << np.uint64(self.step)
        return first[:, None] | np.arange(self.fanout, dtype=np.uint64)

    def fractions(self, codes: U64) -> tuple[F64, F64]:
        """(m, d) lower and upper corners of each node in [0, 1]^d."""
        levels = bit_level(codes)
        low = np.zeros((len(codes), self.dimensions))
        size = np.ones((len(codes), self.dimensions))
        for bit in range(int(levels.max(initial=0))):
            live = levels > bit
            shift = np.where(live, levels - 1 - bit, 0).astype(np.uint64)
            axis = bit % self.dimensions
            size[live, axis] /= 2
            low[:, axis] += size[:, axis] * (live & ((codes >> shift) & _ONE).astype(bool))
        return low, low + size

    def boxes(self, codes: U64) -> tuple[F64, F64]:
        """(m, d) lower and upper corners of each node in the units of the columns."""
        low, high = self.fractions(codes)
        return self.scale(low), self.scale(high)

    def scale(self, fractions: F64) -> F64:
        """(n, d) points of [0, 1]^d in the units of the columns."""
        start = np.array([axis.low for axis in self.axes])
        scaled: F64 = start + fractions * np.array([axis.width for axis in self.axes])
        return scaled

    def in_polygon(self, points: F64) -> Bool:
        """(n,) whether points (n, ≥ 2), in the units of the columns, lie in polygon or region."""
        return in_polygon(self.rings, points[:, 0], points[:, 1])

    def covered(self, codes: U64) -> Bool:
        """(m,) whether each node lies inside one of ``cells`` (True without any)."""
        return covered(self._cells, codes) if self.cells else np.ones(len(codes), bool)

    def touches(self, codes: U64) -> Bool:
        """(m,) whether a node can hold a record of the region."""
        touching = np.ones(len(codes), bool)
        if self.cells:
            touching &= meets_cells(self._cells, codes)
        if self.rings:
            low, high = self.boxes(codes)
            touching &= boxes_meet_polygon(self.rings, low[:, :2], high[:, :2])
        return touching

    @cached_property
    def _cells(self) -> U64:
        return np.array(self.cells, np.uint64)

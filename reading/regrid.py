"""Released cells on the grids of other maps: each cell's records shared by area.

A released cell says how many records lie in it, not where. So they are taken as uniform in its part
inside the public region, as for synthetic points, and each cell of the other grid gets the share
that it covers. Shares of a released cell add up to 1, so totals are kept. This reads only releases
and costs no privacy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import shapely
from numpy.typing import NDArray

from ..errors import ParameterError
from ..mechanisms.spatial.domain import Domain
from ..mechanisms.spatial.pieces import pieces
from ..topics.assembly import Released, in_order
from ..topics.config.inputs.places import place_of
from ..topics.releases import Row
from .grids import Box, GridCells, Shapes, grid_cells
from .maps import domain_of
from .tables import FIXED, PARTS

F64 = NDArray[np.float64]


class Figures(NamedTuple):
    """One value of every cell of a grid: (c,) each."""

    value: F64
    stddev: F64
    low: F64
    high: F64


class Regridded(NamedTuple):
    """A release on another grid."""

    grid: str  # "h3" or "geohash"
    release: Released  # its source
    cells: GridCells  # all cells that a released cell meets, ordered by name
    values: Mapping[str, Figures]  # figures of each released value, by its name

    def to_table(self) -> Any:
        """Make an Arrow table: a row for each cell, columns as in `table_of`."""
        size = len(self.cells.names)
        columns = {
            name: pa.array([of(self.release)] * size, kind) for name, (kind, of) in FIXED.items()
        }
        columns[self.grid] = pa.array(self.cells.names, pa.string())
        return pa.table(columns | {n: pa.array(c) for n, c in self._columns()})

    def to_geojson(self) -> dict[str, Any]:
        """Make a GeoJSON collection: a feature for each cell, with its name and values."""
        columns = {name: column.tolist() for name, column in self._columns()}
        features = [
            {
                "type": "Feature",
                "geometry": shapely.geometry.mapping(shape),
                "properties": {self.grid: name} | {n: column[row] for n, column in columns.items()},
            }
            for row, (name, shape) in enumerate(zip(*self.cells, strict=True))
        ]
        return {"type": "FeatureCollection", "features": features}

    def _columns(self) -> Iterator[tuple[str, F64]]:
        for name, figures in self.values.items():
            for suffix, part in PARTS.items():
                yield name + suffix, getattr(figures, part)


def regrid(
    release: Released, *, h3: int | None = None, geohash: int | None = None, lonlat: bool = False
) -> Regridded:
    """Share the cells of a release among all H3 or geohash cells that they meet.

    Further axes, such as the time of day, are added up. Variances add up with squared shares, as if
    the noise of released cells were independent. It is not: cells have the noise of a node above
    them in common, and their counts may be made to add up to it. In tests of whole regions this
    gave 2 to 24 times the real error. Nor do the intervals cover how records lie within a released
    cell.

    Args:
        release: complete release of a spatial pipeline.
        h3: resolution, 0 to 15.
        geohash: length, 1 to 12; give one of the two.
        lonlat: whether the first two axes are longitude and latitude in degrees, whatever their
            names.

    Raises:
        ParameterError: the axes are not longitude and latitude, the level does not exist or makes
            too many cells, or the pipeline is not spatial.
        ExtraError: the libraries of ``hushstream[maps]`` are not installed.
    """
    if (h3 is None) == (geohash is None):
        raise ParameterError("h3, geohash", (h3, geohash), "give one of the two")
    grid, level = ("h3", h3) if h3 is not None else ("geohash", geohash)
    assert level is not None
    domain = domain_of(release)
    box = _degrees(domain, lonlat)
    rows = sorted(release.rows, key=in_order)
    parts = _parts(domain, rows)
    cells = grid_cells(grid, level, _reach(box, parts.shape))
    cell, row, share = _shares(parts, cells.shapes)
    used, place = np.unique(cell, return_inverse=True)
    values = dict(_summed(release, rows, _Shares(place, row, share, len(used))))
    names = tuple(cells.names[one] for one in used.tolist())
    return Regridded(grid, release, GridCells(names, cells.shapes[used]), values)


def _degrees(domain: Domain, lonlat: bool) -> Box:
    """The ends of the first two axes, which must be longitude and latitude."""
    names = domain.names
    if len(names) < 2:
        raise ParameterError("axes", names, "need longitude and latitude, the first two")
    if not lonlat and place_of(names[:2]) != tuple(names[:2]):
        rule = (
            "are not named as longitude and latitude, in this order. If the first two are these, "
            "in degrees, say so: lonlat=True, or --lonlat"
        )
        raise ParameterError("axes", names, rule)
    x, y = domain.axes[:2]
    for axis, most in ((x, 180), (y, 90)):
        if axis.kind == "day" or axis.low < -most or axis.high > most:
            ends = f"{axis.low:g} to {axis.high:g}"
            rule = f"goes from {ends}, which are no degrees from -{most} to {most}"
            raise ParameterError("axes", axis.name, rule)
    return x.low, y.low, x.high, y.high


class _Parts(NamedTuple):
    """Parts of released cells inside the region: shape on the map, row, part of its volume."""

    shape: Shapes
    row: NDArray[np.intp]
    share: F64


def _parts(domain: Domain, rows: list[Row]) -> _Parts:
    codes = np.array([int(str(row.key["cell"]), 16) for row in rows], np.uint64)
    found = pieces(domain, codes)
    # A cell outside the region should be 0. If it is not, its value stays there.
    more = np.array([any(one and one.value for one in row.values.values()) for row in rows], bool)
    out = np.setdiff1d(np.flatnonzero(more), found.cell)
    plain = pieces(replace(domain, polygon=(), cells=(), region=None), codes[out])
    row = np.concatenate([found.cell, out[plain.cell]])
    volume = np.concatenate([found.volume, plain.volume])
    left, right = (
        np.concatenate([getattr(p, s) for p in (found, plain)]) for s in ("left", "right")
    )
    low, high = (
        np.concatenate([getattr(p, s)[:, 1] for p in (found, plain)]) for s in ("low", "high")
    )
    x = np.stack([left[:, 0], right[:, 0], right[:, 1], left[:, 1]], axis=1)
    y = np.stack([low, low, high, high], axis=1)
    shape = shapely.polygons(np.stack([x, y], axis=2))
    return _Parts(shape, row, volume / np.bincount(row, volume, len(codes))[row])


def _reach(box: Box, shapes: Shapes) -> Box:
    """The ends of all shapes; rounding may put them slightly outside the axes."""
    if not len(shapes):
        return box
    west, south, east, north = shapely.total_bounds(shapes).tolist()
    return max(west, box[0]), max(south, box[1]), min(east, box[2]), min(north, box[3])


def _shares(parts: _Parts, shapes: Shapes) -> tuple[NDArray[np.intp], NDArray[np.intp], F64]:
    """Cell, row and share of each overlap; the shares of a row add up to 1."""
    tree = shapely.STRtree(shapes)
    part, cell = tree.query(parts.shape, predicate="intersects")
    area = shapely.area(shapely.intersection(parts.shape[part], shapes[cell]))
    total = np.bincount(part, area, len(parts.shape))
    lost = np.flatnonzero(total == 0)  # too thin to have an area: it goes to the nearest cell
    kept = area > 0
    nearest = tree.nearest(shapely.centroid(parts.shape[lost])) if len(lost) else lost
    part = np.concatenate([part[kept], lost])
    share = np.concatenate([area[kept] / total[part[: kept.sum()]], np.ones(len(lost))])
    return np.concatenate([cell[kept], nearest]), parts.row[part], share * parts.share[part]


class _Shares(NamedTuple):
    place: NDArray[np.intp]
    row: NDArray[np.intp]
    share: F64
    size: int

    def added(self, amounts: F64, power: int = 1) -> F64:
        """(size,) sums of row amounts times their shares to a power."""
        # A row may meet a cell with several parts: add their shares before squaring.
        pair, where = np.unique(self.row * self.size + self.place, return_inverse=True)
        whole = np.bincount(where, self.share)
        weights = whole**power * amounts[pair // self.size]
        found: F64 = np.bincount(pair % self.size, weights, self.size).astype(np.float64)
        return found


def _summed(release: Released, rows: list[Row], shares: _Shares) -> Iterator[tuple[str, Figures]]:
    reach = NormalDist().inv_cdf((1 + release.manifest.confidence_level) / 2)
    for name in release.manifest.value_names:
        told = [row.values.get(name) for row in rows]
        if any(one is None for one in told):
            continue
        known = [one for one in told if one is not None]
        value = shares.added(np.array([float(one.value) for one in known]))
        spread = shares.added(np.array([one.stddev**2 for one in known]), 2)
        stddev = np.sqrt(spread)
        low, high = value - reach * stddev, value + reach * stddev
        if all(one.low >= 0 for one in known):  # never negative in the release, so not here
            low, high = np.maximum(low, 0), np.maximum(high, 0)
        yield name, Figures(value, stddev, low, high)

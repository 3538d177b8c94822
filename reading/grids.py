"""Cells of the grids that other maps use, H3 and geohash, as shapes in degrees.

Names, centres and borders come from the field's libraries. A shape is the cell as drawn on
longitude and latitude: its corners joined by straight lines, cut at the antimeridian, and completed
by the edge of the map if it contains a pole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import shapely
from numpy.typing import NDArray

from ..errors import ParameterError, needs

Shapes: TypeAlias = NDArray[Any]  # of shapely geometries
Box: TypeAlias = tuple[float, float, float, float]
"""West, south, east, north, in degrees."""

MOST_CELLS = 200_000
FINEST = {"h3": 15, "geohash": 12}
_WORLD = shapely.box(-180, -90, 180, 90)
_KM = 111.2  # kilometres of a degree of latitude
_WIDTH = 60.0  # degrees of longitude per query to the library: less than half a turn


class GridCells(NamedTuple):
    """Cells of a grid that may meet a box."""

    names: tuple[str, ...]
    shapes: Shapes


def grid_cells(grid: str, level: int, box: Box) -> GridCells:
    """Find the cells of a grid ("h3" or "geohash") that meet a box in degrees, perhaps a few more.

    Raises:
        ParameterError: the level does not exist, or makes more than `MOST_CELLS` cells.
        ExtraError: the libraries are not installed.
    """
    least = 0 if grid == "h3" else 1
    if not least <= level <= FINEST[grid]:
        raise ParameterError(grid, level, f"must lie between {least} and {FINEST[grid]}")
    return (_hexagons if grid == "h3" else _geohashes)(level, box)


def _refuse_many(grid: str, level: int, cells: float) -> None:
    if cells > MOST_CELLS:
        rule = f"makes about {cells:,.0f} cells of this map, more than {MOST_CELLS:,}: choose less"
        raise ParameterError(grid, level, rule)


def _hexagons(resolution: int, box: Box) -> GridCells:
    """Hexagons whose centre lies in the box or no further from it than their corners."""
    with needs("maps"):
        import h3
    west, south, east, north = box
    ring = math.sin(math.radians(north)) - math.sin(math.radians(south))
    area = math.radians(east - west) * ring * 6371.0**2
    _refuse_many("h3", resolution, area / h3.average_hexagon_area(resolution, "km^2"))
    reach = 2 * h3.average_hexagon_edge_length(resolution, "km") / _KM  # no edge is twice the mean
    south, north = max(south - reach, -90.0), min(north + reach, 90.0)
    # Meridians meet at the poles, so the same distance is more degrees of longitude there.
    narrow = math.cos(math.radians(min(max(abs(south), abs(north)), 89.9)))
    wide = min(reach / narrow, 180.0)
    found: set[str] = set()
    for begin, end in _turns(west - wide, east + wide):
        corners = [(south, begin), (south, end), (north, end), (north, begin)]
        found.update(h3.h3shape_to_cells(h3.LatLngPoly(corners), resolution))
        found.update(h3.latlng_to_cell(*corner, resolution) for corner in corners)
        found.add(h3.latlng_to_cell((south + north) / 2, (begin + end) / 2, resolution))
    names = tuple(sorted(found))
    return GridCells(names, _array([_flat(h3.cell_to_boundary(name)) for name in names]))


def _turns(west: float, east: float) -> Iterable[tuple[float, float]]:
    """Parts of a range of longitudes within -180 to 180, each narrow enough."""
    if east - west >= 360:
        west, east = -180.0, 180.0
    for turn in (-360.0, 0.0, 360.0):
        begin, end = max(west + turn, -180.0), min(east + turn, 180.0)
        parts = math.ceil(max(end - begin, 0) / _WIDTH)
        edges = np.linspace(begin, end, parts + 1).tolist() if parts else []
        yield from pairwise(edges)


def _flat(boundary: Sequence[tuple[float, float]]) -> Any:
    """A cell on the map, from its (latitude, longitude) corners."""
    latitude, longitude = np.array(boundary, float).T
    steps = (np.diff(longitude, append=longitude[:1]) + 180) % 360 - 180
    x, y = longitude[0] + np.concatenate([np.zeros(1), np.cumsum(steps[:-1])]), latitude
    if abs(steps.sum()) > 180:  # all the way round: the rest of its border is the map's edge
        pole, end = math.copysign(90.0, float(latitude.mean())), x[0] + steps.sum()
        x, y = np.append(x, [end, end, x[0]]), np.append(y, [y[0], pole, pole])
    shape = shapely.Polygon(np.stack([x, y], axis=1))
    if x.min() >= -180 and x.max() <= 180:
        return shape
    turned = [shapely.transform(shape, _turned(by)) for by in (-360.0, 0.0, 360.0)]
    return shapely.union_all(shapely.intersection(turned, _WORLD))


def _turned(by: float) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    return lambda corners: corners + np.array([by, 0.0])


def _geohashes(length: int, box: Box) -> GridCells:
    """Geohashes are boxes: half of their bits halve the longitude, the others the latitude."""
    with needs("maps"):
        import pygeohash
    wide, high = 360 / 2 ** ((5 * length + 1) // 2), 180 / 2 ** (5 * length // 2)
    west, south, east, north = box
    columns = range(math.floor((west + 180) / wide), math.ceil((east + 180) / wide))
    rows = range(math.floor((south + 90) / high), math.ceil((north + 90) / high))
    _refuse_many("geohash", length, len(columns) * len(rows))
    found = (
        pygeohash.encode(-90 + (row + 0.5) * high, -180 + (column + 0.5) * wide, length)
        for row in rows
        for column in columns
    )
    names = tuple(sorted(found))
    ends = [pygeohash.get_bounding_box(name) for name in names]
    return GridCells(
        names, _array([shapely.box(e.min_lon, e.min_lat, e.max_lon, e.max_lat) for e in ends])
    )


def _array(shapes: list[Any]) -> Shapes:
    made = np.empty(len(shapes), object)
    made[:] = shapes
    oriented: Shapes = shapely.orient_polygons(made)  # counterclockwise, as GeoJSON wants it
    return oriented

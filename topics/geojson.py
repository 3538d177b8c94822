"""Regions of spatial domains, from GeoJSON.

A mechanism uses the corners exactly as given. They are checked here but never recomputed: another
version of a geometry library could round them differently.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

from ..errors import HushError, ParameterError
from ..mechanisms.spatial.region import Region

Steps: TypeAlias = tuple[str | int, ...]

SLIVER = 1e-9  # share of a polygon's area that may overlap another one, by rounding


class GeoJsonError(HushError, ValueError):
    """A mistake in GeoJSON, with the path to it."""

    def __init__(self, steps: Steps, message: str) -> None:
        where = dotted(steps)
        super().__init__(f"{where}{where and ': '}{message}")
        self.steps = steps
        self.message = message


def dotted(steps: Steps) -> str:
    """A path as people write it.

    >>> dotted(("features", 2, "geometry"))
    'features[2].geometry'
    """
    return "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in steps).lstrip(".")


class _Area(NamedTuple):
    """The coordinates of one polygon, and the path to them."""

    steps: Steps
    rings: list[list[tuple[float, float]]]


def region_of(body: Any) -> Region:
    """The region that a GeoJSON object describes.

    Args:
        body: Polygon, MultiPolygon, or a Feature, FeatureCollection or GeometryCollection of them.

    Raises:
        GeoJsonError: it is not GeoJSON of areas, or an area is not valid.
    """
    areas = list(_areas(body, ()))
    if not areas:
        raise GeoJsonError((), "has no polygon")
    shapes = [_checked(area) for area in areas]
    _apart(areas, shapes)
    try:
        return Region.of(area.rings for area in areas)
    except ParameterError as error:
        raise GeoJsonError((), f"has {error.value} corners: {error.rule}") from error


_PARTS = {"FeatureCollection": "features", "GeometryCollection": "geometries"}


def _areas(body: Any, steps: Steps) -> Iterator[_Area]:
    """Every polygon of a GeoJSON object, whatever it is wrapped in."""
    kind = body.get("type") if isinstance(body, dict) else None
    if isinstance(kind, str) and kind in _PARTS:
        for place, part in enumerate(_listed(body.get(_PARTS[kind]), (*steps, _PARTS[kind]))):
            yield from _areas(part, (*steps, _PARTS[kind], place))
    elif kind == "Feature":
        yield from _areas(body.get("geometry"), (*steps, "geometry"))
    elif kind == "Polygon":
        yield _area(body.get("coordinates"), (*steps, "coordinates"))
    elif kind == "MultiPolygon":
        inner = (*steps, "coordinates")
        for place, part in enumerate(_listed(body.get("coordinates"), inner)):
            yield _area(part, (*inner, place))
    else:
        shown = f"type {json.dumps(kind)}" if isinstance(kind, str) else "this value"
        raise GeoJsonError(steps, f"{shown} must be GeoJSON of areas: Polygon, MultiPolygon, "
                            "or a Feature or FeatureCollection of them")  # fmt: skip


def _area(raw: Any, steps: Steps) -> _Area:
    rings = [_ring(ring, (*steps, place)) for place, ring in enumerate(_listed(raw, steps))]
    if not rings:
        raise GeoJsonError(steps, "needs a ring")
    return _Area(steps, rings)


def _ring(raw: Any, steps: Steps) -> list[tuple[float, float]]:
    ring = [_corner(one, (*steps, place)) for place, one in enumerate(_listed(raw, steps))]
    if len(ring) < 4:
        raise GeoJsonError(steps, f"has {len(ring)} positions: a ring needs 4 or more")
    if ring[0] != ring[-1]:
        raise GeoJsonError(steps, "must end where it begins: repeat its first position at the end")
    return ring


def _corner(raw: Any, steps: Steps) -> tuple[float, float]:
    numbers = [number for part in _listed(raw, steps)[:2] if (number := _number(part)) is not None]
    if len(numbers) < 2:
        raise GeoJsonError(steps, "must be a position: two numbers, longitude first")
    return numbers[0], numbers[1]


def _number(raw: Any) -> float | None:
    """The value as a finite number; None if it is not one."""
    if not isinstance(raw, int | float | Decimal) or isinstance(raw, bool):
        return None
    try:
        number = float(raw)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _listed(raw: Any, steps: Steps) -> list[Any]:
    if not isinstance(raw, list):
        raise GeoJsonError(steps, "must be a list")
    return raw


def _checked(area: _Area) -> Any:
    """The polygon as a shape, checked: rings touch neither themselves nor each other."""
    import shapely  # here: it loads slowly, and few configurations hold polygons

    shape = shapely.Polygon(area.rings[0], area.rings[1:])
    if not shapely.is_valid(shape):
        raise GeoJsonError(area.steps, f"is not a polygon: {shapely.is_valid_reason(shape)}")
    return shape


def _apart(areas: list[_Area], shapes: list[Any]) -> None:
    """Refuse overlapping polygons: by the even-odd rule, their intersection would be outside."""
    import shapely  # here: it takes long to load

    first, second = shapely.STRtree(shapes).query(shapes, predicate="intersects")
    for one, other in zip(first.tolist(), second.tolist(), strict=True):
        if one < other:
            both = shapely.intersection(shapes[one], shapes[other]).area
            if both > SLIVER * min(shapes[one].area, shapes[other].area):
                where = dotted(areas[one].steps)
                raise GeoJsonError(areas[other].steps, f"overlaps {where}: merge them into one")

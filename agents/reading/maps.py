"""Maps and synthetic points from a release of a spatial pipeline: functions of what is public."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa

from ...errors import ParameterError
from ...mechanisms.privhp.sample import sample
from ...mechanisms.spatial.domain import Domain
from ...mechanisms.spatial.smooth import smooth_points
from ...mechanisms.spatial.synthetic import scatter
from ...topics.releases import Row
from .assembly import Released, in_order

COUNT = "count"
STEPS = 1 << 16  # counts are multiples of 1/STEPS records


def domain_of(release: Released) -> Domain:
    """Return the public space of a release.

    Raises:
        ParameterError: the pipeline is not spatial.
    """
    manifest = release.manifest
    if not bytes(manifest.space):
        rule = f"is a pipeline of {manifest.mechanism}, which has no cells: no map can be made"
        raise ParameterError("pipeline", manifest.pipeline, rule)
    return Domain.from_json(json.loads(bytes(manifest.space)))


def cells_of(release: Released) -> dict[str, Any]:
    """Make a GeoJSON collection of a release: one polygon for each cell, with its values.

    The first two axes are taken as longitude and latitude. Properties are ``cell``, both ends of
    the further axes, and ``<value>``, ``<value>_stddev``, ``<value>_low``, ``<value>_high``.

    Args:
        release: a complete one of a spatial pipeline.

    Raises:
        ParameterError: the pipeline is not spatial, or has one axis.
    """
    names = _plane(domain_of(release))
    features = [_feature(row, names) for row in sorted(release.rows, key=in_order)]
    return {"type": "FeatureCollection", "features": features}


def points_of(release: Released, n: int | None = None, seed: int = 0, smooth: bool = False) -> Any:
    """Draw synthetic points from a release: an Arrow table with a column for each axis.

    The release alone decides: points cost no privacy, and the same seed gives the same points
    everywhere. They lie in the domain's polygons or listed cells, where there are any.

    Args:
        release: a complete one of a spatial pipeline.
        n: number of points; None: as many as the released counts say.
        seed: another seed gives other points of the same distribution.
        smooth: whether density goes on across the edges of cells, instead of being uniform in each;
            points are then spread evenly (`smooth_points`).

    Raises:
        ParameterError: the pipeline is not spatial; ``n`` or ``seed`` is negative.
    """
    domain = domain_of(release)
    rows = sorted(release.rows, key=in_order)
    codes = np.array([int(str(row.key["cell"]), 16) for row in rows], np.uint64)
    counts = np.array([round(_count(row) * STEPS) for row in rows], np.int64)
    if smooth:
        whole = round(int(counts.sum()) / STEPS) if n is None else n
        return pa.table(smooth_points(domain, codes, counts, whole, seed))
    if n is None:
        return pa.table(scatter(domain, codes, counts, STEPS, seed))
    return pa.table(sample(domain, codes, counts, n, seed))


def points_as_geojson(domain: Domain, points: Any) -> dict[str, Any]:
    """Make a GeoJSON collection of points; further axes are properties.

    Args:
        domain: of the release.
        points: by `points_of`.

    Raises:
        ParameterError: the domain has one axis.
    """
    x, y = _plane(domain)
    features = []
    for row in points.to_pylist():
        place = {"type": "Point", "coordinates": [row.pop(x), row.pop(y)]}
        features.append({"type": "Feature", "geometry": place, "properties": row})
    return {"type": "FeatureCollection", "features": features}


def _plane(domain: Domain) -> tuple[str, str]:
    """Longitude and latitude."""
    if domain.dimensions < 2:
        raise ParameterError("axes", domain.names, "GeoJSON needs longitude and latitude")
    return domain.names[0], domain.names[1]


def _feature(row: Row, names: tuple[str, str]) -> dict[str, Any]:
    (west, east), (south, north) = (row.box[name] for name in names)
    ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    told: dict[str, Any] = dict(row.key)
    for name in row.box.keys() - set(names):
        told[f"{name}_low"], told[f"{name}_high"] = row.box[name]
    for name, one in row.values.items():
        if one is not None:
            told |= {name: one.value, f"{name}_stddev": one.stddev}
            told |= {f"{name}_low": one.low, f"{name}_high": one.high}
    shape = {"type": "Polygon", "coordinates": [ring]}
    return {"type": "Feature", "geometry": shape, "properties": told}


def _count(row: Row) -> float:
    one = row.values[COUNT]
    return 0.0 if one is None else max(float(one.value), 0.0)

"""Maps and synthetic points from a release of a spatial pipeline: functions of public data."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ..errors import ParameterError
from ..mechanisms.columns import F64, I64
from ..mechanisms.spatial.domain import U64, Domain
from ..mechanisms.spatial.earlier import LeafCounts, divided
from ..mechanisms.spatial.sample import sample
from ..mechanisms.spatial.smooth import smoothed, spread_points
from ..mechanisms.spatial.synthetic import scatter
from ..topics.assembly import Released, in_order
from ..topics.releases import Row
from .tables import PARTS

COUNT = "count"
STEPS = 1 << 16  # counts are multiples of 1/STEPS records


def domain_of(release: Released) -> Domain:
    """Return the public space of a release; raises `ParameterError` if it has none."""
    manifest = release.manifest
    if not bytes(manifest.space):
        what = "a view" if release.of_view else f"a pipeline of {manifest.mechanism}"
        rule = f"is {what}, which has no cells: no map can be made"
        raise ParameterError("pipeline", manifest.pipeline, rule)
    return Domain.from_json(json.loads(bytes(manifest.space)))


def cells_of(release: Released) -> dict[str, Any]:
    """Make a GeoJSON collection of a complete release: one polygon for each cell, with its values.

    The first two axes are taken as longitude and latitude. Properties are ``cell``, both ends of
    the further axes, and ``<value>``, ``<value>_stddev``, ``<value>_low``, ``<value>_high``.

    Raises:
        ParameterError: the pipeline is not spatial, or has one axis.
    """
    names = _plane(domain_of(release))
    features = [_feature(row, names) for row in sorted(release.rows, key=in_order)]
    return {"type": "FeatureCollection", "features": features}


def map_before(every: Iterable[Released], release: Released) -> Released | None:
    """Find the last map of the newest window that ended before this release's window began.

    Maps of another space, such as a pipeline's that this one follows, are passed over.
    """
    start, space = release.window.start, bytes(release.manifest.space)
    ended = (
        one
        for one in every
        if one.final and one.window.end <= start and bytes(one.manifest.space) == space
    )
    return max(ended, key=lambda one: one.window.start, default=None)


def points_of(
    release: Released,
    n: int | None = None,
    seed: int = 0,
    smooth: bool = False,
    earlier: Released | None = None,
) -> Any:
    """Draw synthetic points from a release: an Arrow table with a column for each axis.

    Points depend only on releases, so they cost no privacy, and the same seed gives the same points
    everywhere. They lie in the domain's polygons or listed cells, if it has any.

    Args:
        release: complete release of a spatial pipeline.
        n: number of points; None: the sum of the released counts.
        seed: seed of the draw; another gives other points of the same distribution.
        smooth: whether density goes on across the edges of cells, instead of being uniform in each;
            points are then spread evenly (`spread_points`).
        earlier: a map of an earlier window (`map_before`): cells are divided in its proportions, as
            far as the two maps agree (`mechanisms.spatial.earlier`).

    Raises:
        ParameterError: the pipeline is not spatial; ``earlier`` is a map of another space; ``n`` or
            ``seed`` is negative.
    """
    domain, leaves = domain_of(release), _leaves(release)
    known = None if earlier is None else _known(release, earlier)
    whole = round(int(leaves.steps.sum()) / STEPS) if n is None else n
    if smooth:
        fine = _fine(domain, leaves, known, True)
        return pa.table(spread_points(domain, fine, (leaves.code, leaves.steps), whole, seed))
    codes, counts = leaves.code, leaves.steps
    if known is not None:
        codes, parts = _fine(domain, leaves, known, False)
        counts = np.rint(parts).astype(np.int64)
    if n is None:
        return pa.table(scatter(domain, codes, counts, STEPS, seed))
    return pa.table(sample(domain, codes, counts, n, seed))


class _Leaves(NamedTuple):
    code: U64  # (m,)
    steps: I64  # (m,) in steps of 1/STEPS records
    variance: F64  # (m,) records squared


def _leaves(release: Released) -> _Leaves:
    rows = sorted(release.rows, key=in_order)
    codes = np.array([int(str(row.key["cell"]), 16) for row in rows], np.uint64)
    counts = np.array([round(_count(row) * STEPS) for row in rows], np.int64)
    found = (row.values[COUNT] for row in rows)
    stddev = [0.0 if one is None else float(one.stddev) for one in found]
    return _Leaves(codes, counts, np.array(stddev, np.float64) ** 2)


def _known(release: Released, earlier: Released) -> LeafCounts | None:
    """Leaf counts of an earlier map, in steps of 1/STEPS records; None if it has none."""
    other = earlier.manifest
    if bytes(release.manifest.space) != bytes(other.space):
        rule = "is a map of another space: give one of the same"
        raise ParameterError("earlier", f"{other.pipeline}, {other.window.start}", rule)
    before = _leaves(earlier)
    return LeafCounts(before.code, before.steps.astype(np.float64)) if len(before.code) else None


def _fine(
    domain: Domain, leaves: _Leaves, known: LeafCounts | None, smooth: bool
) -> tuple[U64, F64]:
    """Finer cells and their counts, in steps of 1/STEPS records."""
    now = LeafCounts(leaves.code, leaves.steps.astype(np.float64))
    even = LeafCounts(*smoothed(domain, *now)) if smooth else None
    if known is None or not len(now.code):
        return now if even is None else even
    if smooth:
        known = LeafCounts(*smoothed(domain, *known))
    variance = float(np.median(leaves.variance))
    newer, earlier = (LeafCounts(one.code, one.held / STEPS) for one in (now, known))
    codes, counts = divided(domain, newer, earlier, variance, even)
    return codes, counts * STEPS


def points_as_geojson(domain: Domain, points: Any) -> dict[str, Any]:
    """Make a GeoJSON collection of points from `points_of`; further axes become properties.

    Raises `ParameterError` if the domain has one axis.
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
            told |= {name + suffix: getattr(one, part) for suffix, part in PARTS.items()}
    shape = {"type": "Polygon", "coordinates": [ring]}
    return {"type": "Feature", "geometry": shape, "properties": told}


def _count(row: Row) -> float:
    one = row.values[COUNT]
    return 0.0 if one is None else max(float(one.value), 0.0)

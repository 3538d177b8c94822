"""Maps and points of releases: inside the region, as many as released, the same in every run."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from hushstream.errors import ParameterError
from hushstream.offline.simulate import simulate
from hushstream.reading.maps import (
    cells_of,
    domain_of,
    map_before,
    points_as_geojson,
    points_of,
)
from hushstream.topics.assembly import Released
from hushstream.topics.config.load import loads
from hushstream.topics.releases import Manifest, Row, decode_public
from msgspec import Raw, structs

from ..recorded.pipelines import COMMON, HEAD, SECRET, SETTINGS, WINDOW, rows
from ..topics.test_assembly import complete, records

TRIANGLE = "polygon = [[0.0, -1.0], [2.0, -1.0], [0.0, 1.0]]\n"


def last(case: str) -> Released:
    return max(complete(records(case)[0], case), key=lambda r: (r.window.start, r.trigger))


def with_polygon() -> Released:
    text = HEAD.format(partitioner="none") + COMMON.format(name="phdstream", window=WINDOW)
    config = loads(text + SETTINGS["phdstream"] + TRIANGLE, environ={})
    _, engine = simulate(config, rows(), "trips", SECRET)
    outs = engine.outs["hush.phdstream.releases.v1"]
    found: list[Row | Manifest] = [
        r for o in outs if (r := decode_public(o.headers, o.value)) is not None
    ]
    return complete(found, "phdstream")[-1]


@pytest.mark.parametrize("case", ["phdstream", "privhp"])
def test_cells_are_polygons_that_divide_the_domain(case: str) -> None:
    release = last(case)
    body = json.loads(json.dumps(cells_of(release)))
    assert body["type"] == "FeatureCollection" and len(body["features"]) == len(release.rows)
    area = 0.0
    for feature in body["features"]:
        (ring,) = feature["geometry"]["coordinates"]
        assert ring[0] == ring[-1] and len(ring) == 5
        (west, south), (east, north) = ring[0], ring[2]
        assert 0 <= west < east <= 2 and -1 <= south < north <= 1
        turned = sum(a[0] * b[1] - b[0] * a[1] for a, b in pairwise(ring))
        assert turned > 0  # counterclockwise, as RFC 7946 demands
        area += turned / 2
        (row,) = [r for r in release.rows if r.key["cell"] == feature["properties"]["cell"]]
        assert feature["properties"]["count"] == row.values["count"].value
        assert feature["properties"]["count_low"] == row.values["count"].low
    assert area == pytest.approx(4.0)


@pytest.mark.parametrize("case", ["phdstream", "privhp"])
def test_points_lie_in_their_cells_as_many_as_released(case: str) -> None:
    release = last(case)
    frame = points_of(release).to_pandas()
    assert frame.equals(points_of(release).to_pandas())
    assert not frame.equals(points_of(release, seed=1).to_pandas())
    for row in release.rows:
        (west, east), (south, north) = row.box["x"], row.box["y"]
        inside = frame.x.between(west, east, "left") & frame.y.between(south, north, "left")
        assert abs(inside.sum() - max(row.values["count"].value, 0)) < 1
    assert len(points_of(release, n=50)) == 50 and points_of(release, n=0).num_rows == 0


def test_points_keep_to_the_polygon_that_the_manifest_states() -> None:
    release = with_polygon()
    assert domain_of(release).polygon == ((0.0, -1.0), (2.0, -1.0), (0.0, 1.0))
    frame = points_of(release, n=400, seed=3).to_pandas()
    assert len(frame) == 400 and (frame.x + frame.y <= 1 + 1e-9).all()
    assert np.isfinite(frame.to_numpy()).all()


def test_points_as_geojson() -> None:
    release = last("privhp")
    drawn = points_of(release, n=3)
    body = points_as_geojson(domain_of(release), drawn)
    places = [feature["geometry"]["coordinates"] for feature in body["features"]]
    assert places == [[row["x"], row["y"]] for row in drawn.to_pylist()]
    assert all(feature["properties"] == {} for feature in body["features"])


def test_a_pipeline_without_a_space_has_no_map() -> None:
    for make in (cells_of, points_of, domain_of):
        with pytest.raises(ParameterError, match="histogram, which has no cells"):
            make(last("histogram-plain"))


@pytest.mark.parametrize("case", ["phdstream", "privhp"])
def test_smooth_points_are_as_many_and_lie_in_the_domain(case: str) -> None:
    release = last(case)
    total = sum(max(float(row.values["count"].value), 0.0) for row in release.rows)
    points, plain = points_of(release, seed=3, smooth=True), points_of(release, seed=3)
    assert abs(len(points) - total) <= 1 and points.column_names == plain.column_names
    assert points.equals(points_of(release, seed=3, smooth=True)) and not points.equals(plain)
    x, y = (points[name].to_numpy() for name in points.column_names)
    assert ((x >= 0) & (x <= 2) & (y >= -1) & (y <= 1)).all()
    assert len(points_of(release, 77, smooth=True)) == 77


def every(case: str) -> list[Released]:
    return complete(records(case)[0], case)


@pytest.mark.parametrize("case", ["phdstream", "privhp"])
@pytest.mark.parametrize("smooth", [False, True])
def test_points_after_an_earlier_map_keep_the_counts_of_cells(case: str, smooth: bool) -> None:
    release = last(case)
    before = map_before(every(case), release)
    assert before is not None
    drawn = points_of(release, seed=3, smooth=smooth, earlier=before)
    assert drawn.equals(points_of(release, seed=3, smooth=smooth, earlier=before))
    total = sum(max(float(row.values["count"].value), 0.0) for row in release.rows)
    frame = drawn.to_pandas()
    assert abs(len(frame) - total) <= 0.5 * len(release.rows)
    assert len(points_of(release, 77, smooth=smooth, earlier=before)) == 77
    assert frame.x.between(0, 2).all() and frame.y.between(-1, 1).all()


def test_the_map_before_is_the_last_one_of_the_newest_window_that_has_ended() -> None:
    found = sorted(every("phdstream"), key=lambda r: (r.window.start, r.trigger))
    newest = found[-1]
    before = map_before(found, newest)
    assert before is not None and before.final
    assert before.window.end <= newest.window.start
    later = [r for r in found if before.window.start < r.window.start < newest.window.start]
    assert not [r for r in later if r.final]
    assert map_before(found, found[0]) is None
    assert map_before(reversed(found), newest) == before


def test_a_follower_goes_on_from_the_map_of_its_predecessor_if_the_space_is_the_same() -> None:
    found = sorted(every("phdstream"), key=lambda r: (r.window.start, r.trigger))
    before = map_before(found, found[-1])
    assert before is not None
    told = [structs.replace(one, pipeline="next", follows=("phdstream",)) for one in
            found[-1].manifests]  # fmt: skip
    first = Released(found[-1].rows, tuple(told))
    assert map_before([*found[:-1], first], first) == before
    drawn = points_of(first, seed=3, earlier=before)
    assert drawn.equals(points_of(found[-1], seed=3, earlier=before))
    wider = [structs.replace(one, space=Raw(b'{"axes":[]}')) for one in told]
    assert map_before(found, Released(first.rows, tuple(wider))) is None


def test_an_earlier_map_of_another_space_is_refused() -> None:
    with pytest.raises(ParameterError, match="another space"):
        points_of(last("phdstream"), earlier=last("privhp"))

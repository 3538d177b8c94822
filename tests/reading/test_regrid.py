"""Releases on other grids: totals stay, shares follow areas, and variances follow shares."""

from __future__ import annotations

import json
import math
import re
from functools import cache
from typing import Any

import h3
import msgspec
import numpy as np
import pygeohash
import pytest
import shapely
from hushstream.errors import ParameterError
from hushstream.offline.simulate import simulate
from hushstream.reading.regrid import Regridded, regrid
from hushstream.topics.assembly import Released
from hushstream.topics.config.load import loads
from hushstream.topics.releases import Row, Value, decode_public
from hypothesis import given, settings
from hypothesis import strategies as st

from ..recorded.pipelines import COMMON, HEAD, SECRET, SETTINGS, WINDOW, rows
from ..topics.test_assembly import complete
from .test_maps import last

AXES = '{ name = "x", low = 0, high = 2 }, { name = "y", low = -1, high = 1 }'
HOLED = """region = '''{"type": "Polygon", "coordinates": [
  [[0, -1], [2, -1], [2, 1], [0, 1], [0, -1]],
  [[0.5, -0.5], [1.5, -0.5], [1.5, 0.5], [0.5, -0.5]]]}'''
"""
Z95 = 1.959963984540054


@cache
def made(case: str, axes: str = AXES, more: str = "", distinct: bool = False) -> Released:
    """The newest release of a case on other axes; ``distinct`` gives each record its own unit."""
    x, y = re.findall(r'name = "(\w+)"', axes)
    settings = SETTINGS[case].replace(AXES, axes)
    settings = settings.replace("{ x = ", f"{{ {x} = ").replace(", y = ", f", {y} = ")
    text = HEAD.format(partitioner="none") + COMMON.format(name=case, window=WINDOW)
    config = loads(text + settings + more, environ={})
    data = [row | ({"user": f"u{n}"} if distinct else {}) for n, row in enumerate(rows())]
    _, engine = simulate(config, data, "trips", SECRET)
    outs = engine.outs[f"hush.{case}.releases.v1"]
    found = [r for o in outs if (r := decode_public(o.headers, o.value)) is not None]
    return complete(found, case)[-1]


NAMED = AXES.replace('"x"', '"pickup_lon"').replace('"y"', '"pickup_lat"')


def total(release: Released, name: str = "count") -> float:
    return math.fsum(float(one.value) for r in release.rows if (one := r.values[name]) is not None)


GRIDS = st.one_of(
    st.integers(0, 5).map(lambda n: {"h3": n}), st.integers(1, 5).map(lambda n: {"geohash": n})
)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    grid=GRIDS,
    case=st.sampled_from(["privhp", "phdstream"]),
    more=st.sampled_from(["", HOLED]),
    west=st.floats(-180, 178),
    south=st.floats(-90, 88),
)
def test_totals_are_conserved_wherever_the_map_lies(
    grid: dict[str, int], case: str, more: str, west: float, south: float
) -> None:
    release = moved(made(case, more=more), west, south)
    shared = regrid(release, lonlat=True, **grid)
    for name, figures in shared.values.items():
        assert math.fsum(figures.value.tolist()) == pytest.approx(total(release, name), abs=1e-6)
        variance = math.fsum((figures.stddev**2).tolist())
        assert (
            0
            < variance
            <= (1 + 1e-9)
            * math.fsum(one.stddev**2 for r in release.rows if (one := r.values[name]) is not None)
        )
    if case == "privhp":
        assert (shared.values["count"].value >= 0).all()
    names = shared.cells.names
    assert list(names) == sorted(set(names)) and len(names) == len(shared.values["count"].value)


def moved(release: Released, west: float, south: float) -> Released:
    """The release with its map moved to another place."""
    space = json.loads(bytes(release.manifest.space))
    (x, y), dx, dy = space["axes"], west, south + 1
    for axis, by in ((x, dx), (y, dy)):
        axis["low"], axis["high"] = axis["low"] + by, min(axis["high"] + by, 180.0)
    y["high"] = min(y["high"], 90.0)
    for polygon in space.get("region", {"coordinates": []})["coordinates"]:
        for ring in polygon:
            ring[:] = [[a + dx, b + dy] for a, b in ring]
    raw = msgspec.Raw(json.dumps(space).encode())
    manifests = tuple(msgspec.structs.replace(m, space=raw) for m in release.manifests)
    return Released(release.rows, manifests)


def test_a_cell_within_a_hexagon_is_all_its_own() -> None:
    """At resolution 0 the map is in two hexagons, and almost every cell is inside one of them."""
    release = made("privhp")
    shared = regrid(release, h3=0, lonlat=True)
    by_name = dict(zip(shared.cells.names, range(9), strict=False))
    wanted: dict[str, list[Value]] = {name: [] for name in by_name}
    cut = 0.0
    for row in release.rows:
        (west, east), (south, north) = row.box["x"], row.box["y"]
        homes = {h3.latlng_to_cell(y, x, 0) for x in (west, east) for y in (south, north)}
        one = row.values["count"]
        assert one is not None
        if len(homes) == 1:
            wanted[homes.pop()].append(one)
        else:
            cut += float(one.value)
    for name, ones in wanted.items():
        found = shared.values["count"].value[by_name[name]]
        least = sum(float(one.value) for one in ones)
        assert least - 1e-9 <= found <= least + cut + 1e-9


def test_shares_variances_and_intervals_by_hand() -> None:
    """Cells of geohash 3 are 1.40625° square, so they cut the map's root into four parts."""
    release = one_cell(count=80, stddev=6.0)
    shared = regrid(release, geohash=3, lonlat=True)
    x = np.clip(np.array([0, 1.40625, 2]), 0, 2)
    y = np.array([-1, 0, 1])
    wide, high = np.diff(x) / 2, np.diff(y) / 2
    wanted = {
        pygeohash.encode(y[j] + 0.1, x[i] + 0.1, 3): wide[i] * high[j]
        for i in range(2) for j in range(2)
    }  # fmt: skip
    assert shared.cells.names == tuple(sorted(wanted))
    share = np.array([wanted[name] for name in shared.cells.names])
    figures = shared.values["count"]
    np.testing.assert_allclose(figures.value, 80 * share)
    np.testing.assert_allclose(figures.stddev, 6 * share)
    np.testing.assert_allclose(figures.low, np.maximum(80 * share - Z95 * 6 * share, 0))
    np.testing.assert_allclose(figures.high, 80 * share + Z95 * 6 * share)
    signed = regrid(one_cell(count=-2, stddev=6.0, low=-13.8), geohash=3, lonlat=True)
    assert (signed.values["count"].low < 0).all()
    floored = regrid(one_cell(count=3, stddev=6.0, low=0.0), geohash=3, lonlat=True)
    assert (floored.values["count"].low == 0).all()


def one_cell(count: float, stddev: float, low: float | None = None) -> Released:
    """A release whose only cell is the whole map."""
    release = made("privhp")
    ends = (count - Z95 * stddev if low is None else low, count + Z95 * stddev)
    row = Row("", "", "p", release.window, 1, True, {"cell": "0000000000000001"},
              {"count": Value(count, stddev, *ends)})  # fmt: skip
    return Released((row,), release.manifests)


def most_of_nothing(cells: list[Value], alarm: float) -> float:
    """Bound that the positive parts of the cells' Laplace draws exceed with chance ``alarm``.

    A draw of scale b is negative half of the time, and otherwise exponential, so the moment
    generating function of its positive part is (1 + 1/(1-λb))/2.
    """
    scales = np.array([one.stddev / math.sqrt(2) for one in cells])
    slopes = np.linspace(0.001, 0.999, 999)[:, None] / scales.max()
    moments = np.log((1 + 1 / (1 - slopes * scales)) / 2).sum(axis=1)
    return float(((moments - math.log(alarm)) / slopes[:, 0]).min())


def test_what_is_released_beside_a_hole_stays_out_of_it() -> None:
    """The hole gets only the counts of cells that touch the region with nothing but their border.

    These cells hold no record. So each count is at most the positive part of its sum's Laplace
    noise, which consistency lowers; their sum exceeds the bound with chance 10⁻⁵ (Chernoff).
    """
    release = made("privhp", more=HOLED, distinct=True)
    shared = regrid(release, geohash=5, lonlat=True)
    hole = shapely.Polygon([(0.5, -0.5), (1.5, -0.5), (1.5, 0.5)])
    boxes = [shapely.box(*(row.box[n][end] for end in (0, 1) for n in "xy"))
             for row in release.rows]  # fmt: skip
    values = [one for row in release.rows if (one := row.values["count"]) is not None]
    empty = [v for v, b in zip(values, boxes, strict=True) if hole.buffer(1e-9).contains(b)]
    beside, noise = sum(one.value for one in empty), most_of_nothing(empty, 1e-5)
    inside = shapely.within(shared.cells.shapes, hole.buffer(-1e-6))
    assert shared.values["count"].value[inside].sum() <= beside < noise
    assert 0 < noise < 0.08 * sum(one.value for one in values)
    whole = regrid(one_cell(1600.0, 1.0), geohash=5, lonlat=True)
    there = shapely.within(whole.cells.shapes, hole)
    # Without the hole, this place has an eighth of the map, less the cells on its border.
    assert there.sum() > 100 and 150 < whole.values["count"].value[there].sum() <= 200


def test_axes_are_taken_for_degrees_where_their_names_say_so() -> None:
    named = made("privhp", NAMED)
    assert regrid(named, h3=4).cells.names == regrid(made("privhp"), h3=4, lonlat=True).cells.names
    with pytest.raises(ParameterError, match="--lonlat") as error:
        regrid(made("privhp"), h3=4)
    assert error.value.value == ("x", "y")
    swapped = made("privhp", NAMED.replace("lon", "l_").replace("lat", "lon").replace("l_", "lat"))
    with pytest.raises(ParameterError, match="in this order"):
        regrid(swapped, h3=4)


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        (AXES.replace("high = 2", "high = 200"), "x = 'x'|x goes|0 to 200"),
        (AXES.replace("low = -1", "low = -91"), "-91 to 1, which are no degrees from -90 to 90"),
    ],
)
def test_axes_that_are_no_degrees_are_refused(axes: str, said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        regrid(made("privhp", axes), h3=2, lonlat=True)


@pytest.mark.parametrize("grid", [{}, {"h3": 3, "geohash": 3}])
def test_one_grid_is_to_be_named(grid: dict[str, int]) -> None:
    with pytest.raises(ParameterError, match="one of the two"):
        regrid(made("privhp"), lonlat=True, **grid)


def test_what_is_no_map_is_refused() -> None:
    with pytest.raises(ParameterError, match="no map can be made"):
        regrid(last("histogram-plain"), h3=3)


def shown(shared: Regridded) -> Any:
    return json.loads(json.dumps(shared.to_geojson()))


@pytest.mark.parametrize("grid", [{"h3": 4}, {"geohash": 4}])
def test_table_and_geojson_say_the_same(grid: dict[str, int]) -> None:
    shared = regrid(made("phdstream"), lonlat=True, **grid)
    table, features = shared.to_table().to_pylist(), shown(shared)["features"]
    assert len(table) == len(features) == len(shared.cells.names) > 3
    for row, feature in zip(table, features, strict=True):
        assert {n: row[n] for n in feature["properties"]} == feature["properties"]
        ring = shapely.geometry.shape(feature["geometry"]).exterior
        assert ring.is_ccw and ring.is_simple
    first = table[0]
    assert list(first)[:6] == ["window_start", "window_end", "trigger", "released", "final",
                               next(iter(grid))]  # fmt: skip
    assert {"count", "count_stddev", "count_low", "count_high", "unbiased"} <= set(first)

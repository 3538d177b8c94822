"""Pieces of cells inside a public region: areas, and points that are uniform inside it.

Covers: mechanisms/spatial/region.py
"""

from __future__ import annotations

import json

import numpy as np
import pytest
import shapely
from hushstream.errors import ParameterError
from hushstream.mechanisms.spatial.domain import Axis, Domain
from hushstream.mechanisms.spatial.pieces import pieces, trapezoids
from hushstream.mechanisms.spatial.region import Region, in_polygon
from hushstream.mechanisms.spatial.sample import sample
from hushstream.mechanisms.spatial.synthetic import range_counts, scatter
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

AXES = (Axis("x", -1.0, 3.0), Axis("y", 0.0, 2.0))
STAR = ((-0.9, 0.1), (2.9, 0.4), (0.2, 1.9), (1.1, -0.5), (2.5, 1.7))  # crosses itself
TRIANGLE = ((-0.5, 0.2), (2.4, 0.6), (0.3, 1.8))


def inside(ring: tuple[tuple[float, float], ...], points: dict[str, np.ndarray]) -> np.ndarray:
    return in_polygon((ring,), points["x"], points["y"])


def ring_of(seed: int, corners: int) -> tuple[tuple[float, float], ...]:
    draw = np.random.default_rng(seed)
    return tuple(map(tuple, (draw.random((corners, 2)) * [4.4, 2.4] - [1.2, 0.2]).tolist()))


@given(st.integers(0, 10_000), st.integers(3, 9), st.integers(0, 4))
def test_areas_are_those_of_a_fine_grid(seed: int, corners: int, level: int) -> None:
    """Compared with the number of grid midpoints inside by the even-odd rule."""
    ring = ring_of(seed, corners)
    domain = Domain(AXES, 8, "binary", ring)
    codes = np.arange(1 << level, 2 << level, dtype=np.uint64)
    found = pieces(domain, codes)
    area = np.bincount(found.cell, found.volume, len(codes))
    low, high = domain.boxes(codes)
    middle = (np.arange(120) + 0.5) / 120
    for row in range(len(codes)):
        x, y = (low[row] + middle[:, None] * (high - low)[row]).T
        gx, gy = (part.ravel() for part in np.meshgrid(x, y))
        share = in_polygon((ring,), gx, gy).mean()
        size = np.prod((high - low)[row])
        assert abs(area[row] / size - share) < 0.05


def test_trapezoids_of_a_ring_that_crosses_itself_have_its_even_odd_area() -> None:
    shape = trapezoids((STAR,))
    area = ((shape[:, 1] - shape[:, 0]) * (shape[:, 4:6] - shape[:, 2:4]).sum(axis=1) / 2).sum()
    draw = np.random.default_rng(1).random((400_000, 2)) * [4, 3] + [-1, -1]
    assert area == pytest.approx(in_polygon((STAR,), *draw.T).mean() * 12, rel=0.01)


@pytest.mark.parametrize("ring", [STAR, TRIANGLE])
def test_no_synthetic_point_lies_outside_the_polygon(ring) -> None:
    domain = Domain(AXES, 8, "binary", ring)
    codes = np.arange(16, 32, dtype=np.uint64)
    codes = codes[domain.touches(codes)]
    counts = np.full(len(codes), 400)
    assert inside(ring, scatter(domain, codes, counts)).all()
    points = sample(domain, codes, counts, 20_000)
    assert len(points["x"]) == 20_000 and inside(ring, points).all()


def test_points_are_uniform_in_the_polygon() -> None:
    """Compared with rejection sampling from the box: coordinates have the same distribution."""
    domain = Domain(AXES, 8, "binary", TRIANGLE)
    ours = scatter(domain, np.ones(1, np.uint64), np.array([20_000]))
    draw = np.random.default_rng(2).random((100_000, 2)) * [4, 2] + [-1, 0]
    wanted = draw[in_polygon((TRIANGLE,), *draw.T)]
    assert stats.ks_2samp(ours["x"], wanted[:, 0]).pvalue > 1e-4
    assert stats.ks_2samp(ours["y"], wanted[:, 1]).pvalue > 1e-4
    skew = stats.ks_2samp(ours["x"] * ours["y"], wanted[:, 0] * wanted[:, 1])
    assert skew.pvalue > 1e-4


def test_a_range_outside_the_polygon_counts_nothing_and_inside_everything() -> None:
    domain = Domain(AXES, 8, "binary", TRIANGLE)
    low = np.array([[-1.0, 1.9], [-1.0, 0.0], [-1.0, 0.0]])
    high = np.array([[3.0, 2.0], [3.0, 2.0], [3.0, 1.0]])
    found = range_counts(domain, np.ones(1, np.uint64), np.array([1000]), low, high)
    assert found[0] == 0 and found[1] == pytest.approx(1000)
    draw = np.random.default_rng(3).random((400_000, 2)) * [4, 2] + [-1, 0]
    kept = draw[in_polygon((TRIANGLE,), *draw.T)]
    assert found[2] == pytest.approx(1000 * (kept[:, 1] < 1).mean(), rel=0.02)


def test_a_leaf_above_listed_cells_has_its_points_in_those_cells() -> None:
    domain = Domain(AXES, 4, "binary", (), (0b10101, 0b1010, 0b11110))  # nested: counted once
    points = scatter(domain, np.ones(1, np.uint64), np.array([9000]))
    codes, keep = domain.locate(points)
    assert keep.all()
    share = np.mean(codes == 0b11110)
    assert share == pytest.approx(1 / 3, abs=0.02)  # one finest cell, and one twice as large
    everything = range_counts(domain, np.ones(1, np.uint64), np.array([9]),
                              np.array([[-1.0, 0.0]]), np.array([[3.0, 2.0]]))  # fmt: skip
    assert everything[0] == pytest.approx(9)


def test_a_leaf_without_a_part_in_the_region_has_no_points() -> None:
    domain = Domain(AXES, 8, "binary", TRIANGLE)
    far = np.array([0b1_1111_1111], np.uint64)  # the upper right corner
    assert len(scatter(domain, far, np.array([50]))["x"]) == 0
    points = sample(domain, np.array([0b1_1111_1111, 1], np.uint64), np.array([50, 1]), 500)
    assert inside(TRIANGLE, points).all()


def ringed(*corners: float) -> tuple[tuple[float, float], ...]:
    """The ring of a box, from its west, south, east and north ends."""
    west, south, east, north = corners
    return ((west, south), (east, south), (east, north), (west, north))


LAKE, ISLAND = ringed(0.1, 0.3, 1.3, 1.6), ringed(0.4, 0.6, 0.9, 1.1)
HOLED = Region(
    (
        (ringed(-0.8, 0.1, 1.7, 1.9), LAKE, ((1.35, 0.2), (1.65, 0.3), (1.5, 1.8))),
        (ISLAND,),  # inside the hole of the first
        (((2.0, 0.0), (2.9, 0.0), (2.5, 1.9)),),
    )
)
SHAPE = shapely.MultiPolygon([(p[0], p[1:]) for p in HOLED.polygons])


@pytest.mark.parametrize("split", ["binary", "all"])
def test_no_point_lies_in_a_hole_and_none_between_the_polygons(split) -> None:
    domain = Domain(AXES, 4, split, region=HOLED)
    codes = np.arange(1 << 4, 1 << 5, dtype=np.uint64) if split == "binary" else np.arange(
        1 << 8, 1 << 9, dtype=np.uint64)  # fmt: skip
    counts = np.full(len(codes), 500)
    drawn = sample(domain, codes, counts, 20_000, seed=3)
    scattered = scatter(domain, codes, counts)
    assert len(drawn["x"]) == 20_000 and len(scattered["x"]) > 5000
    for found in (drawn, scattered):
        assert shapely.intersects_xy(SHAPE.buffer(1e-9), found["x"], found["y"]).all()
        assert shapely.intersects_xy(shapely.Polygon(ISLAND), found["x"], found["y"]).any()


def test_range_counts_leave_holes_out() -> None:
    domain = Domain(AXES, 0, region=HOLED)
    root, count = np.ones(1, np.uint64), np.array([1000])
    boxes = np.array([(0.1, 0.3, 0.4, 1.6), (0.4, 0.6, 0.9, 1.1), (-1, 0, 3, 2), (0, 0, 1.5, 1.5)])
    found = range_counts(domain, root, count, boxes[:, :2], boxes[:, 2:])
    shares = [SHAPE.intersection(shapely.box(*box)).area / SHAPE.area for box in boxes]
    np.testing.assert_allclose(found, np.array(shares) * 1000, atol=1e-9)
    assert found[0] == 0 and found[1] > 0 and found[2] == pytest.approx(1000)


@given(st.integers(0, 2**32))
def test_records_are_kept_where_the_region_is(seed: int) -> None:
    """Compared with shapely; a node that holds a kept record touches the region."""
    domain = Domain(AXES, 6, region=HOLED)
    points = np.random.default_rng(seed).random((500, 2)) * [4, 2] + [-1, 0]
    codes, keep = domain.locate({"x": points[:, 0], "y": points[:, 1]})
    np.testing.assert_array_equal(keep, shapely.contains_xy(SHAPE, points))
    assert domain.touches(codes[keep]).all()
    for up in range(7):
        nodes = np.unique(codes >> np.uint64(up))
        low, high = domain.boxes(nodes)
        boxes = shapely.box(low[:, 0], low[:, 1], high[:, 0], high[:, 1])
        np.testing.assert_array_equal(domain.touches(nodes), shapely.intersects(boxes, SHAPE))


@pytest.mark.thorough
def test_many_edges_give_what_single_ones_do() -> None:
    """A polygon of 4,000 corners: the sorted sweep agrees with shapely."""
    angle = np.linspace(0, 2 * np.pi, 4000, endpoint=False)
    reach = 0.7 + 0.2 * np.random.default_rng(0).random(4000)
    ring = tuple(zip((1 + reach * np.cos(angle)).tolist(), (1 + reach * np.sin(angle)).tolist(),
                     strict=True))  # fmt: skip
    domain = Domain(AXES, 12, region=Region(((ring,),)))
    points = np.random.default_rng(1).random((3000, 2)) * [4, 2] + [-1, 0]
    coast = shapely.Polygon(ring)
    np.testing.assert_array_equal(domain.in_polygon(points), shapely.contains_xy(coast, points))
    area = pieces(domain, np.ones(1, np.uint64)).volume.sum()
    assert area == pytest.approx(coast.area, rel=1e-9)


def test_a_region_survives_json() -> None:
    domain = Domain(AXES, 6, region=HOLED)
    plain = json.loads(json.dumps(domain.to_json()))
    assert Domain.from_json(plain) == domain
    assert plain["region"]["type"] == "MultiPolygon" and "region" not in Domain(AXES, 6).to_json()


@pytest.mark.parametrize(
    "polygons", [(), ((),), (((LAKE[:2]),),), ((((0.0, 0.0), (1.0, np.inf), (1.0, 0.0)),),)]
)
def test_regions_without_an_area_are_refused(polygons) -> None:
    with pytest.raises(ParameterError, match="region"):
        Region(polygons)

"""Cells of H3 and geohash on the map: they partition it, wherever it is cut."""

from __future__ import annotations

import sys

import h3
import numpy as np
import pygeohash
import pytest
import shapely
from hushstream.errors import ExtraError, ParameterError
from hushstream.reading.grids import FINEST, grid_cells
from hypothesis import given, settings
from hypothesis import strategies as st

WORLD = (-180.0, -90.0, 180.0, 90.0)


@pytest.mark.parametrize(("grid", "level"), [("h3", 0), ("h3", 1), ("geohash", 1), ("geohash", 2)])
def test_the_cells_of_the_world_divide_it(grid: str, level: int) -> None:
    """Also at the poles and at the antimeridian, where the map is cut."""
    names, shapes = grid_cells(grid, level, WORLD)
    assert len(names) == (h3.get_num_cells(level) if grid == "h3" else 32**level)
    assert list(names) == sorted(set(names)) and shapely.is_valid(shapes).all()
    assert shapely.area(shapes).sum() == pytest.approx(360 * 180, rel=1e-9)
    assert shapely.union_all(shapes).area == pytest.approx(360 * 180, rel=1e-9)
    west, south, east, north = shapely.total_bounds(shapes).tolist()
    assert (west, south, east, north) == WORLD


def places(n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(4)
    return draw.uniform(-180, 180, n), np.degrees(np.arcsin(draw.uniform(-1, 1, n)))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    west=st.floats(-180, 179.9), south=st.floats(-90, 89.9), wide=st.floats(0.01, 40),
    high=st.floats(0.01, 20), grid=st.sampled_from(["h3", "geohash"]),
)  # fmt: skip
def test_every_place_of_a_box_is_in_the_cell_that_the_library_names(
    west: float, south: float, wide: float, high: float, grid: str
) -> None:
    """For boxes of any shape, anywhere."""
    east, north = min(west + wide, 180.0), min(south + high, 90.0)
    level = 2
    names, shapes = grid_cells(grid, level, (west, south, east, north))
    at = dict(zip(names, shapes, strict=True))
    draw = np.random.default_rng(1)
    for x, y in zip(draw.uniform(west, east, 50), draw.uniform(south, north, 50), strict=True):
        name = h3.latlng_to_cell(y, x, level) if grid == "h3" else pygeohash.encode(y, x, level)
        # A hexagon's border is a great circle, drawn as a straight line.
        assert (
            at[name]
            .buffer(0.7 / np.cos(np.radians(min(abs(y), 89.9))))
            .contains(shapely.Point(x, y))
        )


@pytest.mark.parametrize(
    ("grid", "level", "rule"),
    [("h3", -1, "between 0 and 15"), ("h3", 16, "between 0 and 15"), ("geohash", 0, "between 1"),
     ("geohash", 13, "between 1 and 12"), ("h3", 15, "more than 200,000"),
     ("geohash", 9, "more than 200,000")],
)  # fmt: skip
def test_levels_that_do_not_exist_or_make_too_much_are_refused(
    grid: str, level: int, rule: str
) -> None:
    with pytest.raises(ParameterError, match=rule):
        grid_cells(grid, level, (-74.3, 40.5, -73.7, 41.0))
    assert FINEST[grid] in (12, 15)


@pytest.mark.parametrize(("grid", "module"), [("h3", "h3"), ("geohash", "pygeohash")])
def test_what_is_missing_is_named(grid: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ExtraError, match=r"hushstream\[maps\]"):
        grid_cells(grid, 2, WORLD)

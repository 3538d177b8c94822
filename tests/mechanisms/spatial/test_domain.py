"""Domains: the cell of each record, dropped records, and nested cells."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest
from hushstream.errors import ContractError, ParameterError
from hushstream.mechanisms.spatial.domain import Axis, Domain, bit_level, interleave
from hypothesis import given, settings
from hypothesis import strategies as st

from ...oracles.keys import ancestor, is_canonical

SHAPES = [(1, 7), (1, 60), (2, 0), (2, 1), (2, 20), (2, 31), (3, 19), (5, 33), (20, 60)]


def naive_code(point: np.ndarray, bits: int) -> int:
    """Bit l halves coordinate (l-1) mod d, one halving at a time."""
    low, high = [Fraction(0)] * len(point), [Fraction(1)] * len(point)
    code = 1
    for bit in range(bits):
        axis = bit % len(point)
        middle = (low[axis] + high[axis]) / 2
        upper = point[axis] >= middle
        code = 2 * code + int(upper)
        (low if upper else high)[axis] = middle
    return code


@pytest.mark.parametrize(("dimensions", "bits"), SHAPES)
def test_codes_halve_one_coordinate_after_the_other(dimensions: int, bits: int) -> None:
    points = np.random.default_rng(bits).random((200, dimensions))
    points[:3] = [[0.0] * dimensions, [1.0] * dimensions, [0.5] * dimensions]
    codes = Domain.unit(dimensions, bits).place(points)
    assert codes.tolist() == [naive_code(point, bits) for point in points]


def test_upper_edge_belongs_to_the_last_cell() -> None:
    domain = Domain.unit(2, 6)
    assert domain.place(np.ones((1, 2))).tolist() == [2 * 2**6 - 1]


@pytest.mark.parametrize(("dimensions", "bits"), [s for s in SHAPES if s[1] < 50])
def test_cells_contain_their_points_and_have_the_right_volume(dimensions: int, bits: int) -> None:
    points = np.random.default_rng(1).random((300, dimensions))
    domain = Domain.unit(dimensions, bits)
    low, high = domain.fractions(domain.place(points))
    assert ((low <= points) & (points < high)).all()
    np.testing.assert_allclose(np.prod(high - low, axis=1), 2.0**-bits)


def test_split_all_is_every_d_th_level_of_split_binary() -> None:
    points = np.random.default_rng(2).random((500, 3))
    both = Domain.unit(3, 4, "all"), Domain.unit(3, 12)
    assert both[0].fanout == 8 and both[1].fanout == 2
    np.testing.assert_array_equal(both[0].place(points), both[1].place(points))
    codes = both[0].place(points)
    np.testing.assert_array_equal(ancestor(both[0], codes, 2), ancestor(both[1], codes, 6))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(1, 4), st.integers(0, 14), st.booleans(), st.integers(0, 2**32))
def test_children_partition_their_parent(
    dimensions: int, depth: int, every: bool, seed: int
) -> None:
    domain = Domain.unit(dimensions, depth, "all" if every else "binary")
    point = np.random.default_rng(seed).random((1, dimensions))
    for level in range(depth):
        node = ancestor(domain, domain.place(point), level)
        children = domain.children(node)[0]
        assert (domain.parents(children) == node[0]).all()
        assert (domain.level(children) == level + 1).all()
        inner, outer = domain.fractions(children), domain.fractions(node)
        volume = np.prod(inner[1] - inner[0], axis=1).sum()
        assert volume == pytest.approx(float(np.prod(outer[1] - outer[0])))
        assert ancestor(domain, domain.place(point), level + 1)[0] in children


def test_levels_are_exact_where_floating_logarithms_are_not() -> None:
    edges = np.array([2**k + d for k in range(2, 63) for d in (-1, 0, 1)], np.uint64)
    assert bit_level(edges).tolist() == [int(edge).bit_length() - 1 for edge in edges]
    assert bit_level(np.ones(1, np.uint64)).tolist() == [0]


def test_interleave_takes_the_first_axis_first() -> None:
    assert interleave(np.array([[1, 0]], np.uint64), 2).tolist() == [0b110]
    assert interleave(np.array([[2, 1]], np.uint64), 3).tolist() == [0b1100 | 0b0]


def fractions_of(axis: Axis, *values: float) -> tuple[list[float], list[bool]]:
    fraction, inside = axis.fraction(np.array(values))
    return fraction.tolist(), inside.tolist()


def test_real_axis_keeps_both_ends_and_drops_the_rest() -> None:
    axis = Axis("lon", -180.0, 180.0)
    assert fractions_of(axis, -180, 0, 180, 180.1, np.nan, np.inf, 1e308) == (
        [0, 0.5, 1, 0, 0, 0, 0],
        [True, True, True, False, False, False, False],
    )


def test_integer_axis_gives_every_value_the_same_width() -> None:
    axis = Axis("floor", -1, 2, "integer")
    assert fractions_of(axis, -1, 0, 2, 3, 0.5) == (
        [0, 0.25, 0.75, 0, 0],
        [True, True, True, False, False],
    )


def test_day_axis_is_the_time_of_day_of_any_instant() -> None:
    axis = Axis("when", 0, 86_400, "day")
    assert fractions_of(axis, 0, 43_200, 86_400, 1_700_000_000, -21_600) == (
        [0, 0.5, 0, (1_700_000_000 % 86_400) / 86_400, 0.75],
        [True] * 5,
    )


def test_encode_drops_by_rule_and_lists_distinct_cells() -> None:
    domain = Domain((Axis("lon", 0, 10), Axis("n", 0, 3, "integer")), 4)
    encoded = domain.encode({"lon": np.array([1.0, 1.1, 11.0]), "n": np.array([2, 2, 2])})
    assert encoded.keep.tolist() == [True, True, False]
    assert encoded.key[0] == encoded.key[1]
    assert is_canonical(encoded.keys) and encoded.value.shape == (3, 0)
    low, high = domain.boxes(encoded.keys.codes()[encoded.key[:1]])
    assert low.tolist() == [[0.0, 2.0]] and high.tolist() == [[2.5, 3.0]]


def test_encode_refuses_missing_or_ragged_columns() -> None:
    domain = Domain.unit(2, 3)
    for columns in ({"x1": np.zeros(2)}, {"x1": np.zeros(2), "x2": np.zeros(3)}):
        with pytest.raises(ContractError, match="x1, x2"):
            domain.encode(columns)


TRIANGLE = ((0.1, 0.1), (0.9, 0.2), (0.4, 0.8))


def in_triangle(points: np.ndarray) -> np.ndarray:
    """Left of all three edges."""
    ring = np.array(TRIANGLE)
    inside = np.ones(len(points), bool)
    for start, end in zip(ring, np.roll(ring, -1, axis=0), strict=True):
        edge, to = end - start, points - start
        inside &= edge[0] * to[:, 1] - edge[1] * to[:, 0] > 0
    return inside


def test_polygon_drops_what_lies_outside() -> None:
    axes = (Axis("x", 0, 1), Axis("y", 0, 1))
    points = np.random.default_rng(3).random((5000, 2))
    columns = {"x": points[:, 0], "y": points[:, 1]}
    for ring in (TRIANGLE, TRIANGLE[::-1]):
        _, keep = Domain(axes, 10, polygon=ring).locate(columns)
        np.testing.assert_array_equal(keep, in_triangle(points))


@pytest.mark.parametrize("level", range(11))
def test_every_node_with_a_kept_record_touches_the_polygon(level: int) -> None:
    domain = Domain((Axis("x", 0, 1), Axis("y", 0, 1)), 10, polygon=TRIANGLE)
    points = np.random.default_rng(4).random((20_000, 2))
    codes = ancestor(domain, domain.place(points), level)
    full = np.unique(codes[in_triangle(points)])
    assert domain.touches(full).all()
    touching = domain.touches(np.unique(codes))
    # A box that only grazes the polygon may touch it without a sample, but few boxes do.
    assert touching.sum() <= len(full) * 1.1 + 2


def test_cells_keep_what_lies_below_them() -> None:
    domain = Domain(Domain.unit(2, 4).axes, 4, cells=(4, 0b1110))
    points = np.random.default_rng(5).random((500, 2))
    codes, keep = domain.locate({"x1": points[:, 0], "x2": points[:, 1]})
    np.testing.assert_array_equal(
        keep, (codes >> np.uint64(2) == 4) | (codes >> np.uint64(1) == 14)
    )
    touching = [c for c in range(1, 32) if domain.touches(np.array([c], np.uint64))[0]]
    for code in range(1, 32):
        below = [k for k in codes[keep].tolist() if k >> (5 - code.bit_length()) == code]
        assert (code in touching) == bool(below)


def test_plain_form_survives_json() -> None:
    axes = (Axis("lon", -180, 180), Axis("lat", -90, 90), Axis("t", 0, 86_400, "day"))
    for domain in (
        Domain(axes, 6, "all", polygon=((0, 0), (10, 0), (10, 10))),
        Domain(axes, 9, cells=(4, 5)),
    ):
        assert Domain.from_json(json.loads(json.dumps(domain.to_json()))) == domain


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("axis.high", lambda: Axis("x", 1, 1)),
        ("axis.low, axis.high", lambda: Axis("x", 0, np.inf)),
        ("axis.low, axis.high", lambda: Axis("x", 0, 2**33, "integer")),
        ("axis.low, axis.high", lambda: Axis("x", 0.5, 2, "integer")),
        ("axis.low", lambda: Axis("x", 1, 2, "day")),
        ("axis.kind", lambda: Axis("x", 0, 1, "angle")),
        ("domain.depth", lambda: Domain.unit(2, 63)),
        ("domain.depth", lambda: Domain.unit(2, 32, "all")),
        ("domain.depth", lambda: Domain.unit(2, -1)),
        ("domain.split", lambda: Domain.unit(2, 3, "quad")),
        ("domain.axes", lambda: Domain((), 3)),
        ("domain.axes", lambda: Domain((Axis("x", 0, 1),) * 2, 3)),
        ("domain.polygon", lambda: Domain(Domain.unit(1, 1).axes, 1, polygon=TRIANGLE)),
        ("domain.polygon", lambda: Domain(Domain.unit(2, 1).axes, 1, polygon=TRIANGLE[:2])),
        ("domain.cells", lambda: Domain(Domain.unit(2, 1).axes, 1, cells=(4,))),
        ("domain.cells", lambda: Domain(Domain.unit(2, 2, "all").axes, 2, "all", cells=(2,))),
    ],
)
def test_bad_parameters_are_named(name: str, make) -> None:
    with pytest.raises(ParameterError) as error:
        make()
    assert error.value.name == name


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("domain.depth", {"depth": None}),
        ("domain.axes", {"axes": None}),
        ("domain.axes[0].high", {"axes": [{"name": "x", "low": 0}]}),
        ("domain.axes[0].name", {"axes": [{"low": 0, "high": 1}]}),
        ("domain.axes[0].wide", {"axes": [{"name": "x", "low": 0, "high": 1, "wide": 2}]}),
        ("domain.deep", {"deep": 3}),
    ],
)
def test_what_is_missing_or_unknown_is_named(name: str, change: dict[str, object]) -> None:
    plain = {**Domain.unit(2, 3).to_json(), **change}
    with pytest.raises(ParameterError) as error:
        Domain.from_json({key: value for key, value in plain.items() if value is not None})
    assert error.value.name == name

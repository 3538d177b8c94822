"""Synthetic points and range counts: unbiased, inside their leaves, from released numbers only."""

from __future__ import annotations

import numpy as np
import pytest
from hushstream.errors import ContractError, ParameterError
from hushstream.mechanisms.spatial.domain import Axis, Domain
from hushstream.mechanisms.spatial.synthetic import range_counts, rounded, scatter
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

SQUARE = Domain.unit(2, 6)
GRID = 1 << 16


def leaves_of(rng: np.random.Generator, domain: Domain) -> np.ndarray:
    """A random partition of the domain, in code order."""
    leaves, open_ = [], [1]
    while open_:
        node = open_.pop()
        level = int(domain.level(np.array([node], np.uint64))[0])
        if level < domain.depth and rng.random() < 0.6:
            open_ += domain.children(np.array([node], np.uint64))[0].tolist()
        else:
            leaves.append(node)
    return np.array(sorted(leaves), np.uint64)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.integers(0, 2**32))
def test_no_negative_mass_and_every_count_within_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    leaves = leaves_of(rng, SQUARE)
    counts = rng.integers(-3 * GRID, 9 * GRID, len(leaves))
    points = scatter(SQUARE, leaves, counts, GRID, seed % 7)
    cells = SQUARE.place(np.stack([points["x1"], points["x2"]], axis=1))
    whole = np.array([(ancestors(cells, leaf)).sum() for leaf in leaves.tolist()])
    assert len(cells) == whole.sum()
    assert (np.abs(whole - np.maximum(counts, 0) / GRID) < 1).all()


def ancestors(cells: np.ndarray, leaf: int) -> np.ndarray:
    drop = SQUARE.bits + 1 - leaf.bit_length()
    return cells >> np.uint64(drop) == leaf


def test_rounding_has_no_bias() -> None:
    """Rounding up would add records to every leaf."""
    counts = np.full(20_000, GRID // 4)
    leaves = np.full(20_000, 1, np.uint64)
    total = len(scatter(SQUARE, leaves, counts, GRID)["x1"])
    assert abs(total - 5000) < 4 * np.sqrt(20_000 * 3 / 16)


def test_rounded_reaches_whole_counts_exactly() -> None:
    assert rounded(np.array([0, 8, 12]), 4, np.array([0.0, 0.0, 0.0])).tolist() == [0, 2, 3]


def test_points_are_uniform_inside_their_leaf() -> None:
    points = scatter(SQUARE, np.array([2, 7], np.uint64), np.array([4000, 0]))
    assert stats.kstest(points["x1"], stats.uniform(0, 0.5).cdf).pvalue > 1e-3
    assert stats.kstest(points["x2"], stats.uniform(0, 1).cdf).pvalue > 1e-3


def test_the_same_release_gives_the_same_points() -> None:
    leaves, counts = np.array([2, 3], np.uint64), np.array([5, 9])
    first, again = scatter(SQUARE, leaves, counts), scatter(SQUARE, leaves, counts)
    assert all((first[name] == again[name]).all() for name in first)
    more = counts + np.array([0, 1])
    for other in (scatter(SQUARE, leaves, counts, 1, 1), scatter(SQUARE, leaves, more)):
        assert other["x1"][0] != first["x1"][0]


def test_points_stay_in_the_polygon() -> None:
    ring = ((0.1, 0.1), (0.9, 0.2), (0.4, 0.8))
    domain = Domain(SQUARE.axes, 6, polygon=ring)
    points = scatter(domain, np.ones(1, np.uint64), np.array([3000]))
    place = np.stack([points["x1"], points["x2"]], axis=1)
    assert len(place) == 3000 and domain.in_polygon(place).all()


def test_axes_get_their_own_units() -> None:
    axes = (Axis("lon", -180, 180), Axis("floor", -1, 2, "integer"), Axis("t", 0, 24, "day"))
    points = scatter(Domain(axes, 3), np.ones(1, np.uint64), np.array([500]))
    assert points["lon"].min() < -170 and points["lon"].max() > 170
    assert set(points["floor"]) == {-1, 0, 1, 2}
    assert points["t"].min() >= 0 and points["t"].max() < 24


def test_ranges_count_whole_leaves_and_shares() -> None:
    rng = np.random.default_rng(1)
    leaves = leaves_of(rng, SQUARE)
    counts = rng.integers(0, 50, len(leaves))
    low, high = SQUARE.boxes(leaves)
    np.testing.assert_allclose(range_counts(SQUARE, leaves, counts, low, high), counts)
    everything = range_counts(SQUARE, leaves, counts, np.zeros((1, 2)), np.ones((1, 2)))
    assert everything.tolist() == [counts.sum()]
    half = range_counts(SQUARE, leaves, counts, low, (low + high) / 2)
    np.testing.assert_allclose(half, counts / 4)


def test_ranges_agree_with_synthetic_points() -> None:
    rng = np.random.default_rng(2)
    leaves = leaves_of(rng, SQUARE)
    counts = rng.integers(0, 4000, len(leaves))
    points = scatter(SQUARE, leaves, counts)
    low = rng.random((30, 2)) * 0.6
    high = low + 0.3
    place = np.stack([points["x1"], points["x2"]], axis=1)[:, None]
    inside = ((place >= low) & (place < high)).all(axis=2).sum(axis=0)
    estimate = range_counts(SQUARE, leaves, counts, low, high)
    assert (np.abs(inside - estimate) < 5 * np.sqrt(estimate + 1)).all()


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ContractError):
        scatter(SQUARE, np.ones(2, np.uint64), np.ones(1, np.int64))
    for name, options in (("grid", {"grid": 0}), ("seed", {"seed": -1})):
        with pytest.raises(ParameterError) as error:
            scatter(SQUARE, np.ones(1, np.uint64), np.ones(1, np.int64), **options)
        assert error.value.name == name

from __future__ import annotations

import numpy as np
import pytest
from hushstream.errors import ContractError, ParameterError
from hushstream.mechanisms.spatial.domain import Axis, Domain
from hushstream.mechanisms.spatial.sample import left_to_right, pick, sample

from ...oracles.keys import ancestor

LEAVES = np.array([3, 4, 10, 11], np.uint64)  # right half, left quarter, two eighths
COUNTS = np.array([50, 30, 0, 20])


def descend(leaves: dict[int, int], u: int) -> int:
    """The sampler by definition: go left if u < the left child's count, else subtract the count."""
    counts: dict[int, int] = {}
    for code, count in leaves.items():
        while code:
            counts[code] = counts.get(code, 0) + count
            code >>= 1
    node = 1
    while node not in leaves:
        if u < counts[2 * node]:
            node = 2 * node
        else:
            u -= counts[2 * node]
            node = 2 * node + 1
    return node


def test_one_search_equals_the_descent() -> None:
    order = left_to_right(LEAVES)
    assert LEAVES[order].tolist() == [4, 10, 11, 3]
    rows = pick(COUNTS[order], np.arange(100))
    leaves = dict(zip(LEAVES.tolist(), COUNTS.tolist(), strict=True))
    assert LEAVES[order][rows].tolist() == [descend(leaves, u) for u in range(100)]


def test_points_follow_the_tree() -> None:
    domain = Domain.unit(1, depth=3)
    x = sample(domain, LEAVES, COUNTS, 40_000)["x1"]
    parts = np.histogram(x, [0, 0.25, 0.375, 0.5, 1.0])[0] / 40_000
    np.testing.assert_allclose(parts, [0.3, 0, 0.2, 0.5], atol=0.01)
    right = (x[x >= 0.5] - 0.5) * 2
    gap = np.abs(np.sort(right) - np.arange(len(right)) / len(right)).max()
    assert gap < 1.63 / np.sqrt(len(right))


def test_order_of_leaves_and_repetition_change_nothing_but_the_seed_does() -> None:
    domain = Domain.unit(1, depth=3)
    first = sample(domain, LEAVES, COUNTS, 100)["x1"]
    again = sample(domain, LEAVES[::-1], COUNTS[::-1], 100)["x1"]
    np.testing.assert_array_equal(first, again)
    assert (first != sample(domain, LEAVES, COUNTS, 100, seed=1)["x1"]).all()
    assert (first != sample(domain, LEAVES, COUNTS + 1, 100)["x1"]).mean() > 0.9


def test_an_empty_tree_gives_uniform_points() -> None:
    domain = Domain.unit(2, depth=2)
    points = sample(domain, np.array([2, 3], np.uint64), np.zeros(2, np.int64), 4000)
    for column in points.values():
        assert np.abs(np.histogram(column, 4, (0, 1))[0] - 1000).max() < 120


def test_points_come_in_the_units_of_the_axes() -> None:
    domain = Domain((Axis("lon", -180, 180), Axis("hour", 0, 23, "integer")), depth=4)
    codes = np.array([2, 3], np.uint64)
    points = sample(domain, codes, np.array([7, 0]), 500)
    assert list(points) == ["lon", "hour"]
    assert points["lon"].min() >= -180 and points["lon"].max() < 0
    assert set(points["hour"].tolist()) <= set(range(24)) and len(set(points["hour"])) == 24
    codes, keep = domain.locate(points)
    assert keep.all() and (ancestor(domain, codes, 1) == 2).all()


def test_bad_arguments_are_refused() -> None:
    domain = Domain.unit(1, depth=3)
    with pytest.raises(ContractError):
        sample(domain, LEAVES[:0], COUNTS[:0], 1)
    with pytest.raises(ContractError):
        sample(domain, LEAVES, COUNTS - 1, 1)
    with pytest.raises(ParameterError):
        sample(domain, LEAVES, COUNTS, -1)
    with pytest.raises(ParameterError):
        sample(domain, LEAVES, COUNTS, 1, seed=-1)
    assert sample(domain, LEAVES, COUNTS, 0)["x1"].shape == (0,)

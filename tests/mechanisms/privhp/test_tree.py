from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.parts.sketch import Sketch
from hushstream.mechanisms.privhp.layout import SumLayout
from hushstream.mechanisms.privhp.tree import GrownTree, Pruning, Reading, consistent, grow, pooled
from hushstream.mechanisms.spatial.domain import Domain, bit_level
from hushstream.mechanisms.spatial.synthetic import range_counts
from hypothesis import given, settings
from hypothesis import strategies as st

from ...oracles import privhp as oracle

SINGLE = Reading("single", np.empty(0))
COUNT = st.integers(-1000, 1000)


def one(parent: int, left: int, right: int) -> tuple[int, int]:
    a, b = consistent(*(np.array([x]) for x in (parent, left, right)))
    return int(a[0]), int(b[0])


def test_consistency_of_the_published_examples() -> None:
    assert one(46, 35, 37) == (22, 24)  # in tenths: 4.6, 3.5, 3.7 → 2.2, 2.4
    assert one(1, -2, 5) == (0, 1)
    assert one(10, 1, 3) == (4, 6)
    assert one(0, 7, 9) == (0, 0)  # a negative root is clamped to 0 first


@settings(max_examples=300, deadline=None, derandomize=True)
@given(parent=st.integers(0, 1000), left=COUNT, right=COUNT)
def test_children_follow_the_rule_to_half_a_record(parent: int, left: int, right: int) -> None:
    a, b = one(parent, left, right)
    assert a >= 0 and b >= 0 and a + b == parent
    exact, _ = oracle.split(Fraction(parent), Fraction(left), Fraction(right))
    assert abs(a - exact) <= Fraction(1, 2)
    assert one(parent, right, left) in ((b, a), (b - 1, a + 1), (b + 1, a - 1))


def test_rounding_favours_no_side() -> None:
    parent = np.full(1000, 500)
    left, right = np.full(1000, 240), 240 + np.arange(1000) % 8
    a, _ = consistent(parent, left, right)
    exact = left - (left + right - parent) / 2
    assert (a - exact).sum() == 0


def shape_of(depth: int, exact: int, keep: int, width: int = 8, rows: int = 1) -> SumLayout:
    return SumLayout(1, depth, exact, keep, Sketch(width=width, rows=rows))


TABLES = st.tuples(
    st.integers(0, 7), st.integers(0, 4), st.integers(1, 6), st.sampled_from([1, 3]),
    st.integers(0, 999),
)  # fmt: skip


def noisy(given: tuple[int, int, int, int, int]) -> tuple[SumLayout, np.ndarray]:
    depth, exact, keep, rows, seed = given
    shape = shape_of(depth, min(exact, depth), keep, rows=rows)
    rng = np.random.default_rng(seed)
    n = rng.integers(0, 60)
    codes, counts = np.unique(rng.integers(1 << depth, 2 << depth, n), return_counts=True)
    table = shape.sum_leaves(codes.astype(np.uint64), counts)
    return shape, table + np.rint(rng.laplace(0, 5, shape.sums)).astype(np.int64)


def check(tree: GrownTree, shape: SumLayout, table: np.ndarray) -> None:
    """Children add up to their parent, nothing is negative, leaves partition the domain."""
    count = dict(zip(tree.code.tolist(), tree.records.tolist(), strict=True))
    assert count[1] == max(0, table[0])
    assert min(count.values()) >= 0
    for code, leaf in zip(tree.code.tolist(), tree.leaf.tolist(), strict=True):
        assert leaf == (2 * code not in count) == (2 * code + 1 not in count)
        if not leaf:
            assert count[2 * code] + count[2 * code + 1] == count[code]
    codes, counts = tree.leaves()
    assert counts.sum() == count[1]
    assert sum(Fraction(1, 1 << level) for level in bit_level(codes).tolist()) == 1
    assert (np.diff(tree.code.astype(np.int64)) > 0).all()
    assert max(bit_level(tree.code)) <= shape.depth


@settings(max_examples=80, deadline=None, derandomize=True)
@given(table=TABLES, kind=st.sampled_from(["joint", "single"]), bar=st.integers(0, 9))
def test_trees_are_consistent(table: tuple[int, int, int, int, int], kind: str, bar: int) -> None:
    shape, sums = noisy(table)
    bars = (bar,) * shape.levels if bar else ()
    pruning = Pruning("threshold" if bar else "top", shape.keep, bars)
    reading = Reading(kind, np.full(shape.levels, 50.0))  # type: ignore[arg-type]
    read = pooled(shape, sums, reading.variance) if kind == "joint" else sums
    check(grow(shape, sums, pruning, reading), shape, read)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(table=TABLES)
def test_growing_equals_the_definition(table: tuple[int, int, int, int, int]) -> None:
    shape, sums = noisy(table)
    codes, counts = grow(shape, sums, Pruning("top", shape.keep), SINGLE).leaves()
    found = dict(zip(codes.tolist(), counts.tolist(), strict=True))
    assert found == oracle.tree(shape, sums, shape.keep)


def test_without_noise_and_collisions_all_leaves_are_exact() -> None:
    """The tree uses the last sketch, so it reaches level r, not r-1."""
    shape = shape_of(6, 2, 64, width=2**20)
    codes = np.arange(64, 128, 3, dtype=np.uint64)
    counts = np.arange(1, len(codes) + 1)
    tree = grow(shape, shape.sum_leaves(codes, counts), Pruning("top", 64), SINGLE)
    leaf, found = tree.leaves()
    assert dict(zip(leaf[found > 0].tolist(), found[found > 0].tolist(), strict=True)) == dict(
        zip(codes.tolist(), counts.tolist(), strict=True)
    )


def test_top_k_is_taken_at_the_level_itself_with_ties_by_code() -> None:
    counts = np.array([5, 0, 7, 5, 5, 9])
    assert Pruning("top", 3).select(4, counts).tolist() == [0, 2, 5]
    assert Pruning("top", 9).select(4, counts).tolist() == [0, 2, 3, 4, 5]
    assert Pruning("threshold", 1, (1, 1, 6)).select(2, counts).tolist() == [2, 5]
    shape = shape_of(3, 1, 2, width=2**20)
    table = shape.sum_leaves(np.arange(8, 16, dtype=np.uint64), np.array([1, 1, 9, 1, 1, 8, 2, 2]))
    tree = grow(shape, table, Pruning("top", 2), SINGLE)
    refined = tree.code[~tree.leaf].tolist()
    assert refined == [1, 2, 3, 5, 6]  # at level 2 the counts are 2, 10, 9, 4


def test_a_root_below_zero_gives_an_empty_tree() -> None:
    shape = shape_of(3, 1, 2)
    table = np.full(shape.sums, -5)
    tree = grow(shape, table, Pruning("top", 2), SINGLE)
    assert tree.records.tolist() == [0, 0, 0] and tree.leaf.tolist() == [False, True, True]


def test_dead_nodes_stay_empty() -> None:
    shape = shape_of(4, 2, 16)
    table = np.full(shape.sums, 40)
    tree = grow(shape, table, Pruning("top", 16), SINGLE, lambda codes: codes % 2 == 1)
    assert tree.records[tree.code > 1][0::2].tolist() == [0] * 2 + [0] * (len(tree.code) // 2 - 2)
    check(tree, shape, table)


def test_bars_are_at_least_one_record() -> None:
    with pytest.raises(ParameterError):
        Pruning("threshold", 1, (3, 0))
    with pytest.raises(ParameterError):
        Pruning("threshold", 1)
    with pytest.raises(ParameterError):
        Pruning("other", 1)  # type: ignore[arg-type]


def test_pooling_by_hand() -> None:
    """Root variance 4, child variance 1: the children's sum weighs 4/6, the root's count 2/6."""
    shape = shape_of(1, 1, 1)
    found = pooled(shape, np.array([90, 10, 20]), np.array([4.0, 1.0]))
    assert found.tolist() == [50, 10, 20]


def test_pooling_keeps_what_is_exact_and_halves_the_variance() -> None:
    shape, rng = shape_of(9, 9, 1), np.random.default_rng(0)
    exact = shape.sum_leaves(np.arange(512, 1024, dtype=np.uint64), rng.integers(0, 99, 512))
    one = np.ones(shape.levels)
    np.testing.assert_array_equal(pooled(shape, exact, one), exact)
    noise = [np.rint(rng.normal(0, 50, shape.sums)).astype(np.int64) for _ in range(400)]
    left = np.stack([shape.part(pooled(shape, exact + z, one) - exact, 3) for z in noise])
    assert abs(left.mean()) < 4 * 36 / np.sqrt(left.size)
    # From level 9 upwards 1/v = 1 + 1/(2v'), which tends to v = 1/2.
    assert left.var() / 2500 == pytest.approx(0.5, rel=0.12)
    before = exact.copy()
    pooled(shape, exact, one)
    np.testing.assert_array_equal(before, exact)


def merged_by_hand(leaves: dict[int, int]) -> dict[int, int]:
    """Replace two siblings without records by their parent, as long as there are any."""
    while pairs := [c for c in leaves if c > 1 and leaves[c] == 0 == leaves.get(c ^ 1)]:
        for code in (pairs[0], pairs[0] ^ 1):
            del leaves[code]
        leaves[pairs[0] >> 1] = 0
    return leaves


@settings(max_examples=200, deadline=None, derandomize=True)
@given(TABLES)
def test_empty_siblings_are_merged_and_nothing_else(given: tuple[int, int, int, int, int]) -> None:
    shape, table = noisy(given)
    tree = grow(shape, table, Pruning("top", shape.keep), SINGLE)
    rows = tree.merged()
    before, after = (
        dict(zip(*(x.tolist() for x in t.leaves()), strict=True)) for t in (tree, rows)
    )
    assert after == merged_by_hand(before)
    assert rows.code.tolist() == sorted(rows.code.tolist())
    deepest = 1 << shape.depth
    assert sum(deepest >> (code.bit_length() - 1) for code in after) == deepest  # still a partition
    assert sum(after.values()) == int(tree.records[0])


def test_merging_changes_no_range_count() -> None:
    domain, shape = Domain.unit(1, 6), shape_of(6, 4, 3)
    codes, counts = np.array([70, 71, 99], np.uint64), np.array([9, 2, 30])
    tree = grow(shape, shape.sum_leaves(codes, counts), Pruning("top", 3), SINGLE)
    low = np.arange(0, 1, 1 / 64)[:, None]
    before, after = (
        range_counts(domain, *t.leaves(), low, low + 1 / 128) for t in (tree, tree.merged())
    )
    np.testing.assert_array_equal(before, after)
    assert len(tree.merged().leaves()[0]) < len(tree.leaves()[0]) and before.sum() > 0


def test_a_tree_of_nothing_is_one_row() -> None:
    shape = shape_of(4, 3, 2)
    tree = grow(shape, np.zeros(shape.sums, np.int64), Pruning("top", 2), SINGLE)
    assert len(tree.leaves()[0]) == 8
    assert [x.tolist() for x in tree.merged().leaves()] == [[1], [0]]

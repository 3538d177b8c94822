"""Lazy extension and consistency: sums that hold exactly, whatever was released."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hushstream.mechanisms.phdstream.tree import (
    GRID,
    NODE,
    ExtensionRules,
    Level,
    LiveTree,
    Nodes,
    describe,
    hand_down,
    offspring,
    parts,
    project,
)
from hushstream.mechanisms.spatial.domain import Domain
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

BIG = 2**40


def masks(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    mask = rng.random(shape) < 0.7
    mask[~mask.any(axis=1), 0] = True
    return mask


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.integers(1, 8), st.integers(1, 9), st.integers(0, 2**32), st.sampled_from([3, 1000, BIG]))
def test_projection_is_consistent_and_never_exceeds_the_parent(
    children: int, rows: int, seed: int, size: int
) -> None:
    rng = np.random.default_rng(seed)
    child = masks(rng, (rows, children))
    total, raw = rng.integers(0, size, rows), rng.integers(-size, size, (rows, children))
    out = project(total, raw, child)
    np.testing.assert_array_equal(out.sum(axis=1), total)
    assert (out >= 0).all() and (out <= total[:, None]).all()
    assert (out[~child] == 0).all()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    arrays.arrays(np.int64, 3, elements=st.integers(-9, 9)),
    st.integers(0, 12),
)
def test_projection_is_the_closest_point(raw: np.ndarray, total: int) -> None:
    """Non-negative integers with this sum are at most a rounding error closer."""
    out = project(np.array([total]), raw[None, :], np.ones((1, 3), bool))[0]
    places = itertools.product(range(total + 1), repeat=3)
    best = min(float(((np.array(p) - raw) ** 2).sum()) for p in places if sum(p) == total)
    assert float(((out - raw) ** 2).sum()) <= best + 4


@pytest.mark.parametrize(
    ("total", "raw", "expected"),
    [(10, [1, 3], [4, 6]), (46, [35, 37], [22, 24]), (1, [-2, 5], [0, 1]), (0, [4, 9], [0, 0])],
)
def test_projection_of_pairs(total: int, raw: list[int], expected: list[int]) -> None:
    out = project(np.array([total]), np.array([raw]), np.ones((1, 2), bool))
    assert out.tolist() == [expected]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(1, 8), st.integers(0, 2**32), st.sampled_from([0, 1, 20]))
def test_shares_sum_to_what_is_handed_down(children: int, seed: int, smoothing: int) -> None:
    rng = np.random.default_rng(seed)
    child = masks(rng, (6, children))
    shape = ExtensionRules(Domain.unit(1, 1), smoothing)
    inherited, own = rng.integers(-BIG, BIG, 6), rng.integers(-100, 100, (6, children))
    out = hand_down(shape, inherited, own, child)
    np.testing.assert_array_equal(out.sum(axis=1), inherited)
    assert (out[~child] == 0).all()


def test_equal_shares_are_equal() -> None:
    shape = ExtensionRules(Domain.unit(2, 1, "all"), 0)
    out = hand_down(shape, np.array([4 * GRID]), np.array([[9, 0, -5, 1]]), np.ones((1, 4), bool))
    assert out.tolist() == [[GRID] * 4]


def test_proportional_shares_follow_the_children() -> None:
    shape = ExtensionRules(Domain.unit(1, 1), 2)
    out = hand_down(shape, np.array([800]), np.array([[4, -7]]), np.ones((1, 2), bool))
    assert out.tolist() == [[600, 200]]


def random_tree(rng: np.random.Generator, domain: Domain, chance: float = 0.6) -> LiveTree:
    """A random tree with random released numbers, updated bottom up."""
    code, levels = np.ones(1, np.uint64), []
    shape = ExtensionRules(domain, 0)
    for depth in range(domain.depth + 1):
        cell = np.zeros(len(code), NODE)
        cell["out"] = rng.integers(-500, 500, len(code))
        split = (rng.random(len(code)) < chance) & (depth < domain.depth)
        cell["below"][~split] = rng.integers(-50, 50, int((~split).sum()))
        children, child = offspring(shape, code[split])
        levels.append(Level(code, cell, split, child))
        if not split.any():
            break
        code = children
    tree = LiveTree.of(levels)
    tree.sum_below(np.ones(len(tree.code)))
    return tree


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 2**32), st.booleans(), st.sampled_from([0, 7]), st.booleans())
def test_leaves_sum_to_the_root(seed: int, every: bool, smoothing: int, region: bool) -> None:
    plain = Domain.unit(2, 4, "all" if every else "binary")
    domain = Domain(plain.axes, 4, plain.split, cells=(4, 5)) if region else plain
    tree = random_tree(np.random.default_rng(seed), domain)
    leaves = describe(ExtensionRules(domain, smoothing), tree, np.ones(len(tree.code)))
    root = int(tree.state["out"][0] + tree.state["below"][0]) * GRID
    assert leaves.unbiased.sum() == root
    assert leaves.total.sum() == max(0, root)
    assert (leaves.total >= 0).all() and (leaves.spread > 0).all()


def test_a_lowered_estimate_may_be_too_small_by_as_much() -> None:
    """A split root, without counts of its own: one child has 10 records, the other -4, so 6 and 0.

    The root counted nothing, so nothing is shared, and counters have the variances 1 and 2.
    """
    state = np.zeros(3, NODE)
    state["out"][1:], state["steps"] = [10, -4], 1
    levels = [
        Level(np.ones(1, np.uint64), state[:1], np.array([True]), None),
        Level(np.array([2, 3], np.uint64), state[1:], np.zeros(2, bool), None),
    ]
    tree, variance = LiveTree.of(levels), np.array([0.0, 1, 2])
    tree.sum_below(variance)
    leaves = describe(ExtensionRules(Domain.unit(1, 1), 0), tree, variance)
    assert leaves.total.tolist() == [6 * GRID, 0]
    np.testing.assert_allclose(leaves.spread / GRID**2, [[1 + 4**2, 1], [2, 2]])


@pytest.mark.parametrize("smoothing", [0, 7])
def test_errors_are_told_by_released_numbers_alone(smoothing: int) -> None:
    """The states of counters hold exact counts: no estimate and no error reads them."""
    domain = Domain.unit(2, 5)
    shape, tree = ExtensionRules(domain, smoothing), random_tree(np.random.default_rng(3), domain)
    plain = describe(shape, tree, np.ones(len(tree.code)))
    tree.state["first"], tree.state["second"] = 10**6, -77
    for one, other in zip(plain, describe(shape, tree, np.ones(len(tree.code))), strict=True):
        np.testing.assert_array_equal(one, other)


def test_below_is_the_sum_of_all_counters_below() -> None:
    tree = random_tree(np.random.default_rng(1), Domain.unit(2, 5))
    code, cell = tree.code.tolist(), tree.state
    for row in np.flatnonzero(tree.split):
        below = [i for i, c in enumerate(code) if c != code[row] and in_node(c, code[row])]
        deeper = sum(int(cell["below"][i]) for i in below if not tree.split[i])
        assert cell["below"][row] == sum(int(cell["out"][i]) for i in below) + deeper
        assert cell["spread"][row] == len(below)


def test_folding_moves_counts_without_changing_them() -> None:
    tree = random_tree(np.random.default_rng(2), Domain.unit(2, 5))
    tree.state["spread"][~tree.split] = 3
    before, cell = tree.state["out"] + tree.state["below"], tree.state.copy()
    tree.fold(~tree.split)
    np.testing.assert_array_equal(tree.state["out"] + tree.state["below"], before)
    assert (tree.state["below"][~tree.split] == 0).all()
    assert (tree.state["carried"][~tree.split] == 3).all()
    assert (tree.state[tree.split] == cell[tree.split]).all()


def in_node(code: int, node: int) -> bool:
    drop = code.bit_length() - node.bit_length()
    return drop >= 0 and code >> drop == node


def test_absent_nodes_are_fresh() -> None:
    cell = np.zeros(2, NODE)
    cell["out"] = [3, 4]
    nodes = Nodes(np.array([2, 7], np.uint64), cell)
    assert nodes.take(np.array([1, 2, 3, 7, 8], np.uint64))["out"].tolist() == [0, 3, 0, 4, 0]
    empty = Nodes(np.empty(0, np.uint64), np.zeros(0, NODE))
    assert empty.take(np.array([1], np.uint64))["out"].tolist() == [0]


def test_a_stored_node_takes_at_most_64_bytes() -> None:
    assert NODE.itemsize + 8 + 4 <= 64


def test_shares_as_parts_of_what_is_shared() -> None:
    """Of nothing there are equal parts; a share that rounding put off by a step stays a part."""
    inherited, shares = np.array([40, 0, -8, 1]), np.array([30, 10, 0, 0, 0, -6, -2, 2, -1])
    found = parts(inherited, shares, np.array([2, 3, 2, 2]))
    third = 1 / 3
    np.testing.assert_allclose(found, [0.75, 0.25, third, third, third, 0.75, 0.25, 1, 0])


def test_ages_add_up_along_the_oldest_branch() -> None:
    """The root counted 5 times, then its children 2 and 3 times; the first split again: 4 and 1."""
    state = np.zeros(5, NODE)
    state["steps"] = [5, 2, 3, 4, 1]
    split = np.array([True, True, False, False, False])
    tree = LiveTree(
        np.arange(1, 6, dtype=np.uint64), state, split, (None, None, None), (0, 1, 3, 5)
    )
    assert tree.ages().tolist() == [11, 6, 3, 4, 1]

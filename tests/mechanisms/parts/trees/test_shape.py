"""Shapes of wide trees: exact variances, and the optimum that trying everything finds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.parts.trees.hierarchy import Chunks, InfiniteTree
from hushstream.mechanisms.parts.trees.shape import (
    FANOUTS,
    Covariance,
    TreeShape,
    choose_shape,
    endless,
    inside_error,
    mean_variance,
    shape_error,
    span_terms,
    unit_noise,
)


def dense(shape: TreeShape, blocks: int) -> np.ndarray:
    """Covariance of the consistent estimates of blocks: (SᵀS)⁻¹, chunk by chunk, σ = 1."""
    size = shape.fanout**shape.levels
    rows = [
        np.kron(np.eye(size // shape.fanout**level), np.ones(shape.fanout**level))
        for level in range(shape.levels)
    ]
    sums = np.concatenate(rows)
    chunk = np.linalg.inv(sums.T @ sums)
    return np.kron(np.eye(-(-blocks // size)), chunk)


def every_range(shape: TreeShape, slots: int, history: int = 1) -> float:
    """Mean noise variance over all ranges for θ = ε = 1; slots of the open block are predicted."""
    width, blocks = shape.width, -(-slots // shape.width)
    covariance = dense(shape, blocks)
    totals = np.concatenate([[np.zeros(len(covariance))], np.cumsum(np.eye(len(covariance)), 0)])
    prefix = []
    for end in range(slots + 1):
        block, rest = divmod(end, width)
        known = min(block, history)
        last = (totals[block] - totals[block - known]) / known if block else 0 * totals[0]
        prefix.append(totals[block] + rest / width * last)
    rows = np.array(prefix)
    joint = rows @ covariance @ rows.T
    own = np.diag(joint)
    apart = own[:, None] + own[None, :] - 2 * joint
    return 2 * shape.levels**2 * float(apart.mean())


@pytest.mark.parametrize("history", [1, 4])
@pytest.mark.parametrize(
    "shape", [TreeShape(2, 3, 1), TreeShape(3, 2, 2), TreeShape(8, 1, 1), TreeShape(4, 2, 0)]
)
def test_the_mean_noise_is_that_of_all_ranges(shape: TreeShape, history: int) -> None:
    exact = every_range(shape, 150, history)
    assert unit_noise(shape, 150, history) == pytest.approx(exact, rel=0.1)
    tree = Chunks(shape.fanout, shape.levels, Fraction(1, 3))
    found = mean_variance(tree, shape.width, 150, history)
    assert found == pytest.approx(9 * unit_noise(shape, 150, history), rel=1e-3)
    covariance, blocks = Covariance(shape.fanout, shape.levels), dense(shape, 30)
    for i, j in itertools.product((1, 5, 9, 17), repeat=2):
        assert covariance(i, j) == pytest.approx(blocks[:i, :j].sum())


@pytest.mark.parametrize("epsilon", [Fraction(1, 20), Fraction(1, 5), Fraction(1)])
@pytest.mark.parametrize("slots", [40, 120])
def test_no_shape_is_better_than_the_chosen_one(slots: int, epsilon: Fraction) -> None:
    """All fanouts, levels and widths that fit, by brute force over all ranges."""
    found = choose_shape(slots, epsilon)

    def error(shape: TreeShape) -> float:
        missed = inside_error(shape.width, slots, 1)
        return every_range(shape, slots) / float(epsilon) ** 2 + missed

    tried = {}
    for fanout in FANOUTS:
        for levels, skip in itertools.product(range(1, 6), range(7)):
            fits = fanout ** (levels - 1 + skip) < slots and fanout**skip * 8 <= slots
            if fits and fanout**levels <= 256:
                shape = TreeShape(fanout, levels, skip)
                alike = (levels, shape.width, fanout if levels > 1 else 0)
                tried.setdefault(alike, error(shape))
    assert error(found) <= 1.04 * min(tried.values())
    assert max(tried.values()) > 2 * error(found)


@cache
def summed(slots: int, fanout: int, levels: int, width: int) -> float:
    """`every_range` for long streams and any width: covariances summed node by node.

    Blocks under one node share a covariance, so a weighted sum of blocks has the variance
    Σ_l g_l Σ_nodes (weights under the node)². The mean over all ranges follows from the prefix
    sums: twice the mean of their variances less twice the variance of their mean.
    """
    open_block, rest = np.divmod(np.arange(slots + 1), width)
    weight = np.where(open_block > 0, 1 + rest / width, 0.0)  # of the last ended block
    last = np.maximum(open_block - 1, 0)
    blocks = int(open_block.max())
    mean = np.bincount(last, weights=weight, minlength=blocks)
    mean[:-1] += np.cumsum(np.bincount(last[open_block > 0], minlength=blocks)[:0:-1])[::-1]
    mean /= slots + 1
    total, size, below = 0.0, 1, 0
    for _ in range(levels):
        here = below * fanout + 1
        joint = -1 / (here * below) if below else 1.0
        node = last // size
        total += joint * np.mean(node * float(size) ** 2 + (last - node * size + weight) ** 2)
        total -= joint * np.sum(np.add.reduceat(mean, np.arange(0, blocks, size)) ** 2)
        size, below = size * fanout, here
    return 4 * levels**2 * float(total)


def trees(slots: int, widths: list[int]) -> Iterator[tuple[int, int, int]]:
    """(fanout, levels, width) for at least eight blocks; ``widths`` or all powers of the fanout."""
    for fanout in range(2, 41):
        for width in widths or [fanout**skip for skip in range(17)]:
            for levels in range(1, 18):
                fits = levels == 1 or fanout ** (levels - 1) * width < slots
                if fits and 8 * width <= slots and fanout**levels <= 1 << 21:
                    yield fanout, levels, width


@pytest.mark.parametrize(
    "shape", [TreeShape(2, 3, 1), TreeShape(3, 2, 2), TreeShape(8, 1, 1), TreeShape(4, 2, 0)]
)
def test_sums_over_nodes_are_those_of_the_inverse_matrix(shape: TreeShape) -> None:
    found = summed(150, shape.fanout, shape.levels, shape.width)
    assert found == pytest.approx(every_range(shape, 150))


CELLS = tuple(itertools.product((1, 10, 100), (0.05, 0.1, 0.2, 0.5, 1.0)))  # loads and ε


def predicted(slots: int, tree: tuple[int, int, int], load: int, epsilon: float) -> float:
    """Mean squared error of a range for θ = 1: noise, chance and trend, as the module states it."""
    width = tree[2]
    trend = 0.02**2 + min(1.2 * width / slots, 0.04) ** 2
    missed = 5 / 36 * load * width + trend * (load * width) ** 2 if width > 1 else 0.0
    return summed(slots, *tree) / epsilon**2 + missed


def ratios(slots: int, tried: list[tuple[int, int, int]]) -> list[float]:
    """The chosen tree's error over the least error of all tried trees, for each load and ε."""
    found = []
    for load, epsilon in CELLS:
        shape = choose_shape(slots, Fraction(epsilon).limit_denominator(100), load)
        mine = predicted(slots, (shape.fanout, shape.levels, shape.width), load, epsilon)
        found.append(mine / min(predicted(slots, tree, load, epsilon) for tree in tried))
    return found


@pytest.mark.thorough
@pytest.mark.spread(4)
@pytest.mark.parametrize("slots", [100, 1000, 40_000, 4000])
def test_the_rule_is_within_a_seventh_of_the_best_of_all_trees(slots: int) -> None:
    """Fanouts up to 40, all numbers of levels, blocks of all powers of the fanout."""
    found = ratios(slots, list(trees(slots, [])))
    assert min(found) >= 0.999 and max(found) <= 8 / 7 and np.median(found) <= 1.02


@pytest.mark.thorough
def test_widths_that_are_no_power_would_gain_little() -> None:
    """The rule uses only powers of the fanout as widths; here all widths are tried."""
    widths = sorted({round(1.15**i) for i in range(35)})
    found = ratios(1000, [*trees(1000, []), *trees(1000, widths)])
    assert max(found) <= 4 / 3 and np.median(found) <= 1.05


@pytest.mark.spread(3)
@pytest.mark.parametrize(("epsilon", "skip"), [(0.05, 2), (0.1, 2), (1.0, 1)])
def test_the_published_objective_chooses_trees_of_several_times_the_error(
    epsilon: float, skip: int
) -> None:
    """The paper takes fanout 16, height 5, and the skip of least 2(b-1)(h-s)³/ε² + b^2s/36."""
    objective = [30 * (5 - s) ** 3 / epsilon**2 + 16.0 ** (2 * s) / 36 for s in range(5)]
    assert objective.index(min(objective)) == skip
    shape = choose_shape(114_688, Fraction(epsilon).limit_denominator(100))
    mine = predicted(114_688, (shape.fanout, shape.levels, shape.width), 1, epsilon)
    assert predicted(114_688, (16, 5 - skip, 16**skip), 1, epsilon) > 2 * mine


@pytest.mark.parametrize("history", [1, 4])
def test_values_that_scatter_evenly_leave_the_stated_chance(history: int) -> None:
    """Without the trend: the error of predicting both ends of a range from earlier blocks."""
    width, draw = 16, np.random.default_rng(4)
    values = draw.random((20_000, history + 1, width))
    last, here = values[:, 1:].sum(axis=(1, 2)) / history, np.cumsum(values[:, 0], axis=1)
    share = np.arange(1, width + 1) / width
    missed = float(((here - share * last[:, None]) ** 2).mean())
    trend = (0.02 * width) ** 2
    found = inside_error(width, 1 << 30, 1, history) - trend
    assert found == pytest.approx(2 * missed, rel=0.1)
    assert inside_error(1, 9, 100) == 0.0
    assert inside_error(8, 1 << 30, 3) == pytest.approx(5 * 24 / 36 + (0.02 * 24) ** 2)


def test_wide_blocks_are_expected_to_lose_more_than_in_proportion() -> None:
    """A level that moves by 1.2 over the stream moves within blocks, but by at most 0.04."""

    def moved(width: int) -> float:
        rest = inside_error(width, 1 << 40, 1, 4)
        return math.sqrt(inside_error(width, 10_000, 1, 4) - rest) / width

    assert moved(100) == pytest.approx(1.2 * 0.01) and moved(200) == pytest.approx(1.2 * 0.02)
    assert [moved(400), moved(1000)] == pytest.approx([0.04, 0.04])


def test_what_is_given_is_not_chosen() -> None:
    one = Fraction(1, 2)
    assert choose_shape(500, one, 1, fanout=16).fanout == 16
    assert choose_shape(500, one, 1, fanout=4, height=3, skip=1) == TreeShape(4, 2, 1)
    assert choose_shape(500, one, 1, skip=0).skip == 0
    free = choose_shape(5000, one)
    assert all(
        shape_error(free, 5000, one, 1) <= shape_error(choose_shape(5000, one, 1, b), 5000, one, 1)
        for b in (2, 5, 16)
    )
    for slots in (1, 2, 3, 7):
        assert choose_shape(slots, one).width <= slots
    assert choose_shape(1000, one, load=10_000).width == 1


def test_wrong_parameters_are_named() -> None:
    for call, name in (
        (lambda: choose_shape(0, Fraction(1)), "slots"),
        (lambda: choose_shape(9, Fraction(0)), "epsilon"),
        (lambda: choose_shape(9, Fraction(1), 0), "load"),
        (lambda: choose_shape(9, Fraction(1), 1, 1), "fanout"),
        (lambda: choose_shape(9, Fraction(1), 1, 2, 2, 2), "skip"),
    ):
        with pytest.raises(ParameterError, match=name):
            call()


def test_spans_weigh_totals_of_whole_blocks() -> None:
    assert span_terms(0, 8, 4) == {2: 1.0}
    assert span_terms(0, 3, 4) == {}
    assert span_terms(5, 6, 4) == {1: 0.25}


def test_the_infinite_tree_of_a_stream_with_an_end() -> None:
    """The tree has only the levels in use, and the best block width of those tried."""
    tree, width = endless(600, Fraction(1, 4), 1, 4)
    assert tree.blocks == -(-600 // width)
    for skip in range(4):
        other, wide = endless(600, Fraction(1, 4), 1, 4, skip)
        assert wide == 4**skip and isinstance(other, InfiniteTree)
        error = mean_variance(other, wide, 600) + inside_error(wide, 600, 1)
        assert mean_variance(tree, width, 600) + inside_error(width, 600, 1) <= error

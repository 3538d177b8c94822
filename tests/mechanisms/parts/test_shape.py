"""Shapes of wide trees: exact variances, and the optimum that trying everything finds."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.parts.hierarchy import Chunks, InfiniteTree
from hushstream.mechanisms.parts.shape import (
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


def every_range(shape: TreeShape, slots: int) -> float:
    """Mean noise variance of all ranges for θ = ε = 1, each slot of an open block predicted."""
    width, blocks = shape.width, -(-slots // shape.width)
    covariance = dense(shape, blocks)
    totals = np.concatenate([[np.zeros(len(covariance))], np.cumsum(np.eye(len(covariance)), 0)])
    prefix = []
    for end in range(slots + 1):
        block, rest = divmod(end, width)
        last = totals[block] - totals[block - 1] if block else 0 * totals[0]
        prefix.append(totals[block] + rest / width * last)
    rows = np.array(prefix)
    joint = rows @ covariance @ rows.T
    own = np.diag(joint)
    apart = own[:, None] + own[None, :] - 2 * joint
    return 2 * shape.levels**2 * float(apart.mean())


@pytest.mark.parametrize(
    "shape", [TreeShape(2, 3, 1), TreeShape(3, 2, 2), TreeShape(8, 1, 1), TreeShape(4, 2, 0)]
)
def test_the_mean_noise_is_that_of_all_ranges(shape: TreeShape) -> None:
    exact = every_range(shape, 150)
    assert unit_noise(shape, 150) == pytest.approx(exact, rel=0.1)
    tree = Chunks(shape.fanout, shape.levels, Fraction(1, 3))
    assert mean_variance(tree, shape.width, 150) == pytest.approx(9 * exact, rel=0.1)
    covariance, blocks = Covariance(shape.fanout, shape.levels), dense(shape, 30)
    for i, j in itertools.product((1, 5, 9, 17), repeat=2):
        assert covariance(i, j) == pytest.approx(blocks[:i, :j].sum())


@pytest.mark.parametrize("epsilon", [Fraction(1, 20), Fraction(1, 5), Fraction(1)])
@pytest.mark.parametrize("slots", [40, 120])
def test_no_shape_is_better_than_the_chosen_one(slots: int, epsilon: Fraction) -> None:
    """All fanouts, levels and widths that fit, by brute force over all ranges."""
    found = choose_shape(slots, epsilon)

    def error(shape: TreeShape) -> float:
        return every_range(shape, slots) / float(epsilon) ** 2 + inside_error(shape.width, 1)

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


def test_values_that_scatter_evenly_leave_the_stated_chance() -> None:
    """With the trend left out: what a prediction from the last block misses, at both ends."""
    width, draw = 16, np.random.default_rng(4)
    values = draw.random((20_000, 2, width))
    last, here = values[:, 0].sum(axis=1), np.cumsum(values[:, 1], axis=1)
    share = np.arange(1, width + 1) / width
    missed = float(((here - share * last[:, None]) ** 2).mean())
    trend = (0.03 * width) ** 2
    assert inside_error(width, 1) - trend == pytest.approx(2 * missed, rel=0.1)
    assert inside_error(1, 100) == 0.0
    assert inside_error(8, 3) == pytest.approx(5 * 24 / 36 + (0.03 * 24) ** 2)


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
    """Its levels are those in use, and its blocks the best of those tried."""
    tree, width = endless(600, Fraction(1, 4), 1, 4)
    assert tree.blocks == -(-600 // width)
    for skip in range(4):
        other, wide = endless(600, Fraction(1, 4), 1, 4, skip)
        assert wide == 4**skip and isinstance(other, InfiniteTree)
        error = mean_variance(other, wide, 600) + inside_error(wide, 1)
        assert mean_variance(tree, width, 600) + inside_error(width, 1) <= error

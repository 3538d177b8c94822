from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.parts.sketch import Sketch
from hushstream.mechanisms.privhp.layout import SumLayout, split_gauss, split_pure
from hypothesis import given, settings
from hypothesis import strategies as st

from ...oracles.keys import is_canonical

SHAPES = st.builds(
    lambda d, r, exact, keep, j: SumLayout(d, r, min(exact, r), keep, Sketch(width=8, rows=j)),
    st.integers(1, 4), st.integers(0, 24), st.integers(0, 8), st.integers(1, 500),
    st.sampled_from([1, 3, 5]),
)  # fmt: skip


def test_shares_of_the_published_example() -> None:
    shares = split_pure(SumLayout(1, 4, 2, 4, Sketch(width=8)), Fraction(1))
    np.testing.assert_allclose(
        [float(share) for share in shares], [0.21244, 0.21244, 0.21244, 0.21244, 0.15022], atol=6e-6
    )
    assert 1 - Fraction(1, 10**5) < sum(shares) <= 1


def test_importance_by_hand() -> None:
    """d=2: diameters 1, 1, 1/2, 1/2, 1/4; all nodes down to L=2, k=3 below."""
    shape = SumLayout(2, 4, 2, 3, Sketch(width=8, rows=3))
    expected = [1, 1, 2, Fraction(3, 2), Fraction(3, 2)]
    assert list(shape.importance()) == expected
    weights = [float(e * j) ** 0.5 for e, j in zip(expected, (1, 1, 1, 3, 3), strict=True)]
    shares = np.array([float(share) for share in split_pure(shape, Fraction(2))])
    np.testing.assert_allclose(shares, 2 * np.array(weights) / sum(weights), rtol=1e-4)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(shape=SHAPES, epsilon=st.fractions(Fraction(1, 100), 20), seed=st.integers(0, 99))
def test_shares_never_exceed_the_budget_and_are_optimal(
    shape: SumLayout, epsilon: Fraction, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    touched = np.array([shape.touched(level) for level in range(shape.levels)])
    weight = np.array([float(part) for part in shape.importance()])
    shares = split_pure(shape, epsilon)
    assert sum(shares) <= epsilon and min(shares) > 0
    other = rng.dirichlet(np.full(shape.levels, 50.0)) * float(epsilon)
    cost = (weight * touched / np.array(list(map(float, shares)))).sum()
    assert cost <= (weight * touched / other).sum() * (1 + 1e-4)
    parts = split_gauss(shape)
    assert sum(parts) <= 1 and min(parts) > 0
    cost = (weight * np.sqrt(touched / np.array(list(map(float, parts))))).sum()
    other /= float(epsilon)
    assert cost <= (weight * np.sqrt(touched / other)).sum() * (1 + 1e-4)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(shape=SHAPES, seed=st.integers(0, 99))
def test_sums_of_leaves_are_sums_of_their_ancestors(shape: SumLayout, seed: int) -> None:
    rng = np.random.default_rng(seed)
    low, high = 1 << shape.depth, 2 << shape.depth
    codes = np.unique(rng.integers(low, high, 30)).astype(np.uint64)
    counts = rng.integers(-3, 9, len(codes))
    expected = np.zeros(shape.sums, np.int64)
    for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
        for level in range(shape.levels):
            node = code >> (shape.depth - level)
            mine = shape.part(expected, level)
            if level <= shape.exact:
                mine[node - (1 << level)] += count
            else:
                one = np.array([node], np.uint64)
                mine += shape.sketch.add(one, np.array([count]))
    np.testing.assert_array_equal(shape.sum_leaves(codes, counts), expected)
    assert not shape.sum_leaves(codes[:0], counts[:0]).any()


@settings(max_examples=40, deadline=None, derandomize=True)
@given(shape=SHAPES)
def test_names_and_places_are_inverse_and_ordered(shape: SumLayout) -> None:
    every = np.arange(shape.sums)
    names = shape.names(every)
    np.testing.assert_array_equal(shape.places(names), every)
    assert is_canonical(names)
    assert shape.offsets[-1] == shape.sums == sum(map(shape.size, range(shape.levels)))


def test_one_record_moves_one_sum_per_counter_and_one_per_row() -> None:
    shape = SumLayout(2, 9, 3, 8, Sketch(width=4, rows=3))
    table = shape.sum_leaves(np.array([777], np.uint64), np.ones(1, np.int64))
    for level in range(10):
        moved = np.abs(shape.part(table, level))
        assert (
            moved.sum()
            == np.count_nonzero(moved)
            == shape.touched(level)
            == (1 if level < 4 else 3)
        )


@pytest.mark.parametrize(
    "given",
    [(0, 4, 2, 4), (1, -1, 0, 4), (1, 4, 5, 4), (1, 4, -1, 4), (1, 4, 2, 0), (1, 40, 30, 1)],
)
def test_bad_shapes_are_refused(given: tuple[int, int, int, int]) -> None:
    with pytest.raises(ParameterError):
        SumLayout(*given, Sketch(width=8))
    with pytest.raises(ParameterError):
        split_pure(SumLayout(1, 4, 2, 4, Sketch(width=8)), Fraction(0))

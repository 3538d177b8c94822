"""The closed form of the estimates and variances, against linear algebra."""

from __future__ import annotations

import numpy as np
import pytest
from hushstream.mechanisms.quantile.tree import BandTree, _nearest, levels_of, summed
from hypothesis import given
from hypothesis import strategies as st

positive = st.floats(0.5, 50)


def matrix(levels: int) -> np.ndarray:
    """(nodes, B) indicators of the bands under each node, level by level."""
    bands = 4 ** (levels - 1)
    rows = [np.kron(np.eye(bands // 4**level), np.ones(4**level)) for level in range(levels)]
    return np.concatenate(rows)


def weights(variances: list[float]) -> np.ndarray:
    bands = 4 ** (len(variances) - 1)
    return np.concatenate([np.full(bands // 4**i, 1 / v) for i, v in enumerate(variances)])


@given(st.lists(positive, min_size=2, max_size=4), st.integers(0, 2**32))
def test_estimates_are_those_of_least_squares(variances: list[float], seed: int) -> None:
    S, w, tree = matrix(len(variances)), weights(variances), BandTree(tuple(variances))
    noisy = np.random.default_rng(seed).normal(0, 10, (3, len(S)))
    ends = np.cumsum([4 ** (len(variances) - 1 - level) for level in range(len(variances))])[:-1]
    found = tree.estimates(np.split(noisy, ends, axis=1))
    inverse = np.linalg.inv(S.T @ (w[:, None] * S))
    np.testing.assert_allclose(found, noisy * w @ S @ inverse, atol=1e-8)


@given(st.lists(positive, min_size=3, max_size=4), st.sampled_from([0.1, 0.5, 0.99]))
def test_variances_are_those_of_least_squares(variances: list[float], q: float) -> None:
    S, w, tree = matrix(len(variances)), weights(variances), BandTree(tuple(variances))
    covariance = np.linalg.inv(S.T @ (w[:, None] * S))
    below = np.tril(np.ones((tree.bands, tree.bands)))[:-1] - q
    np.testing.assert_allclose(
        tree.rank_variance(q), np.einsum("ei,ij,ej->e", below, covariance, below), rtol=1e-8
    )
    assert tree.band_variance == pytest.approx(covariance[0, 0])
    assert tree.total_variance == pytest.approx(covariance.sum())


@given(st.lists(positive, min_size=2, max_size=4), st.integers(0, 2**32))
def test_without_noise_the_bands_come_back(variances: list[float], seed: int) -> None:
    tree = BandTree(tuple(variances))
    exact = np.random.default_rng(seed).integers(-5, 1000, (2, tree.bands))
    nodes = [level.astype(float) for level in levels_of(exact)]
    assert [level.shape[1] for level in nodes] == [tree.bands // size for size in tree.sizes]
    np.testing.assert_allclose(tree.estimates(nodes), exact, atol=1e-8)


def nearest(children: np.ndarray, total: float) -> np.ndarray:
    """The nearest non-negative children with this total, by bisection on their common shift."""
    low, high = -total - np.abs(children).max() - 1, total + np.abs(children).max() + 1
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if np.maximum(children + middle, 0).sum() < total else (low, middle)
        )
    return np.asarray(np.maximum(children + low, 0))


@given(st.lists(positive, min_size=2, max_size=4), st.floats(1, 200), st.integers(0, 2**32))
def test_children_are_shrunk_and_shared_out_nearest(
    variances: list[float], total: float, seed: int
) -> None:
    """Compared with the covariance of least squares and a search for the shift, node by node."""
    S, w, tree = matrix(len(variances)), weights(variances), BandTree(tuple(variances))
    bands = np.random.default_rng(seed).normal(1, 10, (1, tree.bands))
    found = tree.smoothed(bands, np.array([total]))
    assert (found >= 0).all() and found.sum() == pytest.approx(total)
    inverse, wanted = np.linalg.inv(S.T @ (w[:, None] * S)), np.array([total])
    for level in range(len(variances) - 2, -1, -1):
        size = 4**level
        apart = np.zeros(tree.bands)
        apart[:size], apart[size : 2 * size] = 0.5**0.5, -(0.5**0.5)  # difference of two children
        variance = apart @ inverse @ apart
        children = bands.reshape(-1, 4, size).sum(axis=2)
        children = children - children.mean(axis=1, keepdims=True)
        shrink = 1 - variance / (children**2).sum(axis=1, keepdims=True)
        children = children * np.maximum(shrink, 0)
        wanted = np.concatenate(
            [nearest(four, whole) for four, whole in zip(children, wanted, strict=True)]
        )
    np.testing.assert_allclose(found[0], wanted, atol=1e-6)


def test_no_bit_of_a_key_depends_on_those_beside_it() -> None:
    """This also holds where a child becomes zero and the next step shifts three, not four."""
    four = np.random.default_rng(3).uniform([5, 5, 5, 0], [13, 13, 13, 8], (500, 1, 4))
    total = four[..., :3].sum(axis=2) - 3 * four[..., 3]  # the shift is minus the last child
    hard = np.array([[[9.0, 4.0, -2.0, -8.0]]])
    alone = [_nearest(one[None], whole[None])[0] for one, whole in zip(four, total, strict=True)]
    beside = _nearest(np.concatenate([four, hard]), np.concatenate([total, [[5.0]]]))
    np.testing.assert_array_equal(beside[:-1], alone)


def test_without_noise_bands_stay() -> None:
    tree, bands = BandTree((1e-9,) * 4), np.arange(64, dtype=float)[None]
    np.testing.assert_allclose(tree.smoothed(bands, bands.sum(axis=1)), bands, atol=1e-6)
    assert tree.smoothed(np.zeros((0, 64)), np.zeros(0)).shape == (0, 64)


def test_four_neighbours_are_added() -> None:
    assert summed(np.arange(8)[None]).tolist() == [[6, 22]]
    assert summed(np.zeros((0, 16), np.int64)).shape == (0, 4)

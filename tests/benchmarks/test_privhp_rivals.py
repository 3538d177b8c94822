"""PrivHP's rivals: noise scales, sensitivities and post-processing, as in their papers.

Means of R exponential variables are within 5/√R of their expectation; false-alarm rate 10^-6.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
try:
    import _privhp_rivals as rivals
    from _privhp import DEPTH, Input
finally:
    sys.path.pop(0)


def near(sizes: np.ndarray, expected: float) -> bool:
    """Whether the mean absolute value of Laplace draws fits their scale."""
    return abs(float(np.abs(sizes).mean()) / expected - 1) < 5 / math.sqrt(len(sizes))


def test_a_record_changes_every_haar_coefficient_of_its_path_by_one() -> None:
    for place in range(8):
        one = np.zeros(8)
        one[place] = 1
        found = rivals.analysed(one)
        assert [float(np.abs(level).sum()) for level in found] == [1, 1, 1, 1]
        assert np.allclose(rivals.synthesised(found), one)


def test_noise_of_the_walk_pays_for_all_levels_and_the_total() -> None:
    rng = np.random.default_rng(1)
    drawn = [rivals.analysed(rivals.walk_steps(2, 0.5, rng)) for _ in range(4000)]
    for level in range(3):
        assert near(np.array([one[level][0] for one in drawn]), 3 / 0.5)


def test_the_nearest_monotone_sequence() -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        given = rng.integers(0, 3, 4).astype(float)
        found = rivals.monotone(given)
        every = np.stack(np.meshgrid(*[np.arange(3)] * 4), axis=-1).reshape(-1, 4)
        rising = every[(np.diff(every, axis=1) >= 0).all(axis=1)]
        assert (np.diff(found) >= 0).all()
        assert np.abs(found - given).sum() == np.abs(rising - given).sum(axis=1).min()


def test_the_curve_meets_every_cell_and_steps_to_the_next_one() -> None:
    curve = rivals.hilbert(4).astype(int)
    assert len({tuple(place) for place in curve.tolist()}) == 256
    assert (np.abs(np.diff(curve, axis=0)).sum(axis=1) == 1).all()


def test_the_fine_counts_of_a_grid_weigh_by_inverse_variance() -> None:
    rng, kept = np.random.default_rng(3), []
    for _ in range(4000):
        coarse, fine = rng.laplace(0, 2), rng.laplace(0, 2, (2, 2))
        kept.append(rivals.refined(coarse, fine).sum())
    best = 1 / (1 / 8 + 1 / 32)  # variances 2·2² and four times 2·2²
    assert abs(np.var(kept) / best - 1) < 5 * math.sqrt(5 / 4000)


def test_cells_share_a_part_by_their_overlap() -> None:
    first, shares = rivals.overlap(0.25, 0.75, 3, 8)
    assert first == 2 and np.allclose(shares.sum(axis=0), 1)
    assert np.allclose(shares.sum(axis=1), 0.75)


def test_grid_noise_spends_epsilon_once() -> None:
    """An empty input has 100 coarse cells with one fine cell each."""
    none = Input("none", np.empty((0, 2)), False)
    scales: list[float] = []

    class Spy:
        def laplace(self, mean: float, scale: float, size: object = None) -> object:
            scales.append(scale)
            return 0.0 if size is None else np.zeros(size)

    kept, rivals.np.random.default_rng = np.random.default_rng, lambda _: Spy()
    try:
        _, words = rivals.grid(none, 0.5, 0)
    finally:
        rivals.np.random.default_rng = kept
    assert words == 200
    assert math.isclose(sum(1 / scale for scale in set(scales[:2])) + 1 / scales[2], 0.5)


def test_summaries_of_neighbours_differ_as_the_proof_says() -> None:
    rng = np.random.default_rng(4)
    for _ in range(200):
        stream = rng.integers(0, 8, 40).tolist()
        gone = int(rng.integers(0, 40))
        one = rivals.misra_gries(stream, 4)
        two = rivals.misra_gries(stream[:gone] + stream[gone + 1 :], 4)
        assert len(one) == len(two) == 4
        assert len(one.keys() - two.keys()) <= 2
        assert all(one[key] <= 1 for key in one.keys() - two.keys())
        gaps = [one.get(key, 0) - two.get(key, 0) for key in one.keys() | two.keys()]
        moved = [gap for gap in gaps if gap]
        assert moved in ([], [1]) or set(moved) == {-1}


def test_a_summary_counts_within_the_bound() -> None:
    stream = np.random.default_rng(5).zipf(1.5, 3000).tolist()
    found = rivals.misra_gries(stream, 20)
    for key in set(stream):
        assert 0 <= stream.count(key) - found.get(key, 0) <= len(stream) / 21


def test_noise_and_threshold_of_a_summary() -> None:
    rng = np.random.default_rng(6)
    held = {1: 10_000, 2: 10_000, -1: 10_000}
    drawn = [rivals.private_summary(held, 0.5, 1e-6, rng) for _ in range(4000)]
    noise = np.array([[one[1], one[2]] for one in drawn]) - 10_000
    assert all(set(one) == {1, 2} for one in drawn)
    covariance = np.cov(noise.T)  # the common draw has 2/ε², the total 4/ε²
    assert np.allclose(covariance, [[16, 8], [8, 16]], atol=16 * 5 * math.sqrt(4 / 4000))
    low = {1: 1 + 2 * math.log(3e6) / 0.5 - 30}
    seen = sum(bool(rivals.private_summary(low, 0.5, 1e-6, rng)) for _ in range(4000))
    assert seen < 10


def test_the_walk_finds_the_points() -> None:
    points = np.full((5000, 2), 0.3)
    leaves = rivals.walk(Input("one place", points, True), 1.0, 0)
    share = leaves.count / leaves.count.sum()
    assert len(share) == 1 << DEPTH and share.max() > 0.8 and share.min() >= 0

from __future__ import annotations

import numpy as np
import pytest
from hushstream.mechanisms.parts.sketch import Sketch
from hushstream.mechanisms.privhp.decode import Parents, decode
from hypothesis import given, settings
from hypothesis import strategies as st


def level(seed: int, parents: int, sketch: Sketch) -> tuple[Parents, np.ndarray, np.ndarray]:
    """Parents, their children's true counts, and the exact sums of the sketch."""
    rng = np.random.default_rng(seed)
    codes = np.sort(rng.choice(1 << 12, parents, replace=False) + (1 << 12)).astype(np.uint64)
    records = rng.integers(1, 2000, parents)
    left = (records * rng.random(parents)).astype(np.int64)
    truth = np.stack([left, records - left], axis=1).reshape(-1)
    made = Parents(codes, records)
    return made, truth, sketch.add(made.children(), truth)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 999),
    parents=st.integers(1, 60),
    kind=st.sampled_from(["count", "min"]),
    rows=st.sampled_from([1, 3]),
    variance=st.floats(1e4, 1e8),
)
def test_equals_the_normal_equations(
    seed: int, parents: int, kind: str, rows: int, variance: float
) -> None:
    sketch = Sketch(kind, 40, rows, seed)  # type: ignore[arg-type]
    given_, _, sums = level(seed, parents, sketch)
    noisy = sums + np.random.default_rng(seed).integers(-50, 50, len(sums))
    matrix, known = np.zeros((sketch.sums, parents)), np.zeros(sketch.sums)
    for row in range(rows):
        place, sign = sketch.hash(given_.children(), row)
        for i in range(parents):
            matrix[place[2 * i], i] += sign[2 * i]
            matrix[place[2 * i + 1], i] -= sign[2 * i + 1]
            known[place[2 * i]] += sign[2 * i] * given_.records[i] / 2
            known[place[2 * i + 1]] += sign[2 * i + 1] * given_.records[i] / 2
    prior = np.diag(12 / given_.records.astype(float) ** 2)
    expected = np.linalg.solve(
        matrix.T @ matrix / variance + prior, matrix.T @ (noisy - known) / variance
    )
    left = np.clip(given_.records / 2 + expected, 0, given_.records)
    found = decode(sketch, noisy, given_, variance)
    assert (found >= 0).all()
    np.testing.assert_array_equal(found[0::2] + found[1::2], given_.records)
    # 40 steps leave a residue if variances differ by many orders of magnitude. Below 1e4 it is
    # larger: there are more splits than sums here, and little noise to choose between them.
    assert np.abs(found[0::2] - left).max() <= 0.51 + 2e-3 * given_.records.max()


def test_collisions_among_refined_nodes_cost_next_to_nothing() -> None:
    sketch = Sketch("count", 256)
    parents, truth, sums = level(3, 120, sketch)
    single = np.abs(sketch.estimate(sums, parents.children()) - truth).mean()
    joint = np.abs(decode(sketch, sums, parents, 1.0) - truth).mean()
    assert joint < single / 20


def test_where_noise_drowns_everything_splits_are_even() -> None:
    sketch = Sketch("count", 256)
    parents, _, sums = level(3, 120, sketch)
    found = decode(sketch, sums, parents, 1e15)
    assert np.abs(found[0::2] - found[1::2]).max() <= 1


def test_one_parent_by_hand() -> None:
    """P = 10, no collision: d = (y_left - y_right) / 2 · shrinkage, v = 2, prior 100/12."""
    sketch = Sketch("min", 1024)
    parents = Parents(np.array([5], np.uint64), np.array([10]))
    place, _ = sketch.hash(parents.children(), 0)
    assert place[0] != place[1]
    sums = np.zeros(1024, np.int64)
    sums[place] = 9, 1
    difference = (4 + 4) / 2 / (2 / 2 + 12 / 100)
    assert decode(sketch, sums, parents, 2.0).tolist() == [
        round(5 + difference),
        round(5 - difference),
    ]
    assert difference == pytest.approx(3.571, abs=1e-3)

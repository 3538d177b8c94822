from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.parts.sketch import Sketch
from hypothesis import given, settings
from hypothesis import strategies as st

from ...oracles.privhp import keyed

CODES = st.lists(st.integers(1, 2**62), min_size=1, max_size=30)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(codes=CODES, kind=st.sampled_from(["count", "min"]), rows=st.sampled_from([1, 3]))
def test_sketches_of_parts_add_up(codes: list[int], kind: str, rows: int) -> None:
    sketch = Sketch(kind, 7, rows)  # type: ignore[arg-type]
    words = np.array(codes, np.uint64)
    counts = np.arange(1, len(codes) + 1)
    parts = sketch.add(words[::2], counts[::2]) + sketch.add(words[1::2], counts[1::2])
    np.testing.assert_array_equal(parts, sketch.add(words, counts))
    assert np.abs(sketch.add(words[:1], np.ones(1, np.int64))).sum() == rows


def test_without_collisions_estimates_are_exact() -> None:
    codes = np.arange(1, 200, dtype=np.uint64)
    counts = np.arange(199) - 50
    for kind in ("count", "min"):
        sketch = Sketch(kind, 2**30, 1)  # type: ignore[arg-type]
        assert len(np.unique(sketch.hash(codes, 0)[0])) == 199
        sketch = Sketch(kind, 2**16, 3)  # type: ignore[arg-type]
        estimates = sketch.estimate(sketch.add(codes, counts), codes)
        assert (estimates != counts).mean() < (0.001 if kind == "count" else 0.05)


def test_min_never_underestimates_and_count_has_no_bias() -> None:
    rng = np.random.default_rng(0)
    codes, counts = np.arange(1, 500, dtype=np.uint64), rng.integers(1, 100, 499)
    few = Sketch("min", 40, 4)
    assert (few.estimate(few.add(codes, counts), codes) >= counts).all()
    errors = []
    for seed in range(300):
        sketch = Sketch("count", 40, 1, seed)
        errors.append(sketch.estimate(sketch.add(codes, counts), codes[:1])[0] - counts[0])
    deviation = np.sqrt((counts**2).sum() / 40)
    assert abs(np.mean(errors)) < 4 * deviation / np.sqrt(300)
    assert 0.8 < np.std(errors) / deviation < 1.25


def test_the_minimum_of_noisy_rows_is_biased_downwards() -> None:
    """Two Laplace rows of scale b: the minimum is 0.75·b too low, which is why j = 1 is usual."""
    scale, codes = Fraction(40), np.arange(1, 20_001, dtype=np.uint64)
    sketch = Sketch("min", 2**20, 2)
    from hushstream.mechanisms.keys import Keys

    places = np.stack([sketch.hash(codes, row)[0] for row in range(2)])
    used, where = np.unique(places, return_inverse=True)
    sums = np.zeros(sketch.sums, np.int64)
    index, first = used.astype(np.int64), np.ones(len(used), np.int64)
    sums[used] = keyed().laplace("t", Keys.of([b"a"]), index, scale, first)[0]
    assert where.size
    assert abs(sketch.estimate(sums, codes).mean() + 30) < 1.2


def test_hashes_look_random_and_follow_the_seed() -> None:
    codes = np.arange(2**12, 2**13, dtype=np.uint64)
    sketch = Sketch("count", 64, 3, seed=5)
    for row in range(3):
        place, sign = sketch.hash(codes, row)
        assert place.min() >= 64 * row and place.max() < 64 * (row + 1)
        counts = np.bincount(place - 64 * row, minlength=64)
        assert 25 < ((counts - 64) ** 2 / 64).sum() < 115  # chi-square, 63 degrees of freedom
        assert abs(sign.sum()) < 4 * 64
        other, _ = Sketch("count", 64, 3, seed=6).hash(codes, row)
        assert (place != other).mean() > 0.95
    assert (sketch.hash(codes, 0)[0] != sketch.hash(codes, 1)[0] - 64).mean() > 0.95


@pytest.mark.parametrize(
    "given",
    [{"kind": "x"}, {"width": 0}, {"width": 2**31}, {"rows": 0}, {"rows": 2}, {"seed": -1},
     {"seed": 2**64}],
)  # fmt: skip
def test_bad_shapes_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(ParameterError):
        Sketch(**given)  # type: ignore[arg-type]

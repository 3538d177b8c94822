"""The benchmark of aggregates: its truth, the noise of rivals, and coverage of intervals."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
try:
    import aggregates
finally:
    sys.path.pop(0)


def test_releases_of_a_small_world_are_near_its_truth_and_of_its_own_keys() -> None:
    truth = aggregates.world(3, 1)
    found, sizes = aggregates.released(truth, 1), np.array([len(one) for one in truth.price])
    exact = np.array([one.var() for one in truth.price])
    # A figure is nearer to its own key's truth than to others; noise of a sum is some thousands.
    assert np.abs(found["spread"]["variance"].value - exact).max() < 6 * 40_000 / sizes.min()
    assert np.allclose(found["spread"]["stddev"].value ** 2, found["spread"]["variance"].value)
    for place in range(4):
        counted = np.array([(one == place).sum() for one in truth.kind])
        above = np.array([(one > aggregates.ABOVE[place]).sum() for one in truth.price])
        assert np.abs(found["conditions"][f"c{place}"].value - counted).max() < 60
        assert np.abs(found["overlapping"][f"c{place}"].value - above).max() < 120


def test_an_interval_holds_what_lies_in_it_and_an_error_counts_as_often_as_is_said() -> None:
    one = aggregates.Released(np.array([3.0, 5.0]), np.array([2.0, 4.0]), np.array([4.0, 6.0]))
    assert aggregates.held(one, np.array([4.0, 3.9])) == [True, False]
    assert aggregates.rms(one.value, np.array([0.0, 1.0])) == pytest.approx(math.sqrt(12.5))
    assert aggregates.rms(one.value, np.array([0.0, 1.0]), np.array([2, 0])) == pytest.approx(
        math.sqrt(18)
    )


def test_rivals_have_the_noise_of_their_share_of_the_budget() -> None:
    alone = aggregates.noisy([0] * 4_000, 1, 1)
    shared = aggregates.noisy([0] * 4_000, 10, 4)
    assert np.std(alone) == pytest.approx(aggregates.scale(), rel=0.08)
    assert np.std(shared) == pytest.approx(20 * aggregates.scale(), rel=0.08)

"""The benchmark of windows that hop: fewer lost keys, and the noise that windows state."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
try:
    import hopping
finally:
    sys.path.pop(0)


@pytest.mark.thorough
def test_windows_that_hop_show_more_keys_with_less_noise() -> None:
    found = hopping.measure(60_000)
    assert found["keys_over_recipe"] >= 3
    assert 0.45 < found["deviation_over_recipe"] < 0.55
    assert found["error_over_recipe"] < 0.2
    assert found["recipe_coverage"] < found["found_coverage"]
    assert found["coverage"] == pytest.approx(0.95, abs=0.01)


def test_no_factorisation_has_less_noise_than_the_bound() -> None:
    first = np.tril(np.ones((hopping.HOURS, hopping.HOURS)))
    workload = np.vstack([first, 1 - first])
    least = hopping.least(rounds=200)
    rng = np.random.default_rng(5)
    for spread in (0.0, 0.02, 0.1):
        encoder = np.eye(hopping.HOURS) + spread * np.tril(rng.random(first.shape), -1)
        encoder /= np.linalg.norm(encoder, axis=0).max()
        noise = np.linalg.norm(workload @ np.linalg.inv(encoder)) / hopping.HOURS
        assert noise >= least
    assert 0.52 < least <= hopping.deviations(1)


def test_a_day_is_the_sum_of_the_hours_that_end_with_it() -> None:
    hourly = np.random.default_rng(3).integers(0, 9, (hopping.HOURS * hopping.DAYS, 2))
    for place, total in enumerate(hopping.last_day(hourly)):
        end = 2 * hopping.HOURS + place + 1
        assert (total == hourly[end - hopping.HOURS : end].sum(axis=0)).all()


def test_records_of_an_hour_are_together() -> None:
    given = hopping.sample(500, 1)
    assert len(given.ends) == 72 and given.ends[-1] == len(given.work.unit)
    assert (np.diff((0, *given.ends)) > 0).all()

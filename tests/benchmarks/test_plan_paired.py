"""The paired comparison: not biased by the luckiest of many settings, with a true deviation."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]

sys.path.insert(0, str(ROOT / "benchmarks"))
try:
    import _plan_paired as paired
finally:
    sys.path.pop(0)


def noisy(factors: list[float], keys: int, seed: int) -> np.ndarray:
    """Errors of settings: a factor, times noise common to all, times noise of their own."""
    draw = np.random.default_rng(seed)
    common = draw.gamma(4, 0.25, keys)
    own = np.exp(draw.normal(0, 0.5, (len(factors), keys)))
    return np.array(factors)[:, None] * common * own


@pytest.mark.parametrize("squared", [False, True])
def test_equal_settings_are_equal_where_the_least_of_many_is_lucky(squared: bool) -> None:
    found, lucky = [], []
    for seed in range(60):
        errors = noisy([1.0] * 20, 24, seed)
        every = paired.overall(errors, squared)
        lucky.append(every[0] / every.min())
        found.append(paired.apart(errors, squared)[0])
    assert np.median(lucky) > 1.15
    assert abs(np.mean(found) - 1) < 0.05


def test_a_bad_choice_is_found_out_and_the_deviation_is_true() -> None:
    made = [paired.apart(noisy([1.5, 1.0, 1.3], 200, seed), False) for seed in range(80)]
    ratios, told = np.array(made).T
    assert abs(ratios.mean() - 1.5) < 0.05
    assert 0.7 < np.mean(told) / ratios.std() < 1.4
    assert {paired.verdict(*one) for one in made} == {"beyond"}


def test_a_setting_that_is_its_own_rival_is_exact() -> None:
    errors = np.array([[1.0, 2.0, 1.5, 1.0], [9.0, 8.0, 9.0, 8.0], [np.inf] * 4])
    assert paired.apart(errors, True) == (1.0, 0.0)
    assert paired.overall(errors[:1], True)[0] == pytest.approx(np.sqrt(8.25 / 4))


def test_verdicts_need_confidence() -> None:
    assert paired.verdict(1.05, 0.01) == "within" and paired.verdict(1.2, 0.01) == "beyond"
    assert paired.verdict(1.05, 0.05) == paired.verdict(1.2, 0.1) == "open"


def test_too_few_noise_keys_are_refused() -> None:
    with pytest.raises(ValueError, match="3 noise keys are too few"):
        paired.apart(np.ones((2, 3)), False)

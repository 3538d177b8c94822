"""Calibration of noise to a budget: proven, nearly tight, refused where no noise fits."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms import accounting
from hushstream.mechanisms.accounting.calibration import Need, fit
from hushstream.mechanisms.contract import Cost, Setting
from scipy.stats import norm

SETTING = Setting(Fraction(1), Fraction(1, 10**6), 20)
NEEDS = [Need(Fraction(1 << 60), Fraction(3, 4)), Need(Fraction(1 << 50), Fraction(1, 4))]


def _delta(mu: float, epsilon: float) -> float:
    """δ(ε) of a Gaussian process with mean μ (Balle and Wang 2018, theorem 8)."""
    high, low = norm.cdf(mu / 2 - epsilon / mu), norm.cdf(-mu / 2 - epsilon / mu)
    return float(high - 2.718281828459045**epsilon * low)


def test_the_whole_keeps_the_budget_and_wastes_little() -> None:
    made = fit(SETTING, NEEDS, 100, Fraction(0))
    assert accounting.total([made.loss], SETTING.delta)[0] <= SETTING.epsilon
    ratios = [float(n.shift2 / v) for n, v in zip(NEEDS, made.variance, strict=True)]
    assert ratios[0] / ratios[1] == pytest.approx(3, rel=1e-6)
    mu = sum(ratios) ** 0.5
    assert _delta(mu, 1.0) <= 1e-6
    assert _delta(mu * 1.01, 1.0) > 1e-6


def test_key_selection_is_paid_from_the_same_delta() -> None:
    alone = fit(SETTING, NEEDS, 100, Fraction(0))
    shared = fit(SETTING, NEEDS, 100, SETTING.delta / 2)
    assert all(b > a for a, b in zip(alone.variance, shared.variance, strict=True))
    assert isinstance(shared.loss, Cost)
    assert shared.loss.delta >= SETTING.delta / 2


def test_a_delta_that_selection_uses_up_is_refused() -> None:
    with pytest.raises(ParameterError, match="delta = 1e-06: is too small"):
        fit(SETTING, NEEDS, 100, SETTING.delta)
    with pytest.raises(ParameterError, match="delta"):
        fit(replace(SETTING, delta=Fraction(1, 10**40)), NEEDS, 100, Fraction(0))


def test_an_epsilon_below_the_cost_of_the_grid_is_too_small_and_a_huge_one_too_large() -> None:
    with pytest.raises(ParameterError, match="epsilon = 1e-30: is too small: the grid"):
        fit(replace(SETTING, epsilon=Fraction(1, 10**30)), NEEDS, 100, Fraction(0))
    need = [Need(Fraction(10**5), Fraction(1))]
    loose = Setting(Fraction(30), Fraction(2, 5), 20)
    with pytest.raises(ParameterError, match=r"epsilon = 30\.0: is too large: it asks"):
        fit(loose, need, 100, Fraction(0))

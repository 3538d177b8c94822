"""Settings of a histogram: calibrated to the whole budget, or refused.

Covers: mechanisms/histogram/tumbling.py, mechanisms/histogram/calibration/bound.py
Covers: mechanisms/histogram/calibration/processes.py
Covers: mechanisms/histogram/calibration/thresholds.py
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms import accounting
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.factorization.prefix_noise import STEPS
from hushstream.mechanisms.histogram.mechanism import Histogram
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.histogram.tumbling import build
from scipy.optimize import brentq
from scipy.stats import norm

from .bench import DELTA, EPSILON


@pytest.mark.parametrize(
    "parameters",
    [
        {}, {"budget": 1}, {"bound": "records", "budget": 5}, {"debias": True},
        {"min_users": 4}, {"aggregate": "keys"}, {"factorization": "tree"},
        {"selection": "rounds"},
    ],
    ids=str,
)  # fmt: skip
def test_the_cost_fits_into_the_budget_and_wastes_little(parameters: dict[str, Any]) -> None:
    setting = Setting(EPSILON, DELTA, 31, columns=(("fare", 0, 9),), grids=(Fraction(1),))
    cost = build(HistogramParameters(**parameters), setting).cost()
    spent, _ = accounting.total([cost], DELTA)
    assert EPSILON * Fraction(999, 1000) < spent <= EPSILON


@pytest.mark.parametrize(
    "parameters,setting",
    [
        ({"bound": "none"}, {}),
        ({"budget": 0.5}, {}),
        ({"budget": -1}, {}),
        ({"bound": "records", "budget": 1.5}, {}),
        ({"bound": "records", "budget": 100_001}, {}),
        ({"budget": 100_001, "adaptive_weight": 0}, {}),
        ({"selection": "rounds", "budget": 100_001}, {}),
        ({"bound": "records", "adaptive_weight": 0.5}, {}),
        ({"bound": "per-key", "budget": 4}, {}),
        ({"bound": "records", "budget": 4, "min_users": 2}, {}),
        ({"adaptive_weight": 1.5}, {}),
        ({"adaptive_weight": 0.1234567}, {}),
        ({"factorization": "dense"}, {}),
        ({"min_users": 0}, {}),
        ({"delay": -1}, {}),
        ({"debias": True}, {"keys": (b"a",)}),
        ({"min_users": 2}, {"keys": (b"a",)}),
        ({"aggregate": "keys"}, {"keys": (b"a",)}),
        ({"aggregate": "sum"}, {}),
        ({"selection": "rounds"}, {"keys": (b"a",)}),
        ({"selection": "rounds", "budget": 1.5}, {}),
        ({"selection": "rounds", "delay": 101}, {}),
        ({"threshold_delta_share": 1.0}, {}),
        ({}, {"count": False}),
        ({}, {"epsilon": Fraction(0)}),
        ({}, {"horizon": 0}),
        ({}, {"columns": (("v", 5, 1),), "grids": (Fraction(1),)}),
    ],
    ids=str,
)
def test_contradictory_settings_are_refused(
    parameters: dict[str, Any], setting: dict[str, Any]
) -> None:
    base = Setting(EPSILON, DELTA, 6)
    with pytest.raises(ParameterError):
        build(HistogramParameters(**parameters), replace(base, **setting))


@pytest.mark.parametrize(("epsilon", "delta"), [("6", "1e-9"), ("1", "1e-6"), ("0.2", "1e-5")])
@pytest.mark.parametrize("budget", [None, 1.0, 50.0])
def test_one_trigger_costs_no_more_noise_than_a_single_gaussian_release(
    epsilon: str, delta: str, budget: float | None
) -> None:
    made = build(HistogramParameters(budget=budget), Setting(Fraction(epsilon), Fraction(delta), 1))
    assert isinstance(made, Histogram)
    half, bound = float(delta) / 2, made.bound.sensitivity2() / made.bound.weights[0]
    mu = brentq(lambda one: _delta(float(epsilon), one) - half, 1e-3, 20)
    (variance,) = made.quantities[0].lanes[0].variance_at(1, np.zeros(1, np.int64))
    assert 0.999 < float(variance) ** 0.5 / (bound**0.5 / mu) < 1.002
    most = range(1, made.bound.most_per_key() + 1)
    bar = max(m + bound**0.5 / mu * norm.isf(half * m * m / bound) for m in most)
    assert bar * 0.999 < made.threshold[0] / STEPS < bar * 1.005


def _delta(epsilon: float, mu: float) -> float:
    """The δ of a Gaussian release with sensitivity mu and deviation 1 (Balle and Wang, 2018)."""
    below = norm.logcdf(-epsilon / mu - mu / 2) + epsilon
    return float(norm.cdf(mu / 2 - epsilon / mu) - np.exp(below))

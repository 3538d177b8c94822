"""Settings of a histogram: calibrated to the whole budget, or refused.

Covers: mechanisms/histogram/tumbling.py, mechanisms/histogram/calibration/bound.py
Covers: mechanisms/histogram/calibration/processes.py
Covers: mechanisms/histogram/calibration/thresholds.py
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms import accounting
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.histogram.tumbling import build

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

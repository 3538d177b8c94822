"""Settings of windows that hop: calibrated, or refused with the reason."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.histogram.entry import build
from hushstream.mechanisms.histogram.hopping.mechanism import Hopping
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.histogram.tumbling import build as tumbling

SETTING = Setting(Fraction(1), Fraction(1, 10**6), 1, windows=4, hops=4)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"selection": "rounds"}, "rounds release a key when enough new units came"),
        ({"aggregate": "keys"}, "keys alone are not released"),
        ({"min_users": 3}, "distinct units of a window do not follow"),
        ({"adaptive_weight": 0.5}, "may vanish"),
        ({"debias": True}, "by epoch, and not by window"),
        ({"factorization": "tree"}, "have one of their own"),
        ({"bound": "per-key", "per_key": 1}, "or distinct units of windows that tumble"),
    ],
)
def test_what_cannot_be_had_is_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ParameterError, match=why):
        build(HistogramParameters(**given), SETTING)
    build(HistogramParameters(**given), replace(SETTING, hops=1))


def test_distinct_values_are_refused() -> None:
    with pytest.raises(ParameterError, match="in the hop that shows it first"):
        build(HistogramParameters(adaptive_weight=0), replace(SETTING, distinct=True))


def test_windows_that_hop_are_released_once() -> None:
    with pytest.raises(ParameterError, match="released once"):
        build(HistogramParameters(), replace(SETTING, horizon=2))


def test_a_planner_says_that_it_has_no_forecast() -> None:
    with pytest.raises(ParameterError, match="hush simulate"):
        tumbling(HistogramParameters(), SETTING)


def test_no_record_costs_less_for_a_key_that_was_shown() -> None:
    made = build(HistogramParameters(), SETTING)
    assert isinstance(made, Hopping)
    assert made.bound.weights == (1,) and not made.traits.feedback


@pytest.mark.parametrize("bound", ["quadratic", "records"])
def test_noise_is_that_of_the_bound(bound: str) -> None:
    made = [build(HistogramParameters(bound=bound, budget=one), SETTING) for one in (4, 16)]
    small, large = (one.noises[0].variance for one in made if isinstance(one, Hopping))
    times = 4 if bound == "quadratic" else 16
    assert float(large / small) == pytest.approx(times, rel=1e-3)

"""Formulas for a histogram's error agree with what the mechanism does."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.histogram.calibration.bound import bound_of
from hushstream.mechanisms.histogram.planning.formulas import forecast, reference
from hushstream.mechanisms.histogram.planning.planner import HistogramPlanner, plainest
from hushstream.mechanisms.histogram.planning.tune import PER_KEY, _free, resolved
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.histogram.tumbling import build
from hushstream.mechanisms.stated_shape import Shape

from ...test_forecast import question

SETTING = Setting(Fraction(2), Fraction(1, 10**6), 4)
SHAPE = Shape(users=4_000, records=12_000, keys=60, zipf=1.0)
GIVEN = HistogramParameters(delay=0)


@pytest.mark.parametrize(
    "changes",
    [
        {"budget": 2, "adaptive_weight": 0},
        {"budget": 12, "adaptive_weight": 0.3},
        {"bound": "records", "budget": 3},
        {"bound": "per-key", "budget": 4, "per_key": 1},
        {"budget": 4, "adaptive_weight": 0, "min_users": 40},
    ],
)
def test_they_agree_with_the_mechanism(changes: dict[str, object]) -> None:
    given = replace(GIVEN, **changes)  # type: ignore[arg-type]
    asked, planner = question(SHAPE, given, SETTING), HistogramPlanner()
    expected = planner.forecast(asked, given, range(0))
    run = planner.forecast(asked, given, range(3))
    assert (expected.by, run.by) == ("formula", "simulation")
    assert expected.score == pytest.approx(run.score, rel=0.06)
    assert expected.cut == pytest.approx(run.cut, abs=0.02)
    assert expected.figures["shown"] == pytest.approx(run.figures["shown"], abs=3)


@pytest.mark.parametrize("weight", [0.0, 0.3])
def test_a_window_that_ends_before_the_longest_is_judged_at_its_own_end(weight: float) -> None:
    given = replace(GIVEN, factorization="final", budget=12, adaptive_weight=weight)
    setting, planner = replace(SETTING, horizon=5), HistogramPlanner()
    whole = question(SHAPE, given, setting)
    assert whole.sample is not None
    ((work,),) = whole.sample.epochs
    short = work._replace(ends=tuple(len(work.unit) * t // 4 for t in (1, 2, 3, 4)))
    asked = whole._replace(sample=whole.sample._replace(epochs=((short,),)))
    expected = planner.forecast(asked, given, range(0))
    run = planner.forecast(asked, given, range(3))
    assert expected.score == pytest.approx(run.score, rel=0.06)
    assert expected.score > 1.2 * planner.forecast(whole, given, range(0)).score


def test_a_public_list_and_values_agree_too() -> None:
    keys = tuple(sorted(b"%d" % i for i in range(60)))
    setting = replace(SETTING, keys=keys, columns=(("v", 0, 100),), grids=(Fraction(1),), horizon=1)
    asked = question(SHAPE, GIVEN, setting)
    assert asked.sample is not None
    ((work,),) = asked.sample.epochs
    value = (np.arange(len(work.unit)) % 90)[:, None].astype(np.int64)
    asked = asked._replace(sample=asked.sample._replace(epochs=((work._replace(value=value),),)))
    planner = HistogramPlanner()
    expected = planner.forecast(asked, GIVEN, range(0))
    run = planner.forecast(asked, GIVEN, range(4))
    assert expected.score == pytest.approx(run.score, rel=0.1) and expected.hidden is None


def test_thresholds_follow_from_one_calibration() -> None:
    known = reference(resolved(replace(GIVEN, adaptive_weight=0.0), SETTING), SETTING)
    for budget in (1.0, 5.0, 30.0):
        other = replace(GIVEN, budget=budget, adaptive_weight=0.0)
        bars = known.thresholds(other, bound_of(other, SETTING), SETTING.delta)
        made = build(other, SETTING)
        exact = np.array(made.threshold) / 256
        assert bars == pytest.approx(exact, rel=0.05)


def test_a_contradiction_is_refused() -> None:
    with pytest.raises(ParameterError):
        forecast(replace(GIVEN, adaptive_weight=7.0), SETTING, [[SHAPE.workload()]])


def test_what_means_the_same_stays_as_it_was_given() -> None:
    start = resolved(GIVEN, SETTING)
    assert plainest(GIVEN, start, SETTING) == GIVEN
    larger = replace(start, budget=30.0)
    assert plainest(GIVEN, larger, SETTING) == replace(GIVEN, budget=30.0)
    light = replace(start, budget=30.0, adaptive_weight=0.0)  # by default it would be 0.3
    assert resolved(plainest(GIVEN, light, SETTING), SETTING) == light


@pytest.mark.parametrize("plays", [range(0), range(2)])
def test_distinct_units_are_compared_with_distinct_units(plays: range) -> None:
    """Units send each key a hundred times, so counting records would give a hundred times more."""
    given = replace(GIVEN, bound="per-key", per_key=1, budget=2.0)
    asked = question(Shape(users=4_000, records=4_000, keys=8, zipf=0.5), given, SETTING)
    assert asked.sample is not None
    ((work,),) = asked.sample.epochs
    often = work._replace(unit=np.repeat(work.unit, 100), key=np.repeat(work.key, 100))
    asked = asked._replace(sample=asked.sample._replace(epochs=((often,),)))
    found = HistogramPlanner().forecast(asked, given, plays)
    once = len(np.unique(work.unit.astype(np.int64) * 8 + work.key)) / 8
    assert found.figures["typical"] == pytest.approx(once, rel=0.5)
    assert found.score < 0.15 and found.cut < 0.2
    assert "of the distinct units" in found.seen and "records" not in found.lost


def test_what_is_counted_is_no_setting_to_choose() -> None:
    for per_key, wanted in ((1, None), (2, PER_KEY)):
        given = replace(GIVEN, bound="per-key", per_key=per_key, budget=4.0)
        assert _free(given, SETTING).get("per_key") == wanted
    assert 1 not in PER_KEY

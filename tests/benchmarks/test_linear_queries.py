"""Selective counting of linear queries: its sensitivity, its errors, what the choice may see."""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
try:
    import linear_queries as linear
finally:
    sys.path.pop(0)


@pytest.mark.parametrize("family", linear.FAMILIES)
def test_families_overlap_as_proved(family: str) -> None:
    weight = linear.FAMILIES[family]()
    proved = {"ranges": 16, "sets": 8, "weighted sets": 24}
    assert weight.min() == 0 and weight.sum(axis=0).max() == proved[family]


@pytest.mark.parametrize("family", linear.FAMILIES)
def test_a_record_enters_active_counters_with_at_most_the_stated_weight(family: str) -> None:
    weight, most = linear.FAMILIES[family](), linear.DELTA[family]
    for counter in linear.counters(linear.EPSILON / most, 12):
        steps = linear.counted(weight, most, counter, 12, linear.keyed("sensitivity"))
        tried = np.unique(np.concatenate([step.active for step in steps]))
        assert len(tried) > len(steps[-1].active)  # the active ones change
        for step in steps:
            assert weight[step.active].sum(axis=0).max() <= most
        assert counter.cost(most).epsilon == linear.EPSILON


def test_one_record_more_changes_the_inputs_of_its_own_trigger_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    weight, most = linear.weighted_sets(), 6
    days = list(linear.stream(10))
    more = [day.copy() for day in days]
    more[4][77] += 1
    sets = [step.active for step in _run(weight, most, days, monkeypatch)]
    # The transcript is held fixed, hence so are the active sets.
    monkeypatch.setattr(linear, "chosen", lambda *_, turn=iter(sets): next(turn))
    after = _run(weight, most, more, monkeypatch)
    monkeypatch.setattr(linear, "chosen", lambda *_, turn=iter(sets): next(turn))
    before = _run(weight, most, days, monkeypatch)
    moved = [int(abs(a.change - b.change).sum()) for a, b in zip(after, before, strict=True)]
    assert 0 < moved[4] <= most and sum(moved) == moved[4]


def _run(
    weight: linear.I64, most: int, days: list[linear.I64], monkeypatch: pytest.MonkeyPatch
) -> list[linear.Step]:
    monkeypatch.setattr(linear, "stream", lambda triggers: iter(days))
    counter = linear.SimpleCounter(Fraction(1, most))
    return linear.counted(weight, most, counter, len(days), linear.keyed("neighbours"))


def test_errors_are_as_stated_and_below_those_of_a_recomputation() -> None:
    found = linear.summary([row for one in linear.FAMILIES for row in linear.rows(one, 24, 1)])
    assert found["worst_ratio"] < 1.15 and found["least_within"] >= 1 - linear.BETA
    assert found["gain"] > 2
    for row in found["rows"]:
        assert row["error"] > 0.85 * row["stated"]
        assert row["error"] < row["all"] and row["active"] < row["queries"] / 2

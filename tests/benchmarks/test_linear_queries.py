"""Selective counting of linear queries: sensitivity, errors, and the input of its choice."""

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
    noise = linear.keyed("sensitivity")
    for counter in linear.counters(linear.EPSILON / most, 12):
        steps = linear.counted(weight, most, counter, linear.stream(12), noise)
        tried = np.unique(np.concatenate([step.active for step in steps]))
        assert len(tried) > len(steps[-1].active)  # the active queries change
        for step in steps:
            assert weight[step.active].sum(axis=0).max() <= most
        assert counter.cost(most).epsilon == linear.EPSILON


def test_one_record_more_changes_the_inputs_of_its_own_trigger_alone() -> None:
    weight, most = linear.weighted_sets(), 6
    counter, noise = linear.SimpleCounter(Fraction(1, most)), linear.keyed("neighbours")
    days = list(linear.stream(10))
    more = [day.copy() for day in days]
    more[4][77] += 1
    before = linear.counted(weight, most, counter, days, noise)
    sets = [step.active for step in before]  # fixed, like the transcript
    after = linear.counted(weight, most, counter, more, noise, sets)
    moved = [int(abs(a.change - b.change).sum()) for a, b in zip(after, before, strict=True)]
    assert 0 < moved[4] <= most and sum(moved) == moved[4]
    again = linear.counted(weight, most, counter, days, noise)
    assert all((a.out == b.out).all() for a, b in zip(again, before, strict=True))


def test_errors_are_as_stated_and_below_those_of_a_recomputation() -> None:
    found = linear.summary([row for one in linear.FAMILIES for row in linear.rows(one, 24, 1)])
    assert found["worst_ratio"] < 1.15 and found["least_within"] >= 1 - linear.BETA
    assert found["gain"] > 2
    for row in found["rows"]:
        assert row["error"] > 0.85 * row["stated"]
        assert row["error"] < row["all"] and row["active"] < row["queries"] / 2

"""The held-out figures of a histogram's bound: disjoint sets, and an honest oracle."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hushstream.mechanisms.histogram.calibration.bound import bound_of
from hushstream.mechanisms.histogram.settings import HistogramParameters

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
try:
    import _heldout_histogram as held
finally:
    sys.path.pop(0)

CASE = held.Case("few records", 6.0, 1e-9, 1)


def test_sets_that_tune_are_not_those_that_judge() -> None:
    names = [name for group in held.HALVES.values() for name in group]
    assert len(names) == len(set(names)) == 7 + 5 + 6
    assert {case.name for case in held.cases("held", True)} == set(held.HELD)
    assert {case.triggers for case in held.cases("held", False)} == set(held.TRIGGERS)


@pytest.mark.parametrize("load", [
    held.HELD["few records"], held.TUNED["trips by zone"], *held.SEALED.values(),
])  # fmt: skip
def test_a_set_has_units_of_several_records_and_other_ones_for_the_plan(
    load: held.Callable[[int], held.Workload],
) -> None:
    work, other = load(held.JUDGED), load(held.SEEN)
    assert work.users == len(np.unique(work.unit)) and work.keys == len(np.unique(work.key))
    assert len(work.unit) > 1.2 * work.users
    assert not np.array_equal(work.truth(), other.truth())


def test_the_oracle_is_judged_by_other_noise_than_it_chose_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[float | None, range]] = []

    def error(one: HistogramParameters, case: held.Case, work: object, plays: range) -> float:
        seen.append((one.budget, plays))
        return abs((one.budget or 0) - 12) + plays.start

    monkeypatch.setattr(held, "error", error)
    least, best = held.oracle(CASE, None, quick=True)  # type: ignore[arg-type]
    assert (least, best.budget) == (0, 12)
    *choosing, judging = seen
    assert judging[0] == 12 and not {n for _, r in choosing for n in r} & set(judging[1])


@pytest.mark.parametrize("quick", [False, True])
def test_the_oracle_tries_the_default(quick: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[HistogramParameters] = []

    def error(one: HistogramParameters, *_: object) -> float:
        seen.append(one)
        return 1.0

    monkeypatch.setattr(held, "error", error)
    held.oracle(CASE, None, quick)  # type: ignore[arg-type]
    usual = bound_of(HistogramParameters(), CASE.setting())
    assert usual.left / usual.weights[0] in {one.budget for one in seen}


def test_a_row_holds_the_default_against_the_best_of_real_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(held, "RUNS", 1)
    monkeypatch.setattr(held, "BUDGETS", (12, 1, 128, 64))
    row = held.row_of(CASE, "held", quick=True, plan=False)
    assert row["best_budget"] == 12 and 0 < row["best"] < 1
    assert row["best"] == pytest.approx(row["default"], rel=0.1)


def test_a_plan_is_judged_beside_the_best_bound_with_its_own_factorisation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proposal = HistogramParameters(budget=64.0, adaptive_weight=0.0, threshold_delta_share=0.25)
    asked: list[HistogramParameters] = []

    def error(one: HistogramParameters, *_: object) -> float:
        asked.append(one)
        return abs((one.budget or 12) - 24) + 1 + one.threshold_delta_share

    monkeypatch.setattr(held, "planned", lambda *_: proposal)
    monkeypatch.setattr(held, "error", error)
    row = held.row_of(CASE, "held", quick=True, plan=True)
    assert (row["planned"], row["planned_best"], row["best"]) == (41.25, 1.25, 1.5)
    assert row["planned_budget"] == 64
    assert {one.budget for one in asked if one.threshold_delta_share == 0.25} > {12, 24, 96}


def test_figures_are_the_median_and_the_worst_over_the_best() -> None:
    rows = [
        {"best": 0.2, "default": one, "planned": 0.5, "planned_best": 0.4}
        for one in (0.2, 0.3, 0.8)
    ]
    assert held.totals(rows) == pytest.approx({
        "histogram_over_oracle": 1.5, "histogram_over_oracle_worst": 4,
        "histogram_over_oracle_planned": 1.25, "histogram_over_oracle_planned_worst": 1.25,
    })  # fmt: skip

"""The planning benchmark: its oracles choose by their own measurements, under their own noise."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hushstream.mechanisms.forecast import Contest
from hushstream.planning import search

ROOT = Path(__file__).parents[2]

sys.path.insert(0, str(ROOT / "benchmarks"))
try:
    import _plan_sets as plan_sets

    import planning
finally:
    sys.path.pop(0)


class Told(NamedTuple):
    score: float
    parameters: Any
    each: tuple[float, ...] = ()


class Fake:
    """A planner with two settings of known errors, which records the noise keys asked for."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, range]] = []

    def candidates(self, question: Any) -> list[str]:
        return ["given", "mine"]

    def forecast(self, question: Any, parameters: Any, plays: range) -> Told:
        self.seen.append((question.name, plays))
        true = {"given": 0.4, "mine": 0.3, "grid": 0.2}
        return Told(true[parameters], parameters, (true[parameters] ** 2,) * len(plays))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    made = Fake()
    question = planning.question("pak", plan_sets.pareto(), 1.0)
    monkeypatch.setattr(planning, "planner_of", {"pak": made}.__getitem__)
    monkeypatch.setattr(
        planning, "question",
        lambda kind, data, epsilon: question._replace(
            name=data.name, parameters="given", sample=data.sample
        ),
    )  # fmt: skip
    monkeypatch.setattr(planning, "work_of", lambda *_: 1)
    monkeypatch.setattr(planning, "choose", lambda *_: Contest([Told(0.1, "given")], []))
    monkeypatch.setattr(planning, "likely", lambda *_: (0.35, 0.4))
    grid = planning.Kind([], lambda start, quick: iter(["grid"]))
    monkeypatch.setattr(planning, "KINDS", {"pak": grid})
    return made


def test_oracles_tell_a_wrong_forecast_from_a_setting_that_is_not_thought_of(fake: Fake) -> None:
    data = plan_sets.pareto()
    row = planning.judged("pak", data, data, 1.0, True, oracle=True)
    errors = (row.chosen, row.own, row.floor, row.best)
    assert errors == pytest.approx((0.4, 0.3, 0.2, 0.2))
    assert row.ratio == pytest.approx(2) and row.over(row.own) == pytest.approx(1.5)
    assert planning.worst_over_best([row, row._replace(chosen=0.3)]) == {"pak": row.ratio}


def test_oracles_see_what_the_plan_sees_and_never_the_judges_noise(fake: Fake) -> None:
    data = plan_sets.pareto()
    seen = data._replace(name="seen")
    planning.judged("pak", seen, data, 1.0, True, oracle=True)
    plays = {name: {play for one, r in fake.seen if one == name for play in r} for name in
             ("seen", data.name)}  # fmt: skip
    assert len(plays["seen"]) == len(plays[data.name]) == planning.PLAYS
    assert not plays["seen"] & plays[data.name]
    assert min(plays["seen"] | plays[data.name]) > 10  # noise keys of the search


def test_without_oracles_nothing_else_is_run(fake: Fake) -> None:
    data = plan_sets.pareto()
    row = planning.judged("pak", data, data, 1.0, True)
    assert row.floor is None and row.own is None and row.best == 0.2
    assert (
        sum(len(plays) for _, plays in fake.seen) == 3 * planning.PLAYS
    )  # the choice, the given setting, and the grid
    assert row.paired == pytest.approx(2) and row.deviation == 0


def test_a_range_holds_the_errors_of_the_choice_on_what_it_is_judged_by(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = plan_sets.pareto()
    assert planning.judged("pak", data, data, 1.0, True).held == 1
    monkeypatch.setattr(planning, "likely", lambda *_: (0.1, 0.39))
    assert planning.judged("pak", data, data, 1.0, True).held == 0


def test_a_run_goes_on_with_the_rows_of_one_with_the_same_options(
    fake: Fake, tmp_path: Path
) -> None:
    data, path = plan_sets.pareto(), tmp_path / "rows"
    row = planning.judged("pak", data, data, 1.0, True)
    assert planning.read_rows(path, [True]) == {}
    planning.add_row(path, [True], row)
    planning.add_row(path, [False], row._replace(chosen=1.0))
    assert planning.read_rows(path, [True]) == {("pak", data.name, 1.0): row}


@pytest.mark.parametrize("load", [plan_sets.pareto, plan_sets.villages, plan_sets.GROUPED[4]])
def test_halves_are_windows_of_all_records(load: Any) -> None:
    data = load()
    first, later = plan_sets.halves(data)
    ((whole,),) = data.sample.epochs
    works = [one.sample.epochs[0][0] for one in (first, later)]
    assert sum(len(work.unit) for work in works) == len(whole.unit)
    for name in whole.columns or {}:
        if name == "time":
            assert all(work.columns[name][[0, -1]].tolist() == [0, 7] for work in works)
            continue
        parts = np.concatenate([work.columns[name] for work in works])
        assert np.array_equal(parts, whole.columns[name])
    for one, work in zip((first, later), works, strict=True):
        assert one.sample.units == work.users == len(np.unique(work.unit))


@pytest.mark.thorough
def test_a_real_planner_is_held_against_real_oracles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "PLAYS", 4)
    monkeypatch.setattr(search, "WORK", 60_000)
    grid = planning.Kind([], lambda start, quick: iter([replace(start, k=64)]))
    monkeypatch.setattr(planning, "KINDS", {"privhp": grid})
    seen, later = plan_sets.halves(plan_sets.villages())
    row = planning.judged("privhp", seen, later, 1.0, True, oracle=True)
    assert row.floor is not None and row.own is not None
    assert 0 < row.best <= min(row.floor, row.own, row.chosen)
    assert 0 < row.paired < 10 and 0 <= row.deviation < 10

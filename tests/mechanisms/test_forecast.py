"""The choice among candidates: finds the best one and never loses the given one.

Covers: mechanisms/histogram/planning/planner.py, mechanisms/noise/trial.py
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hushstream.mechanisms.catalogue import BUILT_IN, planner_of
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.forecast import (
    HOLDS,
    STEPS,
    choose,
    cost_of,
    likely,
    prediction,
    runs,
    window_cost,
)
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.histogram.tumbling import build
from hushstream.mechanisms.planner import (
    HOPELESS,
    LIGHT,
    USUAL,
    Effort,
    Forecast,
    Planner,
    Question,
)
from hushstream.mechanisms.stated_shape import Shape
from hushstream.mechanisms.workload import Sample

SETTING = Setting(Fraction(2), Fraction(1, 10**5), 2)
HISTOGRAM = planner_of("histogram")
WHOLE = USUAL._replace(step=0)
MORE, ROUNDS = USUAL.most, USUAL.finalists


def question(shape: Shape, given: HistogramParameters, setting: Setting = SETTING) -> Question:
    work = shape.workload()
    sample = Sample(((work,),), shape.users, shape.keys, shape.records)
    return Question(
        "p", given, setting, build(given, setting), sample, "a shape", "last", None, None
    )


@dataclass
class Guesses:
    """Candidates 0…n-1; the last is best, but with few noise keys luck favours the first."""

    count: int
    score: str = "a number"
    luck: int = MORE
    effort: Effort = WHOLE
    spent: int = 0
    asked: list[tuple[int, int]] = field(default_factory=list)

    def candidates(self, question: Question) -> list[Any]:
        return list(range(self.count))

    def near(self, question: Question, tuned: Any) -> list[Any]:
        return [tuned]

    def forecast(self, question: Question, parameters: Any, plays: range) -> Forecast:
        self.asked.append((parameters, plays.stop))
        self.spent += len(plays)
        lucky = parameters == 0 and plays.stop < self.luck
        score = 0.0 if lucky else 1 - parameters / self.count
        return Forecast(parameters, score, "simulation", "", "", "", None, None, {})


@dataclass
class Twins(Guesses):
    """Each mechanism under two names; only more noise keys show the best one.

    The second name has nearly the first one's figures, as for a setting with almost no effect.
    """

    def forecast(self, question: Question, parameters: Any, plays: range) -> Forecast:
        found = super().forecast(question, parameters // 2, plays)
        lucky = parameters // 2 == ROUNDS[-1] - 1 and plays.stop >= MORE
        figures = {"mechanism": (parameters // 2) * (1 + 0.001 * (parameters % 2))}
        score = 0.0 if lucky else (parameters // 2 + 1) / self.count
        return found._replace(parameters=parameters, score=score, figures=figures)


def test_settings_that_make_one_mechanism_are_one_finalist_and_keep_their_figures() -> None:
    count = 3 * ROUNDS[0]
    guesses = Twins(count)
    found = choose(guesses, question(Shape(50, 50, 5), HistogramParameters()), 10**9).found
    assert sorted(one.parameters for one in found) == list(range(count))
    best = {2 * ROUNDS[-1] - 2, 2 * ROUNDS[-1] - 1}
    assert {one.parameters for one in found[:2]} == best and found[0].score == found[1].score == 0
    assert [plays for _, plays in guesses.asked].count(MORE) == ROUNDS[0]


def test_ever_fewer_candidates_are_run_with_ever_more_noise_keys_for_the_same_work() -> None:
    guesses, asked = Guesses(20, luck=1), question(Shape(50, 100, 5), HistogramParameters())
    work = 6 * 48 * cost_of(guesses, asked)
    ticks: list[int] = []
    found = choose(guesses, asked, work, lambda: ticks.append(1)).found
    assert [one.parameters for one in found[:2]] == [19, 18]
    later = [(plays, who) for who, plays in guesses.asked[20:]]
    # Of 288 runs the first round takes 60; later rounds a third, a half and all of the rest.
    keys = [3 + 9, 12 + 19, MORE]
    assert [plays for plays, _ in later] == [
        k for k, n in zip(keys, ROUNDS, strict=True) for _ in range(n)
    ]
    assert {who for plays, who in later if plays == keys[-1]} == {18, 19}
    assert guesses.spent == 20 * 3 + 8 * 9 + 4 * 19 + 2 * (MORE - 31) <= 288
    assert len(ticks) <= runs(guesses, asked, work)


def test_the_work_of_windows_and_triggers_counts_besides_records() -> None:
    guesses, asked = Guesses(1), question(Shape(50, 100, 5), HistogramParameters())
    assert asked.sample is not None
    twice = asked._replace(sample=asked.sample._replace(epochs=asked.sample.epochs * 2))
    run, step = USUAL.run, USUAL.step
    assert cost_of(guesses, asked) == 100 + run and cost_of(guesses, twice) == 100 + 2 * run
    often = twice._replace(setting=replace(SETTING, horizon=STEPS + 100))
    assert cost_of(guesses, often) == cost_of(guesses, twice)  # only the last trigger is run
    guesses.effort = USUAL
    assert cost_of(guesses, often) == 100 + 2 * (run + 100 * step)
    assert window_cost(guesses, often) == run + 100 * step


def test_every_family_has_a_planner_for_proposals_and_forecasts() -> None:
    planned = [one for one in BUILT_IN if one.name != "activity"]  # activity has nothing to choose
    assert all(isinstance(one.planner, Planner) for one in planned)


def test_luck_does_not_decide() -> None:
    guesses, asked = Guesses(6), question(Shape(50, 100, 5), HistogramParameters())
    ticks: list[int] = []
    found = choose(guesses, asked, 10**9, lambda: ticks.append(1)).found
    assert [one.parameters for one in found[:2]] == [5, 4]
    assert (0, MORE) in guesses.asked and len(ticks) <= runs(guesses, asked, 10**9)


def test_what_runs_in_less_time_is_run_more_often() -> None:
    asked, spent = question(Shape(50, 6_000, 5), HistogramParameters()), []
    for effort in (USUAL, LIGHT):
        guesses = Guesses(20, luck=1, effort=effort)
        choose(guesses, asked, 300 * cost_of(Guesses(1), asked))
        assert guesses.spent <= 300 * cost_of(Guesses(1), asked) / cost_of(guesses, asked)
        spent.append(guesses.spent)
    assert spent[1] > 3 * spent[0]


def test_a_large_sample_is_tried_with_the_first_candidates_alone() -> None:
    guesses, asked = Guesses(50), question(Shape(50, 1000, 5), HistogramParameters())
    found, left_out = choose(guesses, asked, 20 * cost_of(guesses, asked))
    assert max(one.parameters for one in found) == 9 and left_out == 40  # half of the work
    assert choose(guesses, asked, 10**9).left_out == 0


@dataclass
class Spread(Guesses):
    """Known errors under each noise key, which move together for all candidates."""

    gap: float = 0.1

    def forecast(self, question: Question, parameters: Any, plays: range) -> Forecast:
        found = super().forecast(question, parameters, plays)
        each = [1 + play % 3 - self.gap * parameters + 0.01 * (play % 2) for play in plays]
        return found._replace(score=float(np.mean(each)), each=tuple(each))


def test_finalists_from_which_nothing_is_to_be_gained_are_run_no_further() -> None:
    asked = question(Shape(50, 100, 5), HistogramParameters())
    clear, close = Spread(6), Spread(6, gap=0.0)
    assert choose(clear, asked, 10**9).found[0].parameters == 5
    assert (
        max(stop for who, stop in clear.asked if who < 5)
        < MORE / 2
        < max(stop for _, stop in clear.asked)
    )
    assert len(choose(close, asked, 10**9).found) == 6
    assert clear.spent < 0.5 * (6 * MORE)


def test_where_work_is_short_a_part_of_the_windows_tells_which_candidates_are_run() -> None:
    guesses, asked = Guesses(50, luck=0), question(Shape(50, 1000, 5), HistogramParameters())
    assert asked.sample is not None
    often = asked._replace(sample=asked.sample._replace(epochs=asked.sample.epochs * 8))
    work = 40 * cost_of(guesses, often)
    ticks: list[int] = []
    found, left_out = choose(guesses, often, work, lambda: ticks.append(1))
    assert {one.parameters for one in found} >= {0, 49} and left_out > 20
    assert 49 + len(found) <= len(ticks) <= runs(guesses, often, work)  # all but one are screened
    assert found[0].parameters == 49


def test_a_histogram_that_shows_all_is_forecast_so_and_a_tiny_one_is_hopeless() -> None:
    one_record = HistogramParameters(budget=1, delay=0)
    asked = question(Shape(20_000, 20_000, 10), one_record)
    found = HISTOGRAM.forecast(asked, one_record, range(2))
    assert found.cut == 0 and found.hidden == 0 and found.score < 0.01 and not found.hopeless
    assert "10 of 10 keys" in found.seen and "cuts nothing off" in found.lost
    few = HISTOGRAM.forecast(question(Shape(20, 20, 10), one_record), one_record, range(2))
    assert few.hidden == 1 and few.score == 1 > HOPELESS and few.hopeless
    assert "nothing is shown" in few.off and "8 keys stay hidden" in few.lost


def test_what_the_bound_cuts_off_is_forecast() -> None:
    given = HistogramParameters(budget=1, delay=0)
    asked = question(Shape(500, 5_000, 4), given)
    cut = HISTOGRAM.forecast(asked, given, range(1)).cut
    assert cut is not None and abs(cut - 0.9) < 0.01  # one of ten records per user is counted


def test_the_choice_is_better_than_a_bad_setting_and_lists_it() -> None:
    given = HistogramParameters(budget=1, delay=0)
    asked = question(Shape(2_000, 10_000, 20), given)
    found = choose(HISTOGRAM, asked, 10**5).found
    scores = {one.parameters.budget: one.score for one in found}
    assert found[0].parameters.budget > 1 and found[0].score < 0.5 * scores[1]


@pytest.mark.parametrize("runs", [9, 13, 24])
def test_a_range_holds_one_more_error_of_any_law_with_its_chance(runs: int) -> None:
    draw = np.random.default_rng(runs)
    errors = draw.lognormal(0, 1.5, (4000, runs + 1))
    ranges = np.array([prediction(some[:-1].tolist()) for some in errors])
    held = (ranges[:, 0] <= errors[:, -1]) & (errors[:, -1] <= ranges[:, 1])
    assert abs(held.mean() - HOLDS) < 0.025


@dataclass
class Scattered(Guesses):
    """Errors that depend on the noise key and on the number of records in the epochs."""

    keys: list[int] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)

    def forecast(self, question: Question, parameters: Any, plays: range) -> Forecast:
        assert question.sample is not None
        ((work,),) = question.sample.epochs
        self.keys += plays
        self.epochs.append(len(work.unit))
        return super().forecast(question, parameters, plays)._replace(score=len(work.unit))


def test_a_range_is_of_single_epochs_under_noise_that_chose_nothing() -> None:
    planner, asked = Scattered(1), question(Shape(50, 100, 5), HistogramParameters())
    assert asked.sample is not None
    ((work,),) = asked.sample.epochs
    parts = tuple((work._replace(unit=work.unit[:n], key=work.key[:n]),) for n in (10, 20, 90))
    asked = asked._replace(sample=asked.sample._replace(epochs=parts))
    assert likely(planner, asked, 0, 1) == (10, 90)
    assert len(planner.keys) == len(set(planner.keys)) == 9 and min(planner.keys) > MORE
    assert planner.epochs == [10, 20, 90] * 3
    likely(planner, asked, 0, 10**9)
    assert len(planner.keys) == 9 + 24

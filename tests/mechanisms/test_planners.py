"""Forecasts of streams and maps: exact without noise, worse with less ε, and honest about loss.

Covers: mechanisms/slots/forecast.py, mechanisms/spatial/forecast.py
Covers: mechanisms/slots/planner.py, mechanisms/topl/planner.py
Covers: mechanisms/slots/aim.py, mechanisms/pak/aims.py
Covers: mechanisms/phdstream/planner.py, mechanisms/privhp/planner.py
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import groupby
from typing import Any

import numpy as np
import pytest
from hushstream.errors import ContractError
from hushstream.mechanisms.catalogue import build, find, planner_of
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.forecast import choose
from hushstream.mechanisms.in_memory import last_release, releases, replays
from hushstream.mechanisms.noise.trial import noise_of
from hushstream.mechanisms.pak.aims import aimed
from hushstream.mechanisms.planner import Question
from hushstream.mechanisms.slots.aim import aim
from hushstream.mechanisms.spatial.forecast import seen
from hushstream.mechanisms.workload import Sample, Workload

N, TOP, TRIGGERS = 4_000, 500, 8
DOMAIN = {
    "axes": [{"name": "x", "low": 0, "high": 1}, {"name": "y", "low": 0, "high": 1}],
}
SPACES: dict[str, dict[str, Any]] = {
    "phdstream": {"domain": DOMAIN | {"depth": 6, "split": "all"}},
    "privhp": {"domain": DOMAIN | {"depth": 12, "split": "binary"}},
}
QUICK = {"pak": {"counter": "tree"}}  # others must be calibrated
VALUES = ("pak", "tops", "topl")


def workload() -> Workload:
    """Values of an exponential distribution, and points that are mostly in one corner."""
    share = (np.arange(N) * 0.618033988749895) % 1
    value = np.minimum(np.floor(-20 * np.log(1 - share * 0.999)), TOP)
    time = np.arange(N) * TRIGGERS // N
    columns = {"time": time, "value": value, "x": share**3, "y": (share * 7) % 1}
    unit = np.arange(N, dtype=np.int32)
    whole = value.astype(np.int64)[:, None]
    return Workload(unit, np.zeros(N, np.int32), N, 1, whole, columns=columns)


def asked(kind: str, epsilon: float = 1.0, **given: Any) -> Question:
    values = kind in VALUES
    columns = (("value", 0, TOP),) if values else ()
    setting = Setting(
        Fraction(str(epsilon)), Fraction(1, 10**6), TRIGGERS, columns=columns,
        grids=(Fraction(1),) * len(columns),
    )  # fmt: skip
    parameters = find(kind).parameters(**{**SPACES.get(kind, {}), **given})
    sample = Sample(((workload(),),), N, 1, N)
    mechanism = build(kind, parameters, setting)
    return Question("p", parameters, setting, mechanism, sample, "here", "last", None, None)


@pytest.mark.spread(6)
@pytest.mark.parametrize("kind", sorted({*VALUES, *SPACES}))
def test_more_epsilon_is_more_exact_and_the_choice_no_worse_than_what_was_given(kind: str) -> None:
    planner = planner_of(kind)
    scores = []
    for epsilon in (0.3, 12.0):
        question = asked(kind, epsilon, **QUICK.get(kind, {}))
        found = choose(planner, question, 1).found
        # With a work limit of 1 every candidate is run once, with the first noise key.
        given = planner.forecast(question, question.parameters, range(1)).score
        assert found[0].score <= given * 1.001
        scores.append(found[0].score)
        near = planner.near(question, found[0].parameters)
        assert near and all(planner.forecast(question, one, range(0)).score >= 0 for one in near)
    assert scores[1] < 0.5 * scores[0]


@pytest.mark.parametrize("kind", sorted({*VALUES, *SPACES}))
def test_figures_come_in_words(kind: str) -> None:
    question = asked(kind, 2.0)
    found = planner_of(kind).forecast(question, question.parameters, range(1))
    assert found.by == "simulation" and found.cut == 0 and found.hidden is None
    assert "is off by" in found.off and found.seen and found.lost
    assert found.figures["score"] == found.score


@pytest.mark.parametrize("kind", ["pak", "tops", "phdstream", "privhp"])
def test_what_a_bound_cuts_off_is_said(kind: str) -> None:
    question = asked(kind)
    assert question.sample is not None
    ((work,),) = question.sample.epochs
    two = work._replace(unit=(work.unit // 2).astype(np.int32), users=N // 2)
    question = question._replace(sample=question.sample._replace(epochs=((two,),)))
    found = planner_of(kind).forecast(question, question.parameters, range(1))
    assert found.cut == 0.5 and "cuts off 50.0%" in found.lost


def test_running_totals_are_those_of_the_sample() -> None:
    question = asked("pak", 15.0, threshold="top", counter="tree")
    found = planner_of("pak").forecast(question, question.parameters, range(1))
    ((work,),) = question.sample.epochs if question.sample else ()
    assert work.value is not None
    assert found.figures["total"] == float(work.value.sum()) and found.score < 0.05


def test_the_last_release_alone_is_the_last_of_all() -> None:
    question = asked("privhp", 1.0)
    work, noise = workload(), noise_of("p", 0, 0)
    *_, last = releases(question.mechanism, work, noise)
    alone = last_release(question.mechanism, work, noise)
    assert alone.key.tolist() == last.key.tolist() and (alone.value == last.value).all()


@pytest.mark.parametrize("kind", ["pak", "tops", "phdstream", "privhp", "histogram"])
def test_records_that_are_bounded_once_are_released_as_ever(kind: str) -> None:
    question = asked(kind, 1.0)
    work, noises = workload(), [noise_of("p", play, 0) for play in range(3)]
    for noise, found in zip(noises, replays(question.mechanism, work, noises), strict=True):
        for one, other in zip(releases(question.mechanism, work, noise), found, strict=True):
            assert one.key.tolist() == other.key.tolist() and (one.value == other.value).all()
            assert (one.variance == other.variance).all()


def test_a_workload_without_columns_is_refused() -> None:
    question = asked("privhp")
    bare = workload()._replace(columns=None)
    with pytest.raises(ContractError):
        last_release(question.mechanism, bare, noise_of("p", 0, 0))
    with pytest.raises(ContractError):
        next(releases(question.mechanism, bare, noise_of("p", 0, 0)))


def test_a_threshold_that_cuts_values_is_told(kind: str = "tops") -> None:
    question = asked(kind, 1.0)
    small = replace(question.parameters, warmup=2)
    found = planner_of(kind).forecast(question, small, range(1))
    assert 0 < found.figures["clipped"] < 1 and "count as that much" in found.lost
    assert "the first 2 of 8 triggers" in found.lost


def test_the_threshold_that_a_sample_asks_for_weighs_noise_against_what_is_cut() -> None:
    question = asked("tops")
    slots = build("tops", question.parameters, question.setting).slots  # type: ignore[attr-defined]
    values = workload().columns["value"]  # type: ignore[index]
    thetas = np.array(slots.thresholds, float)
    each = np.array([np.maximum(values - theta, 0).sum() for theta in thetas]) / TRIGGERS
    found = []
    for variance in (1e-9, 100.0, 1e9):
        best = aim(question, slots, lambda end, v=variance: v)  # type: ignore[misc]
        length = np.arange(1, TRIGGERS)  # after a warm-up of one trigger
        errors = [
            variance * theta**2 + np.mean((length * lost) ** 2)
            for theta, lost in zip(thetas, each, strict=True)
        ]
        assert best.threshold == thetas[int(np.argmin(errors))]
        assert (np.diff(best.values) >= 0).all() and len(best.values) == N
        found.append(best.threshold)
    assert found[0] >= values.max() > found[1] > found[2] == slots.thresholds[0]


def test_an_error_of_sums_of_nothing_has_no_share_of_many_digits() -> None:
    question = asked("pak", counter="tree")
    assert question.sample is not None
    (work,) = question.sample.epochs[0]
    assert work.columns is not None
    early = work._replace(columns={**work.columns, "time": np.zeros(N, np.int64)})
    question = question._replace(sample=question.sample._replace(epochs=((early,),)))
    found = planner_of("pak").forecast(question, question.parameters, range(1))
    assert found.hopeless and "%" not in found.off.split(";")[0]
    assert "where there is nothing to add up: all records come early in their window" in found.off


def test_ranks_of_pak_are_raised_to_the_threshold_that_the_sample_asks_for() -> None:
    question = asked("pak", counter="tree")
    known = replace(question.parameters, expected=N // TRIGGERS, excess=20.0)
    made = list(aimed(question, known))
    built = [build("pak", one, question.setting) for one in made]
    assert [one.chooser.rank for one in built] == [4, 8, 16, 32]  # type: ignore[attr-defined]
    best = aim(
        question,
        built[0].slots,
        lambda end: built[0].counter.variance(1, 0, end),  # type: ignore[attr-defined]
    )
    values = np.sort(workload().columns["value"])[::-1]  # type: ignore[index]
    for rank, one in zip((4, 8, 16, 32), made, strict=True):
        quantile = values[rank * TRIGGERS - 1]
        assert one.factor * quantile == pytest.approx(best.threshold, rel=0.05)
    offered = {(one.tail, one.factor) for one in planner_of("pak").candidates(question)}
    assert {(one.tail, one.factor) for one in made} <= offered
    assert not list(aimed(question, replace(known, threshold="top")))


def test_no_rank_is_aimed_at_that_the_warm_up_is_too_short_for() -> None:
    question = asked("pak", 0.05, counter="tree")
    known = replace(question.parameters, expected=N // TRIGGERS, excess=20.0)
    built = [build("pak", one, question.setting) for one in aimed(question, known)]
    assert [one.chooser.rank for one in built] == [80]  # type: ignore[attr-defined]


def test_thresholds_of_tops_are_tried_in_steps_around_the_excess_of_the_sample() -> None:
    made = planner_of("tops").candidates(asked("tops"))
    first = [one.excess for one in made if one.warmup == 1 and one.excess]
    ratios = sorted(one / first[0] for one in first)
    assert ratios == pytest.approx([1 / 16, 1 / 4, 1 / 2, 1, 2, 4, 16], rel=0.01)


@pytest.mark.parametrize("kind", ["pak", "tops"])
def test_where_work_is_short_all_kinds_of_settings_come_with_the_first_warm_ups(kind: str) -> None:
    warmups = [one.warmup for one in planner_of(kind).candidates(asked(kind, 2.0))]
    assert len(set(warmups)) > 1
    assert [one for one, _ in groupby(warmups)] == list(dict.fromkeys(warmups))


@pytest.mark.parametrize("kind", sorted(SPACES))
def test_a_map_of_one_cell_says_that_it_shows_no_places(kind: str) -> None:
    question = asked(kind, 0.001)
    few = planner_of(kind).forecast(question, question.parameters, range(1))
    words = "the number of all records, and not where they are"
    assert (words in few.seen) == (round(few.figures["cells"]) <= 1)
    assert words in seen(1.2) and "about 2 cells" in seen(1.6)

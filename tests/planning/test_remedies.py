"""Remedies: what was tried, its effect, and how many more units a window would need."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hushstream.mechanisms.workload import Sample, Workload
from hushstream.planning import remedies
from hushstream.planning.remedies import needed, times_over, trials, untried
from hushstream.planning.variants import Variant, dearer, given
from hushstream.planning.ways import conclusions
from hushstream.topics.config.pipelines.pipeline import PipelineSettings

from .visits import INPUT, answered, config, read, write


def window(units: int, first: int = 0) -> Workload:
    """Two records of each unit, on two keys, up to two triggers."""
    unit = np.repeat(np.arange(units, dtype=np.int32), 2)
    n = len(unit)
    return Workload(
        unit, np.arange(n, dtype=np.int32) % 2, units, 2, np.arange(n, dtype=np.int64)[:, None],
        np.ones(n, np.int8), (n // 2, n), first, {"time": np.arange(n) // 2},
    )  # fmt: skip


def sampled(*units: int) -> Sample:
    works = [window(n, i) for i, n in enumerate(units)]
    return Sample(tuple((w,) for w in works), sum(units), 2, 2 * sum(units))


def changed(**changes: str) -> Variant:
    made: Any = None
    return Variant(made, made, changes, " and ".join(changes.values()))


def test_copies_are_units_of_their_own_with_the_same_records() -> None:
    before = window(4)
    (made,) = times_over(sampled(4), 3).epochs[0]
    assert made.users == 12 and sorted(np.bincount(made.unit)) == [2] * 12
    assert made.ends == (12, 24) and made.truth().tolist() == [12, 12]
    assert made.value is not None and made.value[:, 0].tolist() == sorted([*range(8)] * 3)
    assert made.columns is not None and made.columns["time"].tolist() == sorted([*range(4)] * 6)
    for unit in range(12):  # each copy has exactly the records of its original
        mine = before.unit == unit // 3
        assert made.key[made.unit == unit].tolist() == before.key[mine].tolist()


def test_as_many_epochs_are_copied_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remedies, "MOST", 100)
    assert times_over(sampled(5, 5, 5, 5), 2).windows == 4
    fewer = times_over(sampled(5, 5, 5, 5), 5)
    assert fewer.windows == 2 and fewer.records == 100
    with pytest.raises(ValueError, match="times: 11 is too many for 10 records"):
        times_over(sampled(5, 5, 5, 5), 11)


def test_the_number_of_times_is_found_for_an_error_like_one_over_units() -> None:
    sample = sampled(10)
    found = needed(sample, 3.0, 0.2, lambda one: 30.0 / one.units)
    assert found.useful == 8 and found.good == 16 and found.most == 16
    assert found.score == pytest.approx(30 / 160)


def test_an_error_that_units_do_not_mend_is_told_with_the_most_that_was_tried() -> None:
    found = needed(sampled(10), 0.9, 0.2, lambda one: 0.8)
    assert found.useful is None and found.good is None and found.score == 0.8
    assert found.most * 20 <= remedies.MOST < found.most * 40
    half = needed(sampled(10), 0.9, 0.2, lambda one: 0.4)
    assert half.useful == 2 and half.good is None and half.most > 1_000
    nothing = needed(sampled(10), 0.9, 0.2, lambda one: None)
    assert (nothing.useful, nothing.most, nothing.score) == (None, 1, 0.9)


def test_trials_are_told_by_the_kind_of_change() -> None:
    found = [
        (changed(**{"triggers.every": "once"}), 0.9),
        (changed(**{"triggers.every": "7d", "window.length": "week"}), 0.6),
        (changed(**{"triggers.every": "28d", "window.length": "month"}), 0.8),
        (changed(key="bands"), 0.3),
        (changed(**{"budget.epsilon": "2"}), 1.0),
        (changed(**{"budget.epsilon": "4"}), 0.999),
    ]
    made = {one.group: one for one in trials(found, {"bands": 0.35})}
    assert list(made) == ["fewer releases", "a longer window", "coarser keys", "a larger ε"]
    longer = made["a longer window"]
    assert longer.best == "7d and week" and longer.last == "28d and month" and longer.score == 0.6
    assert made["coarser keys"].score == 0.35  # the score of the full search
    assert made["a larger ε"].best == made["a larger ε"].last == "4"


def test_what_could_not_be_tried_is_told_with_the_reason(tmp_path: Any) -> None:
    made, records = read(write(tmp_path / "visits.csv", rows=600))
    base = given(made.pipeline[0], records, None)
    text = " ".join(untried(base, records, (), {}))
    assert "longer than 1h was not tried, as the file spans" in text
    assert "values of page" in text and "No larger ε was tried: 20 is the most" in text
    tried = tuple(trials([(changed(**{"budget.epsilon": "2"}), 1.0), (changed(key="b"), 1.0)], {}))
    left = [one.split()[:3] for one in untried(base, records, tried, {})]
    assert left == [["A", "window", "longer"]]
    refused = untried(base, records, tried, {"a longer window": "of 7d", "a larger ε": "of 8"})
    assert list(refused) == ["A longer window could not be tried: of 7d."]  # a larger ε was tried


@pytest.mark.parametrize(
    ("now", "tried"),
    [("1", ["2", "4", "8"]), ("8", ["16"]), ("0.5", ["1", "2", "4", "8"]), ("15", [])],
)
def test_a_larger_epsilon_is_tried_up_to_a_usual_one(now: str, tried: list[str]) -> None:
    settings: PipelineSettings = config(INPUT).pipeline[0]
    budget = replace(settings.budget, epsilon=Fraction(now))
    base = changed()._replace(settings=replace(settings, budget=budget))
    assert [one.changes["budget.epsilon"] for one in dearer(base)] == tried


@pytest.mark.thorough
def test_a_hopeless_plan_says_what_would_help(tmp_path: Any) -> None:
    answer = answered(tmp_path)
    assert answer.ways[0].best.hopeless and answer.needed is not None
    text = " ".join(conclusions(answer))
    groups = {one.group for one in answer.tried}
    assert {"a longer window", "coarser keys", "a larger ε"} <= groups
    assert "Tried a larger ε" in text and "Tried a longer window" in text
    times = answer.needed.useful
    assert times is not None and times > 1 and f"about {times:,} times as many" in text
    error = f"its error is {answer.ways[0].best.score:.0%}, and enough is less than 50%"
    assert text.count("enough is") == 1 and error in text
    assert "was not tried" not in text and "were not tried" not in text

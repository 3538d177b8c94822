"""Forecasts of quantiles: formulas agree with runs, and bounds follow the sample.

Covers: mechanisms/quantile/formulas.py
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.forecast import choose
from hushstream.mechanisms.histogram.planning.formulas import accepted_by, pairs_of
from hushstream.mechanisms.in_memory import releases
from hushstream.mechanisms.noise.trial import noise_of
from hushstream.mechanisms.planner import Question
from hushstream.mechanisms.quantile.formulas import deviations
from hushstream.mechanisms.quantile.planner import QuantilePlanner
from hushstream.mechanisms.quantile.settings import QuantileParameters, build
from hushstream.mechanisms.workload import Sample, Workload

T, KEYS = 4, 12
SETTING = Setting(Fraction(1), Fraction(1, 10**6), T)
PLANNER = QuantilePlanner()
LISTED = tuple(b"%02d" % i for i in range(KEYS))


def workload(records: int = 20_000, each: int = 1, valued: bool = True) -> Workload:
    """Keys of falling size, values too rough for shrinkage to help, ``each`` records per unit."""
    draw = np.random.default_rng(5)
    weight = 0.6 ** np.arange(KEYS)
    key = draw.choice(KEYS, records, p=weight / weight.sum()).astype(np.int32)
    unit = (np.arange(records) // each).astype(np.int32)
    heap = draw.exponential(size=254) ** 2
    place = draw.choice(254, records, p=heap / heap.sum())
    columns = {"value": (place + draw.random(records)) * 100 / 254} if valued else None
    return Workload(unit, key, int(unit[-1]) + 1, KEYS, columns=columns)


def asked(work: Workload, setting: Setting = SETTING, **given: Any) -> Question:
    parameters = QuantileParameters(0, 100, **{"at": (0.25, 0.5), "budget": 1, **given})
    sample = Sample(((work,),), work.users, KEYS, len(work.unit))
    made = build(parameters, setting)
    return Question("p", parameters, setting, made, sample, "here", "last", None, None)


@pytest.mark.parametrize("listed", [False, True])
def test_formulas_agree_with_runs(listed: bool) -> None:
    """Formulas agree with the mean over eight noise keys; for small keys they expect more error."""
    question = asked(workload(), replace(SETTING, keys=LISTED if listed else None))
    by_formula = PLANNER.forecast(question, question.parameters, range(0))
    by_run = PLANNER.forecast(question, question.parameters, range(8))
    assert (by_formula.by, by_run.by) == ("formula", "simulation")
    assert by_formula.figures["shown"] == pytest.approx(by_run.figures["shown"], rel=0.2)
    for name in ("off", "score"):
        assert 0.9 < by_formula.figures[name] / by_run.figures[name] < 1.5
    assert by_run.figures["keys"] == KEYS and by_run.cut == 0
    assert (by_run.hidden is None) == listed
    assert listed == ("public list" in by_run.seen) and "the rank of a quantile" in by_run.off


def test_a_rank_is_as_noisy_as_the_monotone_distribution_is() -> None:
    """Twelve keys of 1,700 records, under 20 noise keys: the mean error is that of |N(0, v)|."""
    work = workload()
    even = work._replace(key=(np.arange(20_000) % KEYS).astype(np.int32))
    question = asked(even, replace(SETTING, keys=LISTED))
    found = PLANNER.forecast(question, question.parameters, range(20))
    made: Any = question.mechanism
    wanted = np.mean(deviations(made, made.horizon)) * (2 / np.pi) ** 0.5
    assert found.figures["off"] == pytest.approx(wanted, rel=0.12)


def test_wide_bands_are_seen_by_a_run_alone() -> None:
    """All values are in one of 16 bands, whose middle is released, so ranks are far off."""
    work = workload()
    narrow = work._replace(columns={"value": np.where(np.arange(20_000) % 10 < 9, 1.0, 2.0)})
    question = asked(narrow, bands=16)
    formula, run = (PLANNER.forecast(question, question.parameters, range(n)) for n in (0, 2))
    assert run.score > 2 * formula.score


def test_what_the_bound_lets_through_is_what_the_mechanism_counts() -> None:
    work = workload(4000, each=10)
    question = asked(work, budget=5)
    left = np.full(work.users, question.mechanism.bound.left, np.int64)  # type: ignore[attr-defined]
    bound = question.mechanism.bound  # type: ignore[attr-defined]
    kept = accepted_by(bound, work, pairs_of(work), left)
    made = build(question.parameters, replace(SETTING, epsilon=Fraction(12)))
    *_, last = releases(made, work, noise_of("p", 0, 0))
    counted = last.value[:, len(made.at)]
    noise = 12**0.5 * float(made.error(T)[-3])
    assert kept.sum() == pytest.approx(counted.sum(), abs=5 * noise) and not kept.all()
    found = PLANNER.forecast(question, question.parameters, range(0))
    assert found.cut == pytest.approx(1 - kept.mean())
    assert f"cuts off {found.cut:.1%}" in found.lost


@pytest.mark.thorough
def test_a_larger_bound_is_proposed_where_units_send_more() -> None:
    one, many = (asked(workload(40_000, each=n, valued=False)) for n in (1, 20))
    proposals = [PLANNER.propose(question, lambda: None) for question in (one, many)]
    assert proposals[0]["proposed"]["budget"] == 1
    assert proposals[1]["changed"] and proposals[1]["settings"]["budget"] > 2
    assert proposals[1]["proposed"]["score"] < proposals[1]["configured"]["score"]
    assert "budget = " in proposals[1]["toml"] and "at = [0.25, 0.5]" in proposals[1]["toml"]
    table = PLANNER.table("p", proposals[1])
    assert [row[0] for row in table.rows[:2]] == ["configured", "proposed"]
    with pytest.raises(ParameterError, match="sample"):
        PLANNER.propose(one._replace(sample=None), lambda: None)


def test_the_choice_is_no_worse_than_what_was_given_and_more_epsilon_is_more_exact() -> None:
    scores = []
    for epsilon in (Fraction(1, 4), Fraction(8)):
        question = asked(workload(4000), replace(SETTING, epsilon=epsilon), budget=16)
        found = choose(PLANNER, question, 1).found
        given = PLANNER.forecast(question, question.parameters, range(1)).score
        assert found[0].score <= given * 1.001
        scores.append(found[0].score)
    assert scores[1] < 0.5 * scores[0]
    near = PLANNER.near(question, question.parameters)
    assert [one.budget for one in near] == [16, 8, 32]


def test_a_hidden_key_is_an_error_of_all_its_records() -> None:
    question = asked(workload(100))
    found = PLANNER.forecast(question, question.parameters, range(1))
    assert found.score == 1 and found.hidden == 1 and found.hopeless
    assert found.off == "nothing is shown" and "10 keys stay hidden" in found.lost

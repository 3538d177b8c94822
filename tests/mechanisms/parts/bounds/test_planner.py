"""A map's bound: from the records per unit of a sample, and only from inserted ones."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.catalogue import build, find, planner_of
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.parts.bounds.maps import proposed
from hushstream.mechanisms.parts.bounds.planner import law_of
from hushstream.mechanisms.planner import Question
from hushstream.mechanisms.workload import Sample, Workload

KINDS = {"phdstream": "all", "privhp": "binary"}
AXES = [{"name": n, "low": 0, "high": 1} for n in "xy"]


def work(sent: list[int], window: int = 0, sign: int = 1) -> Workload:
    unit = np.repeat(np.arange(len(sent), dtype=np.int32), sent)
    signs = np.full(len(unit), sign, np.int8)
    return Workload(unit, np.zeros_like(unit), len(sent), 1, sign=signs, window=window)


def asked(kind: str, epochs: tuple[tuple[Workload, ...], ...], **given: Any) -> Question:
    domain = {"axes": AXES, "depth": 6, "split": KINDS[kind]}
    setting = Setting(Fraction(1), Fraction(0), 4, windows=len(epochs[0]) if epochs else 1)
    parameters = find(kind).parameters(domain=domain, **given)
    records = sum(len(one.unit) for epoch in epochs for one in epoch)
    sample = Sample(epochs, 5, 1, records) if epochs else None
    mechanism = build(kind, parameters, setting)
    return Question("p", parameters, setting, mechanism, sample, "here", "last", None, None)


def test_the_law_counts_inserted_records_of_a_unit_in_all_windows_of_an_epoch() -> None:
    first = (work([2, 1, 0]), work([1, 0, 4], 1), work([9, 9, 9], 1, sign=-1))
    second = (work([3]), work([0], 1), work([0], 1))
    law, units = law_of(asked("phdstream", (first, second)))
    # The units of the first epoch send 3, 1 and 4 records, the unit of the second sends 3.
    assert law.tolist() == [0, 1, 0, 2, 1] and units == 2


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_proposal_is_the_arithmetic_of_map_bounds(kind: str) -> None:
    sent = [1] * 900 + [60] * 100
    question = asked(kind, ((work(sent),),))
    body = planner_of(kind).propose(question, lambda: None)  # type: ignore[union-attr]
    best = proposed(np.bincount(sent), 1000, Fraction(1), 4)
    assert body["kind"] == kind and body["records"] == sum(sent)
    assert body["settings"]["bound"] == best.bound
    assert body["settings"]["debias"] == best.debias
    assert body["expected_error"]["proposed"] == best.error
    assert body["expected_error"]["configured"] >= best.error
    assert body["toml"].startswith(f"bound = {best.bound}\ndebias = {str(best.debias).lower()}")


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_what_suits_already_is_left_alone(kind: str) -> None:
    body = planner_of(kind).propose(asked(kind, ((work([1] * 5000),),)), lambda: None)
    assert not body["changed"] and body["settings"] == {"bound": 1, "debias": False}
    assert any("cuts nothing" in note for note in body["notes"])


@pytest.mark.parametrize("given", [{"deletions": True, "bound": 2}, {"lifetime": 2, "bound": 2}])
def test_where_records_are_deleted_again_nothing_is_proposed(given: dict[str, Any]) -> None:
    question = asked("phdstream", ((work([1] * 900 + [60] * 100),),), **given)
    body = planner_of("phdstream").propose(question, lambda: None)
    assert not body["changed"] and body["settings"]["bound"] == 2
    assert any("none is proposed" in note for note in body["notes"])


def test_windows_of_an_epoch_share_the_bound() -> None:
    """Six windows in an epoch have more noise relative to their counts than one window."""
    one = asked("phdstream", ((work([6] * 500),),))
    six = asked("phdstream", (tuple(work([1] * 500, n) for n in range(6)),))
    errors = [
        planner_of("phdstream").propose(q, lambda: None)["expected_error"]["configured"]
        for q in (one, six)
    ]
    assert errors[1] > errors[0]


def test_without_a_sample_there_is_no_proposal() -> None:
    with pytest.raises(ParameterError, match="a sample or a shape"):
        planner_of("phdstream").propose(asked("phdstream", ()), lambda: None)


def test_a_table_says_both() -> None:
    question = asked("privhp", ((work([1] * 900 + [60] * 100),),))
    planner = planner_of("privhp")
    table = planner.table("map", planner.propose(question, lambda: None))
    assert [row[0] for row in table.rows] == ["units of an epoch", "configured", "proposed"]
    assert "leaks it" in table.intro and planner.ticks(question) == 0

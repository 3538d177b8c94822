"""The model of the protocol holds, and each mistake breaks the property that it should."""

from __future__ import annotations

import pytest

from ..schedules.bugs import BUGS
from .checker import CASES, MISTAKES, Case, check

QUICK = Case("quick", ("torn",), triggers=1, records=1)
FAST = {
    "release before its charge": (),
    "cancelled clock": pytest.mark.thorough,  # the gate finds it by a schedule, too
}


def test_a_small_model_holds() -> None:
    found = check(QUICK)
    assert found.broken == "" and found.states > 1_000


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, id=c.name, marks=FAST[c.name]) for c in MISTAKES if c.name in FAST],
)
def test_a_mistake_is_refuted_with_a_trace(case: Case) -> None:
    found = check(case)
    assert found.broken == case.broken
    assert "State 2" in found.told


def test_every_mistake_of_the_schedules_is_one_of_the_model() -> None:
    assert set(BUGS) <= {case.name for case in MISTAKES}


@pytest.mark.thorough
@pytest.mark.parametrize("case", [*CASES, *MISTAKES], ids=lambda c: c.name)
def test_the_model_holds_and_each_mistake_breaks_it(case: Case) -> None:
    assert check(case).broken == case.broken

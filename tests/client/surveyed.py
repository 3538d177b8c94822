"""A survey, its users and a store, for tests of the client."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from hushstream.client import (
    Budget,
    Client,
    ReportError,
    ReportStore,
    Survey,
)
from hushstream.client.survey import RANGE, VALUE

SURVEY = Survey(Fraction(1, 2), Fraction(100), "s", reports=3, buckets=32, levels=16)


BUDGET = Budget(Fraction(50))


def user_of(group: int, survey: Survey = SURVEY) -> str:
    return next(str(i) for i in range(1000) if survey.group(str(i)) == group)


VALUED, RANGED = user_of(VALUE), user_of(RANGE)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ReportStore]:
    with ReportStore(tmp_path / "reports.db", BUDGET) as opened:
        yield opened


def asked(number: int, epsilon: Fraction = Fraction(1)) -> Survey:
    """One of many surveys that differ only in the salt."""
    return Survey(epsilon, Fraction(100), f"salt {number}", buckets=32, levels=16)


def answers(store: ReportStore, surveys: int, user: str = "alice") -> int:
    """How many of ``surveys`` salted surveys get a report of the same value."""
    made = 0
    for number in range(surveys):
        try:
            Client(asked(number), store).report(user, 1, 40, 5)
        except ReportError as error:
            assert str(error).startswith("budget = ε = 8")
        else:
            made += 1
    return made

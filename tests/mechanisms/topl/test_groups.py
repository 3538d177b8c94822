"""The group of a unit, as the aggregator computes it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hushstream.client import Survey
from hushstream.client.survey import RANGE, VALUE
from hushstream.mechanisms.topl.groups import Groups, user_of

SURVEY = Survey(Fraction(1), Fraction(100), "s", share=Fraction(1, 2))


@pytest.mark.parametrize(
    ("unit", "user"), [("alice", "alice"), (7, "7"), (("a", 7), '["a", 7]'), ("", "")]
)
def test_a_unit_is_called_as_its_device_calls_it(unit: object, user: str) -> None:
    assert user_of(unit) == user


def test_groups_are_those_of_the_client_however_many_were_met() -> None:
    units = [*(f"user {i}" for i in range(50)), *range(50), *(("a", i) for i in range(50))]
    column = np.fromiter(units, object, len(units))
    small, large = Groups(SURVEY, most=10), Groups(SURVEY)
    expected = [SURVEY.group(user_of(unit)) for unit in units]
    assert {RANGE, VALUE} == set(expected)
    for rows in (slice(None), slice(40, 110), slice(0, 0), slice(None)):
        for groups in (small, large):
            assert groups.of(column[rows]).tolist() == expected[rows]
    assert len(small) == len(large) == 150

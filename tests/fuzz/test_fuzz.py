"""Hostile input for every parser, the same on every machine; `make fuzz` runs longer."""

from __future__ import annotations

import pytest

from .__main__ import watched
from .targets import TARGETS

CASES = [40, pytest.param(1000, marks=pytest.mark.thorough)]


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("cases", CASES)
def test_hostile_input_is_refused_in_words(name: str, cases: int) -> None:
    found = watched(name, seed=1, seconds=600, most=cases)
    assert found["failures"] == []
    assert found["cases"] == cases

"""Hostile input for every parser, the same on every machine; `make fuzz` runs longer."""

from __future__ import annotations

import pytest

from .__main__ import watched
from .targets import TARGETS

CASES = 1000


@pytest.mark.parametrize("name", TARGETS)
def test_hostile_input_is_refused_in_words(name: str) -> None:
    found = watched(name, seed=1, seconds=600, most=CASES)
    assert found["failures"] == []
    assert found["cases"] == CASES

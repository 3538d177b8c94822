"""Hostile input for every parser, a minute's worth; `make fuzz` runs longer."""

from __future__ import annotations

import pytest

from .__main__ import watched
from .targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_hostile_input_is_refused_in_words(name: str) -> None:
    found = watched(name, seed=1, seconds=2)
    assert found["failures"] == []
    assert found["cases"] > 20

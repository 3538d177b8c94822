"""Hostile input for every parser, the same on every machine; `make fuzz` runs longer."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from ..tree import ROOT
from .targets import TARGETS

CASES = [40, pytest.param(1000, marks=pytest.mark.thorough)]


@pytest.fixture(scope="module", params=CASES)
def ran(request: pytest.FixtureRequest) -> tuple[int, dict[str, Any]]:
    """Number of cases and results by target; one process does the imports for all targets."""
    words = ["--all", "--seed=1", "--seconds=600", f"--most={request.param}"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", *words],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr
    return request.param, json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", TARGETS)
def test_hostile_input_is_refused_in_words(name: str, ran: tuple[int, dict[str, Any]]) -> None:
    cases, found = ran
    assert found[name]["failures"] == []
    assert found[name]["cases"] == cases

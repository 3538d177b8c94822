"""Records that producers hold during an outage are in time after it, for any owner of the clock."""

from __future__ import annotations

import json
from typing import Any

import pytest

from . import forks
from .outages import CASES

SETTLE = 30.0  # the default of engine.settle


def run(case: str, seed: int) -> Any:
    done = forks.run("tests.schedules.outages", "--case", case, "--seed", str(seed))
    assert not done.returncode, done.stderr
    return json.loads(done.stdout)


@pytest.mark.spread(12)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("case", CASES)
def test_what_was_in_time_is_not_late_after_an_outage(case: str, seed: int) -> None:
    found = run(case, seed)
    assert (found["late"], found["sent"], found["waiting"]) == (0, 1000, "")
    assert found["exits"] == [] and found["triggers"] == 20  # each trigger once, and all of them


@pytest.mark.thorough
def test_triggers_are_held_after_an_outage_alone_and_no_longer_than_is_said() -> None:
    usual, after = run("none", 5), run("outage", 5)
    assert max(usual["delays"]) < 1.0
    # The brokers are back at 60 s. Triggers due by then, or within the next half minute, are all
    # cut at once; later ones are not held.
    cut = [due + delay for due, delay in zip(after["due"], after["delays"], strict=True)]
    held = [moment for due, moment in zip(after["due"], cut, strict=True) if 14 < due < 90]
    assert all(60 + SETTLE <= moment < 60 + SETTLE + 3 for moment in held)
    assert all(d < 1.0 for due, d in zip(after["due"], after["delays"], strict=True) if due > 91)

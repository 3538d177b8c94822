"""Waiting after a run through faults: while anything moves, no longer; the rest is named."""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path

import pytest
from hushstream.topics.records import Trigger

ROOT = Path(__file__).parents[2]

sys.path.insert(0, str(ROOT / "benchmarks"))
try:
    import _settled
finally:
    sys.path.pop(0)

FAST = {"pause": 0.02}


def test_what_still_moves_is_waited_for_however_long_it_takes():
    steps = iter([*range(12, 0, -1), 0])
    looks = itertools.count()
    left = _settled.patiently(
        lambda: ["x"] * next(steps), patience=0.1, look=lambda: next(looks), **FAST
    )
    assert not left and next(looks) == 13  # longer than the patience, which restarts


def test_what_stands_still_is_given_up_and_named(monkeypatch):
    monkeypatch.setattr(_settled, "TOLD", 0.0)
    steps, told = iter([["a", "b"]]), []
    left = _settled.patiently(
        lambda: next(steps, ["b"]), patience=0.1, report=told.append, what="manifests", **FAST
    )
    assert left == ["b"]
    assert told[0] == "waiting for 2 manifests" and told[-1] == "waiting for 1 manifests"


def test_workers_that_start_take_no_patience_for_a_while(monkeypatch):
    steps = iter([True] * 20)
    begun = time.monotonic()
    _settled.patiently(lambda: ["x"], patience=0.05, starting=lambda: next(steps, False), **FAST)
    assert time.monotonic() - begun > 20 * FAST["pause"]
    monkeypatch.setattr(_settled, "STARTS", 0.0)
    assert _settled.patiently(lambda: ["x"], patience=0.05, starting=lambda: True, **FAST) == ["x"]


@pytest.mark.parametrize("error", [_settled.KafkaException, _settled.OutageError])
def test_a_broker_that_is_away_is_no_progress(error: type[Exception]):
    def gone() -> list[str]:
        raise error

    left = _settled.patiently(gone, patience=0.1, what="manifests", **FAST)
    assert left == ["nothing is known of manifests"]


@pytest.mark.parametrize("whole, named", [({"p": 3, "q": 1}, ""), ({"p": 2, "q": 1}, "p"),
                                          ({"p": 9}, "q"), ({"p": 4, "q": 2}, "")])  # fmt: skip
def test_what_was_waited_for_is_proved_and_what_began_later_may_be_there_in_part(whole, named):
    due = [_trigger("p", 2), _trigger("q", 1), _trigger("p", 3)]
    assert _settled.unproved(whole, due).partition(":")[0] == named


def _trigger(pipeline: str, ordinal: int) -> Trigger:
    return Trigger(0, {}, pipeline, ordinal, 0, 1, False, 0, 0, 0, "", "", "")

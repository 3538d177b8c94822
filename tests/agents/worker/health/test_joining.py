"""Joining: a worker that its group never admits logs that once a minute, and then ends."""

from __future__ import annotations

import logging

import hushstream.agents.worker.health.joining as joining
import pytest
from hushstream.agents.worker.health.joining import Joining

from ....support import messages

SECOND = 1_000_000


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(joining.time, "monotonic", lambda: now[0])
    return now


def looks(watch: Joining, clock: list[float], seconds: float, joined: bool = False) -> list[str]:
    """Look twice a second for some seconds; return the errors."""
    found = []
    for _ in range(int(2 * seconds)):
        clock[0] += 0.5
        if (error := watch.look(joined)) is not None:
            found.append(str(error))
    return found


def test_a_worker_that_is_not_taken_in_says_so_and_ends(clock, caplog):
    watch = Joining(300 * SECOND)
    with caplog.at_level(logging.WARNING):
        assert looks(watch, clock, 299) == []
    assert (
        messages(caplog.records)
        == ["joining the consumer group: waiting for it to assign partitions, for up to 300 s"] * 4
    )
    error = looks(watch, clock, 3)[0]
    assert "for 300 s (kafka.outage_timeout)" in error and "coordinator has no leader" in error


def test_one_that_was_taken_in_or_slept_has_not_waited(clock, caplog):
    watch = Joining(60 * SECOND)
    assert looks(watch, clock, 59) == looks(watch, clock, 1, joined=True) == []
    assert looks(watch, clock, 59) == []
    slept = Joining(60 * SECOND)
    clock[0] += 3600  # time in which the machine was suspended does not count
    assert slept.look(False) is None
    assert looks(slept, clock, 50) == []

"""Progress: work that stands still is told apart from rest and from an absent broker."""

from __future__ import annotations

import hushstream.agents.kafka.progress as module
from hushstream.agents.kafka.progress import Progress


def test_work_without_progress_is_a_stall_and_rest_is_not(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    one = Progress("it")
    now[0] += 1000
    assert not one.stalled(10)  # it has not begun
    one.moved()
    now[0] += 9
    assert not one.stalled(10)
    now[0] += 2
    assert one.stalled(10)
    one.outage(True)
    assert one.away and not one.stalled(10) and not one.missed(10)
    now[0] += 11  # the attempt itself hangs
    assert one.stalled(10)
    one.outage(True)  # another attempt
    assert one.missed(10) and not one.missed(11)
    one.outage(False)
    assert not one.missed(0)
    one.rest()
    now[0] += 1000
    assert not one.away and not one.stalled(10)

"""Live: every task makes progress. Ready: the worker also serves and reaches the broker."""

from __future__ import annotations

import logging

import hushstream.agents.kafka.progress as progress
from hushstream.agents.kafka.progress import Progress
from hushstream.agents.worker.health.state import Health

from ....support import messages


def test_a_task_that_hangs_is_not_live_and_is_told_once(monkeypatch, caplog):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    clock, shard = Progress("the clock"), Progress("shard in-0")
    health = Health(lambda: [clock, shard], 60, Progress("an answer"))
    clock.moved()
    assert health.live() and not health.ready()  # it has no assignment yet
    health.serving = True
    assert health.ready()
    now[0] = 61
    with caplog.at_level(logging.ERROR):
        assert not health.live() and not health.ready()
        assert not health.live()
    assert messages(caplog.records) == ["the clock has made no progress for 60 s: not live"]
    clock.moved()
    assert health.live() and health.ready()


def test_a_worker_without_a_broker_lives_and_is_not_ready(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    clock = Progress("the clock")
    health = Health(lambda: [clock], 60, Progress("an answer"))
    health.serving = True
    clock.outage(True)
    now[0] = 5.0
    assert health.ready()  # the failure may come from a broker that died and is back
    clock.outage(True)  # the next attempt fails too
    now[0] = 5.1
    assert health.live() and not health.ready()
    clock.outage(False)
    assert health.ready()


def test_a_cluster_that_is_silent_makes_a_worker_not_ready_within_a_stated_time(monkeypatch):
    """The clock may wait forty seconds for an answer before it knows that none comes."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    clock = Progress("the clock")
    answers = Progress("an answer")
    health = Health(lambda: [clock], 60, answers)
    health.serving = True
    clock.moved()
    answers.moved()
    now[0] = 15.0
    assert health.ready()
    now[0] = 15.1
    assert health.live() and not health.ready()
    answers.moved()
    assert health.ready()

"""Every worker reads the whole clock log, and must hold the key that it names."""

from __future__ import annotations

import pytest
from hushstream.agents.clock.log import ClockLog
from hushstream.agents.worker.log_follower import LogFollower
from hushstream.errors import EngineError
from hushstream.topics.config.model import Kafka
from hushstream.topics.events.decode import RawRecord
from hushstream.topics.records import Start, encode

from ...support import NAMES


class _Topic:
    topic = NAMES.clock
    partition = 0


def made(fingerprint: str) -> LogFollower:
    clock = ClockLog({"p": 4})
    return LogFollower(Kafka(), NAMES, clock, {}, fingerprint, lambda: None, lambda error: None)


def test_a_worker_with_another_key_stops_before_it_has_used_a_record():
    record = RawRecord(0, 0, None, encode(Start("p", 0, 1, "mine")))
    good = made("mine")
    good._take(_Topic(), [record], 1)  # type: ignore[arg-type]
    assert good.clock.end == 1
    other = made("another")
    with pytest.raises(EngineError, match="same key"):
        other._take(_Topic(), [record], 1)  # type: ignore[arg-type]
    assert other.clock.end == 0

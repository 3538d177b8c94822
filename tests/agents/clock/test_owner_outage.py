"""The owner of the clock while brokers are away or producers rest."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import hushstream.agents.clock.owner as module
import hushstream.agents.kafka.patience as patience
import pytest
from aiokafka.errors import OffsetOutOfRangeError
from hushstream.agents.clock.wall_time import Settling
from hushstream.errors import EngineError
from hushstream.topics.records import TriggerRequest

from ...support import HOUR, ORIGIN
from .bench import (
    Recorder,
    begun,
    owner,
    with_pipeline,
)


class Away:
    """Time, and a broker that does not answer for a while; then producers send their backlog."""

    def __init__(self, monkeypatch) -> None:
        self.now = ORIGIN + 6 * HOUR - 20_000_000
        self.ends = 5
        self.clock, ledger = begun(with_pipeline(external=False))
        self.clock.time = self.now
        self.one = one = owner(self.clock, ledger, Recorder())
        one._deployment = with_pipeline(external=False)
        one._wall = SimpleNamespace(
            now=lambda: self.now, doubtful=lambda: False, agree=lambda moment: None
        )
        one._settling, one._owned = Settling(30_000_000), False
        one._lead = SimpleNamespace(check=lambda *_: None, check_behind=lambda *_: None)

        async def ends() -> object:
            return {"events": [self.ends]}

        async def nothing(*_: object) -> None:
            """There is no request, and no snapshot is due."""

        one._ends, one._requests.read, one._snapshot = ends, nothing, nothing
        one._settle()

    def beat(self, seconds: float) -> int:
        """Beat after some seconds; return the number of triggers so far."""
        self.now += int(seconds * 1e6)
        asyncio.run(self.one._beat())
        return self.clock.timelines["p"].ordinal


def test_a_trigger_that_was_due_in_an_outage_is_cut_when_producers_have_sent(monkeypatch):
    away = Away(monkeypatch)
    assert away.beat(1) == 0
    assert away.beat(60) == 0  # the first answer after the outage; the trigger was due 41 s ago
    away.ends = 905  # nine hundred records from before the trigger's time
    for _ in range(29):
        assert away.beat(1) == 0
    assert away.beat(1) == 1
    assert away.clock.offsets == {"events": [905]}


def test_a_trigger_is_not_held_where_the_broker_answers(monkeypatch):
    away = Away(monkeypatch)
    assert [away.beat(4) for _ in range(5)] == [0, 0, 0, 0, 1]


def test_an_outage_within_a_beat_holds_what_the_beat_has_not_cut_yet(monkeypatch):
    away = Away(monkeypatch)
    one, commit = away.one, away.one._producer.commit_transaction
    clock = away.clock
    due = clock.due(ORIGIN + 24 * HOUR)
    assert len(due) > 1  # several triggers are due, and the broker goes away after the first
    away.now = clock.time = ORIGIN + 24 * HOUR
    one._settling = Settling(30_000_000)
    one._settling.opened(away.now, away.now, None, 1_000_000)

    async def slow() -> None:
        await commit()
        if clock.timelines["p"].ordinal == 0:
            away.now += 40_000_000

    one._producer.commit_transaction = slow
    assert away.beat(0) == 1
    assert [away.beat(5) for _ in range(6)] == [1, 1, 1, 1, 1, len(due)]


def test_a_quiet_clock_beats_now_and_then_so_that_an_input_at_rest_is_no_clock_that_stood(
    monkeypatch,
):
    away = Away(monkeypatch)
    away.clock.offsets = {"events": [5]}
    before = away.one._producer.done.count("clock")
    for _ in range(11):
        away.beat(1)
    assert away.one._producer.done.count("clock") - before == 1
    away.one._deployment = with_pipeline(external=True)  # no triggers follow this clock
    for _ in range(8):
        away.beat(1)
    assert away.one._producer.done.count("clock") - before == 1


def test_a_request_is_obeyed_at_once_whatever_was_away():
    clock, ledger = begun()
    clock.request(TriggerRequest("a", ORIGIN + 6 * HOUR))
    one = owner(clock, ledger, Recorder())
    one._settling = Settling(30_000_000)
    one._settling.opened(one._wall.now(), ORIGIN, None, 0)  # the clock stopped years ago
    ((pipeline, due),) = clock.due(ORIGIN + 6 * HOUR)
    assert one._settling.holds(due.scheduled, 0, one._wall.now())
    assert not one._held(pipeline, due)


def test_a_clock_whose_beats_all_fail_ends_although_it_can_open(monkeypatch):
    """Its health pages would stay green for ever."""
    moment, beats = [1_000.0], list[float]()
    one = owner(*begun(), Recorder())
    one._kafka = SimpleNamespace(outage_timeout=300_000_000)
    for one_of in (module, patience):
        monkeypatch.setattr(one_of, "time", SimpleNamespace(monotonic=lambda: moment[0]))

    async def beat() -> None:
        beats.append(moment[0])
        moment[0] += 2_000.0 if len(beats) in (1, 2) else 50.0  # it is suspended meanwhile
        if len(beats) != 2:
            raise OffsetOutOfRangeError("requests")

    async def nothing(*_: object) -> None:
        """Opening succeeds each time."""

    one._beat, one._again, one._rest = beat, nothing, nothing
    with pytest.raises(EngineError, match="the clock: no broker for 300 s"):
        asyncio.run(one.run())
    assert len(beats) == 11 and beats[-1] - beats[2] == 400.0

"""Rests between steps: none before a trigger, or with much work."""

from __future__ import annotations

import asyncio
import dataclasses
from types import SimpleNamespace

import hushstream.agents.worker.shards.rest as rests
import pytest
from aiokafka.structs import TopicPartition as TP
from hushstream.agents.clock.log import ClockLog
from hushstream.agents.kafka.backlog import Queued
from hushstream.agents.worker.shards.rest import Rest, Rests
from hushstream.topics.records import Marker
from msgspec.structs import replace

from ....support import beat, deployment, start, trigger
from ..bench import interval, unopened

P = deployment().pipelines[0]
BY_SCHEDULE = dataclasses.replace(P, external=False)
OTHER = dataclasses.replace(BY_SCHEDULE, name="other")
BEGUN = Marker("g", 0)


def made(among: int) -> tuple[ClockLog, Rests]:
    horizons = {"p": P.mechanism.traits.horizon, "other": 4}
    clock = ClockLog(horizons, [(0, start(P)), (1, beat([5]))])
    shards = {TP("t", n): SimpleNamespace(marker=BEGUN) for n in range(among)}
    return clock, Rests(clock, shards)


def left(
    rest: Rest,
    now: float,
    marker: Marker = BEGUN,
    size: int = 100,
    fetched: int = 9,
    barriers: int = 0,
) -> float:
    return round(rest.left(now, marker, Queued(size, fetched, barriers)), 6)


@pytest.mark.parametrize("among, seconds", [(1, 1.0), (6, 1.0), (12, 1.8), (40, 6.0),
                                            (60, 9.0), (10_000, 20.0)])  # fmt: skip
def test_the_more_shards_the_longer_within_limits(among: int, seconds: float):
    assert made(among)[1].seconds == pytest.approx(seconds)


def test_a_rest_begins_with_the_end_of_a_step():
    rest = made(60)[1].add(TP("t", 0), [P], raw=True)
    assert left(rest, 7.0) == 0  # the first step does not wait
    rest.stepped(10.0, more=False)
    assert (left(rest, 10.0), left(rest, 11.0), left(rest, 19.0)) == (9.0, 8.0, 0)
    rest.stepped(20.0, more=True)  # the stage continues without new input
    assert left(rest, 20.0) == 0


def test_much_input_ends_a_rest():
    rest = made(60)[1].add(TP("t", 0), [P], raw=True)
    rest.stepped(0.0, more=False)
    assert left(rest, 0.1, size=rests.ENOUGH - 1) > 0 == left(rest, 0.1, size=rests.ENOUGH)


@pytest.mark.parametrize("among", [1, 60])
def test_no_raw_partition_rests_while_a_trigger_is_still_to_be_handled(among: int):
    clock, kept = made(among)
    rest = kept.add(TP("t", 0), [OTHER, P], raw=True)
    rest.stepped(0.0, more=False)
    assert left(rest, 0.1) > 0
    clock.append(2, trigger(P, 1, [9]))
    assert left(rest, 0.1, replace(BEGUN, clock=2)) == 0
    assert left(rest, 0.1, replace(BEGUN, clock=3)) > 0


@pytest.mark.parametrize("among", [1, 60])
def test_a_raw_partition_takes_all_records_before_a_trigger_in_one_step(among: int):
    """Were it to begin with those that are there, it would take two steps for each trigger."""
    clock, kept = made(among)
    rest = kept.add(TP("events", 0), [OTHER, P], raw=True)
    rest.stepped(0.0, more=False)
    clock.append(2, start(OTHER))
    clock.append(3, trigger(P, 1, [9]))
    at = replace(BEGUN, clock=3)
    assert left(rest, 0.1, at, fetched=8) > 0 == left(rest, 0.1, at, fetched=9)
    assert left(rest, 0.1, at, size=rests.ENOUGH, fetched=8) == 0
    clock.append(4, trigger(OTHER, 1, [7]))
    assert left(rest, 0.1, at, fetched=6) > 0 == left(rest, 0.1, at, fetched=7)
    later = kept.add(TP("events", 1), [P], raw=True)  # a partition that the trigger does not name
    later.stepped(0.0, more=False)
    assert left(later, 0.1, at, fetched=0) == 0


@pytest.mark.parametrize("among", [1, 60])
def test_no_later_stage_rests_while_a_micro_batch_is_open_that_ends(among: int):
    clock, kept = made(among)
    rest = kept.add(TP("t", 0), [P], raw=False)
    rest.stepped(0.0, more=False)
    assert left(rest, 0.1) > 0
    clock.append(2, trigger(P, 1, [9]))
    assert left(rest, 0.1) == 0 == left(rest, 0.1, replace(BEGUN, closed={"p": 0}))
    assert left(rest, 0.1, replace(BEGUN, closed={"p": 1})) > 0


@pytest.mark.parametrize("among", [1, 60])
def test_a_later_stage_takes_what_all_senders_have_sent_for_a_trigger_in_one_step(among: int):
    clock, kept = made(among)
    rest = kept.add(TP("t", 0), [P], raw=False, upstreams=3)
    rest.stepped(0.0, more=False)
    assert left(rest, 0.1, barriers=9) > 0  # no trigger is due
    clock.append(2, trigger(P, 1, [9]))
    assert left(rest, 0.1, barriers=2) > 0 == left(rest, 0.1, barriers=3)
    one = replace(BEGUN, upstream={"p": [0, 1]})  # an earlier step has taken one
    assert left(rest, 0.1, one, barriers=1) > 0 == left(rest, 0.1, one, barriers=2)
    assert left(rest, 0.1, one, size=rests.ENOUGH) == 0
    clock.append(3, trigger(P, 2, [9]))
    next_one = replace(BEGUN, upstream={"p": [1, 1, 2]}, closed={"p": 1})
    assert left(rest, 0.1, next_one, barriers=1) > 0 == left(rest, 0.1, next_one, barriers=2)


def test_senders_that_were_added_later_send_no_barrier_of_earlier_triggers():
    grown = dataclasses.replace(P, joined=(0, 0, 4))
    at = [replace(BEGUN, closed={"p": n}) for n in (3, 4)]
    assert [rests.missing(grown, 3, marker) for marker in at] == [2, 3]
    told = replace(at[0], upstream={"p": [4, 3, 4]})
    assert rests.missing(grown, 3, told) == 1


@pytest.mark.parametrize(
    "ahead, kept",
    [(-5, 20), (7.9, 20), (8.1, 4.1), (18, 14), (24.1, 20), (90, 20)],
)
def test_a_rest_ends_shortly_before_a_trigger_is_scheduled(
    ahead: float, kept: float, monkeypatch: pytest.MonkeyPatch
):
    """And not for the trigger of another pipeline, which concerns other records."""
    scheduled = P.windows.times(P.windows.window(start(P).time))[0]
    clock, among = made(10_000)
    clock.append(2, start(OTHER))
    monkeypatch.setattr(rests.time, "time", lambda: scheduled / 1e6 - ahead)
    rest = among.add(TP("t", 0), [BY_SCHEDULE], raw=True)
    rest.stepped(50.0, more=False)
    assert left(rest, 50.0) == pytest.approx(kept, abs=1e-4)
    clock.append(3, trigger(P, 1, [9]))  # it has fired; the next one is far away
    late = replace(BEGUN, clock=9)
    rest.stepped(50.0, more=False)
    assert left(rest, 50.0, late) == 20
    other = among.add(TP("t", 1), [OTHER], raw=True)
    other.stepped(50.0, more=False)
    assert left(other, 50.0, late) == pytest.approx(kept, abs=1e-4)


def test_a_later_stage_rests_on_until_the_one_before_has_taken_its_records(
    monkeypatch: pytest.MonkeyPatch,
):
    scheduled = P.windows.times(P.windows.window(start(P).time))[0]
    monkeypatch.setattr(rests.time, "time", lambda: scheduled / 1e6 - 18)
    rest = made(10_000)[1].add(TP("t", 0), [BY_SCHEDULE], raw=False)
    rest.stepped(50.0, more=False)
    assert left(rest, 50.0) == pytest.approx(16, abs=1e-4)


def test_no_rest_ends_for_a_pipeline_that_is_triggered_by_request(monkeypatch: pytest.MonkeyPatch):
    scheduled = P.windows.times(P.windows.window(start(P).time))[0]
    monkeypatch.setattr(rests.time, "time", lambda: scheduled / 1e6 - 9)
    rest = made(10_000)[1].add(TP("t", 0), [P], raw=True)
    rest.stepped(50.0, more=False)
    assert left(rest, 50.0) == 20


@pytest.mark.parametrize("among, seconds", [(1, 0.2), (20, 0.6), (10_000, 4.0)])
def test_fetching_pauses_for_a_fifth_of_a_rest(among: int, seconds: float):
    assert made(among)[1].pause() == pytest.approx(seconds)


def test_fetching_pauses_but_not_while_a_shard_has_a_trigger_to_handle():
    clock, kept = made(20)
    paused = pytest.approx(0.6)
    assert kept.pause() == paused
    shards = kept._shards
    ingest, aggregate = TP("t", 3), TP("t", 4)
    kept.add(ingest, [P], raw=True)
    kept.add(aggregate, [P], raw=False)
    shards[ingest].marker = replace(BEGUN, clock=2)
    assert kept.pause() == paused
    clock.append(2, trigger(P, 1, [9]))
    assert kept.pause() == 0
    shards[ingest].marker = replace(BEGUN, clock=3)
    assert kept.pause() == 0  # its barrier is on its way
    shards[aggregate].marker = replace(BEGUN, closed={"p": 1})
    assert kept.pause() == paused
    kept.add(TP("t", 99), [P], raw=True)  # a shard of another process by now
    assert kept.pause() == paused


def test_fetching_pauses_longer_in_long_rests_unless_a_trigger_is_near(monkeypatch):
    scheduled = P.windows.times(P.windows.window(start(P).time))[0]
    _, kept = made(10_000)
    kept.add(TP("t", 0), [P], raw=True)  # it is triggered by request
    monkeypatch.setattr(rests.time, "time", lambda: scheduled / 1e6 - 7.9)
    assert kept.pause() == 4
    kept.add(TP("t", 1), [BY_SCHEDULE], raw=True)
    assert kept.pause() == rests.PAUSE
    monkeypatch.setattr(rests.time, "time", lambda: scheduled / 1e6 - 8.1)
    assert kept.pause() == 4  # it ends when rests begin to end


def test_a_shard_is_woken_when_its_rest_is_over(tmp_path):
    async def run() -> None:
        shard, loop = unopened(tmp_path).shard(), asyncio.get_running_loop()
        kept = made(60)[1]
        rest = kept.add(TP("t", 0), [P], raw=True)
        object.__setattr__(shard._spec, "rest", rest)
        rest.stepped(loop.time() - 8.95, more=False)
        shard.deliver(interval(0, 3))
        shard.stir()
        assert not shard._wake.is_set() and shard._rests()  # neither ends the rest
        await asyncio.wait_for(shard._wake.wait(), 5)
        assert not shard._rests()
        shard._wake.clear()
        shard.stir()
        assert shard._wake.is_set()
        rest.stepped(loop.time(), more=False)
        assert shard._rests()
        shard._backlog.paused = True  # no more records come before some are taken
        assert not shard._rests()

    asyncio.run(run())

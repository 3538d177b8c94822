"""Every worker reads the whole clock log, and must have the key that the log names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from aiokafka.structs import TopicPartition
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewTopic
from faust.types import TP
from hushstream.agents.clock.log import ClockLog
from hushstream.agents.stages.feedback import Feedback
from hushstream.agents.worker import log_follower
from hushstream.agents.worker.log_follower import Hearers, LogFollower
from hushstream.deploy.broker import Broker
from hushstream.errors import EngineError, RewoundError
from hushstream.formats.events.decode import RawRecord
from hushstream.topics.config.model import Kafka
from hushstream.topics.names import Names
from hushstream.topics.records import Beat, Selected, Start, encode

from ...support import NAMES


class _Topic:
    topic = NAMES.clock
    partition = 0


class _Ends:
    """A client that knows where logs begin."""

    def __init__(self, begins: dict[str, int]) -> None:
        self._begins = begins

    async def beginning_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self._begins.get(tp.topic, 0) for tp in places}


SELECTED = TopicPartition(NAMES.selected("p"), 0)


def following(windows: list[int]) -> LogFollower:
    """A follower that has read a selected topic with a record for each of these windows."""
    clock, feedback = ClockLog({"p": 4}), {"p": Feedback(1)}
    run = LogFollower(
        Kafka(), NAMES, clock, feedback, {}, Hearers(lambda: None, lambda error: None)
    )
    records = [
        RawRecord(at, 0, None, encode(Selected(window, 1, 0, [], [], True)))
        for at, window in enumerate(windows)
    ]
    run._take(SELECTED, records, len(windows))
    return run


@pytest.mark.parametrize(
    ("first", "place"), [(0, 0), (1, 1), (2, 3), (3, 5), (9, 6)]
)  # what a slow shard wrote of window 1 lies above the first record of window 2
def test_a_selected_topic_is_of_use_from_the_first_record_of_a_window_that_is(first, place):
    run = following([0, 1, 1, 2, 1, 3])
    assert run.below({"p": first, "another": 1}) == {TP(NAMES.selected("p"), 0): place}
    assert run.below({"p": first}) == {TP(NAMES.selected("p"), 0): place}  # asked again


def test_what_was_trimmed_while_a_worker_was_away_is_passed_but_never_in_the_clock_log():
    run = following([0, 1])
    asyncio.run(run._pass_trimmed(_Ends({SELECTED.topic: 2})))  # type: ignore[arg-type]
    assert run._positions[SELECTED] == 2
    asyncio.run(run._pass_trimmed(_Ends({SELECTED.topic: 5})))  # type: ignore[arg-type]
    assert run._positions[SELECTED] == 5
    run._reach(TopicPartition(NAMES.clock, 0), 8)
    with pytest.raises(EngineError, match="trimmed above what this worker has read"):
        asyncio.run(run._pass_trimmed(_Ends({NAMES.clock: 9})))  # type: ignore[arg-type]


def topics_of(broker: Broker, names: Names) -> tuple[str, str]:
    """Create a clock topic and a selected topic."""
    made = names.clock, names.selected("p")
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in client.create_topics([NewTopic(topic, 1, 1) for topic in made]).values():
        future.result(120)
    return made


def put(broker: Broker, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(120) == 0


def cut(broker: Broker, topic: str, below: int) -> None:
    """Trim a topic's partition."""
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in client.delete_records([Place(topic, 0, below)]).values():
        future.result(120)


def test_on_the_broker_a_trimmed_selected_topic_is_passed_and_a_trimmed_clock_log_is_not(
    broker: Broker, unique: Callable[[str], str]
) -> None:
    names = Names(unique("away"), "5eed5eed50")
    clock, selected = topics_of(broker, names)
    windows = [encode(Selected(window, 1, 0, [], [], True)) for window in range(6)]
    put(broker, selected, windows[:5])
    put(broker, clock, [encode(Start("p", 0, 1, "mine"))])
    failures: list[BaseException] = []
    kafka, feedback = Kafka(bootstrap=broker.bootstrap), Feedback(1)
    run = LogFollower(kafka, names, ClockLog({"p": 4}), {"p": feedback}, {"p": "mine"},
                      Hearers(lambda: None, failures.append))  # fmt: skip
    tp = TopicPartition(selected, 0)

    async def reaches(true: Callable[[], bool]) -> None:
        until = asyncio.get_running_loop().time() + 150
        while not true():
            assert asyncio.get_running_loop().time() < until, run._positions
            await asyncio.sleep(0.05)

    async def away() -> None:
        await run.open()  # up to the last record
        assert run._positions[tp] == 5
        await run.close()
        run._positions[tp] = 1  # it was suspended here while the topic was trimmed
        cut(broker, selected, 4)
        run._task = run._tasks.start("following the clock", run._run())
        put(broker, selected, windows[5:])
        await reaches(lambda: run._positions[tp] == 6)
        assert failures == [] and run._windows[TopicPartition(selected, 0)][5] == 5
        await run.close()
        put(broker, clock, [encode(Start("p", 0, 1, "mine"))])
        cut(broker, clock, 2)
        run._task = run._tasks.start("following the clock", run._run())
        await reaches(lambda: bool(failures))

    asyncio.run(away())
    assert "the clock log was trimmed above what this worker has read" in str(failures[0])


class _Far(_Ends):
    """A client that knows where logs end."""

    async def end_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self._begins.get(tp.topic, 7) for tp in places}


def test_the_ends_of_what_shards_read_are_asked_for_and_forgotten_with_them():
    run, shards = following([0]), [TP("cells", 1), TP("raw", 0)]
    run._hearers = replace(run._hearers, others=lambda: shards)
    client = _Far({"cells": 4, SELECTED.topic: 1})
    ends = asyncio.run(run._look(client, {}))  # type: ignore[arg-type]
    assert ends == {SELECTED: 1} and run.ends == {shards[0]: 4, shards[1]: 7}
    del shards[1]
    asyncio.run(run._look(client, ends))  # type: ignore[arg-type]
    assert run.ends == {shards[0]: 4}


def made(fingerprint: str) -> LogFollower:
    clock = ClockLog({"p": 4})
    keys = {"p": fingerprint}
    return LogFollower(Kafka(), NAMES, clock, {}, keys, Hearers(lambda: None, lambda error: None))


def test_a_worker_with_another_key_stops_before_it_has_used_a_record():
    record = RawRecord(0, 0, None, encode(Start("p", 0, 1, "mine")))
    good = made("mine")
    good._take(_Topic(), [record], 1)  # type: ignore[arg-type]
    assert good.clock.end == 1
    other = made("another")
    with pytest.raises(EngineError, match="same key"):
        other._take(_Topic(), [record], 1)  # type: ignore[arg-type]
    assert other.clock.end == 0
    elsewhere = RawRecord(0, 0, None, encode(Start("of another worker alone", 0, 1, "its own")))
    other._take(_Topic(), [elsewhere], 1)  # type: ignore[arg-type]
    assert other.clock.end == 1


def test_a_shard_that_is_ahead_of_what_was_read_waits_for_it(monkeypatch):
    """The shard has progressed on another worker while this one was suspended."""
    run, at = made("mine"), TopicPartition(NAMES.clock, 0)
    run._positions[at] = 0

    async def opened() -> list[str]:
        waiting = asyncio.ensure_future(run.reach_back(3, ["p"]))
        said = []
        for place, record in enumerate([Start("p", 0, 1, "mine"), Beat(2, {}), Beat(3, {})]):
            await asyncio.sleep(0.15)
            said.append(waiting.done())
            run._take(at, [RawRecord(place, 0, None, encode(record))], place + 1)
        await asyncio.wait_for(waiting, 120)
        monkeypatch.setattr(log_follower, "READ_SECONDS", 0.1)
        with pytest.raises(TimeoutError, match="not read up to a shard's place"):
            await run.reach_back(9, ["p"])
        run._positions[at] = 9  # a later log of another history, whose last offset is a marker's
        with pytest.raises(RewoundError, match="ends before what a shard has applied"):
            await run.reach_back(9, ["p"])
        return said

    assert asyncio.run(opened()) == [False] * 3


def test_the_entry_before_a_place_is_read_again(monkeypatch):
    """An old beat is skipped at first; a shard that has applied it last compares it."""
    run, at = made("mine"), TopicPartition(NAMES.clock, 0)
    entries = [Start("p", 0, 1, "mine"), *(Beat(time, {}) for time in range(2, 6))]
    records = [RawRecord(n, 0, None, encode(one)) for n, one in enumerate(entries)]
    asked = []

    async def whole(kafka, topic, partition, start=None):
        asked.append(topic)
        yield [], 0, len(records)
        yield records, len(records), len(records)

    monkeypatch.setattr(log_follower, "read_to_end", whole)
    run._take(at, records[3:], len(records))
    run.clock.skip(3)
    for place in (5, 4, 3, 3, 5):
        asyncio.run(run.reach_back(place, ["p"]))
        assert run.clock.passed(place) == place
    assert asked == [NAMES.clock]  # only for the entry that was skipped


def test_on_the_broker_a_log_that_was_rewound_and_has_grown_since_is_known_by_its_last_record(
    broker: Broker, unique: Callable[[str], str]
) -> None:
    """A shard that opened would apply records in memory from a history that is gone."""
    names = Names(unique("grown"), "5eed5eed50")
    clock, selected = topics_of(broker, names)
    put(broker, selected, [encode(Selected(window, 1, 0, [], [], True)) for window in range(6)])
    put(broker, clock, [encode(Start("p", 0, 1, "mine")), encode(Beat(2, {"e": [4]}))])
    failures: list[BaseException] = []
    kafka, feedback = Kafka(bootstrap=broker.bootstrap), Feedback(1)
    run = LogFollower(kafka, names, ClockLog({"p": 4}), {"p": feedback}, {"p": "mine"},
                      Hearers(lambda: None, failures.append))  # fmt: skip
    marker = {TP(clock, 0): 2, TP(selected, 0): 1}

    async def read() -> None:
        await run.check({})  # before it has read anything
        await run.open()
        await run.close()
        put(broker, clock, [encode(Beat(3, {"e": [5]}))])
        assert await run.check(marker)  # a single offset may be a transaction's marker
        put(broker, clock, [encode(Beat(4, {"e": [6]}))])
        assert not await run.check(marker)
        true = {tp: list(known) for tp, known in run._read._known.items()}
        for topic, value in ((clock, encode(Beat(2, {"e": [3]}))), (selected, b"another")):
            tp = TopicPartition(topic, 0)
            run._read._known[tp] = [(true[tp][0][0], value)]
            with pytest.raises(RewoundError, match=f"{topic} lacks records"):
                await run.check(marker)
            run._task = run._tasks.start("following the clock", run._run())
            await asyncio.wait([run._task], timeout=150)
            assert f"{topic} lacks records" in str(failures.pop())
            run._read._known[tp] = true[tp]
        cut(broker, selected, 6)
        await run.check(marker)  # trimmed records prove nothing
        with pytest.raises(RewoundError, match="ends before what this worker has read"):
            await run.check({TP(clock, 0): 9})

    asyncio.run(read())
    assert failures == []

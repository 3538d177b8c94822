"""Every worker reads the whole clock log, and must hold the key that it names."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.structs import TopicPartition
from faust.types import TP
from hushstream.agents.clock.log import ClockLog
from hushstream.agents.stages.feedback import Feedback
from hushstream.agents.worker.log_follower import LogFollower
from hushstream.errors import EngineError
from hushstream.topics.config.model import Kafka
from hushstream.topics.events.decode import RawRecord
from hushstream.topics.records import Selected, Start, encode

from ...support import NAMES


class _Topic:
    topic = NAMES.clock
    partition = 0


class _Ends:
    """A client that says where logs begin."""

    def __init__(self, begins: dict[str, int]) -> None:
        self._begins = begins

    async def beginning_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self._begins.get(tp.topic, 0) for tp in places}


SELECTED = TopicPartition(NAMES.selected("p"), 0)


def following(windows: list[int]) -> LogFollower:
    """A follower that has read a selected topic with a record of each of these windows."""
    clock, feedback = ClockLog({"p": 4}), {"p": Feedback(1)}
    run = LogFollower(Kafka(), NAMES, clock, feedback, "", lambda: None, lambda error: None)
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


class _Far(_Ends):
    """A client that says where logs end."""

    async def end_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self._begins.get(tp.topic, 7) for tp in places}


def test_the_ends_of_what_shards_read_are_asked_for_and_forgotten_with_them():
    run, shards = following([0]), [TP("cells", 1), TP("raw", 0)]
    run.others = lambda: shards
    client = _Far({"cells": 4, SELECTED.topic: 1})
    ends = asyncio.run(run._look(client, {}))  # type: ignore[arg-type]
    assert ends == {SELECTED: 1} and run.ends == {shards[0]: 4, shards[1]: 7}
    del shards[1]
    asyncio.run(run._look(client, ends))  # type: ignore[arg-type]
    assert run.ends == {shards[0]: 4}


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

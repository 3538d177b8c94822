"""Publications have a producer of their own, so that batches show nothing of other steps."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import hushstream.agents.worker.shards.producers as producers
import pytest
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition
from hushstream.agents.kafka.private.of_aiokafka_producer import new_epochs
from hushstream.agents.stages.step import Step
from hushstream.agents.worker.shards.shard import Shard
from hushstream.deploy.broker import Broker
from hushstream.topics.records import Marker

from ..bench import Bench, Tally, applied, interval, unopened, until, visible

CONTROL = 0x20
TICK = 1  # a publication that is due long ago


class Publishing(Tally):
    """Takes one record a step; some are published, and the others only counted.

    Args:
        public: offsets of the records that are published.
    """

    def __init__(self, out: str, public: Sequence[int]) -> None:
        super().__init__(out)
        self._public = public

    def step(
        self, reader: Any, marker: Marker, records: Sequence[Any], fetched: int
    ) -> Step | None:
        at = marker.applied
        some = [one for one in records if one.offset == at]
        step = super().step(reader, marker, some, min(fetched, at + 1))
        if step is None:
            return None
        step.more = at + 1 < fetched
        if at in self._public:
            step.not_before = TICK
        else:
            step.out = []
        return step


def publishing(bench: Bench, public: Sequence[int], worker: str = "one") -> Shard:
    bench.apart = True
    shard = bench.shard(worker)
    shard._stage = Publishing(bench.out, public)
    return shard


def epochs(broker: Broker, topic: str, number: int) -> list[int]:
    """Producer epoch of each batch of records in a segment, which a fetch returns unchanged."""
    (segment,) = (broker.data / "kafka" / f"{topic}-0").glob("*.log")
    end = time.monotonic() + 60
    while len(found := list(_epochs(segment))) < number and time.monotonic() < end:
        time.sleep(0.1)
    return found


def _epochs(segment: Path) -> Iterator[int]:
    data, place = segment.read_bytes(), 0
    while place + 61 <= len(data):
        (length,) = struct.unpack_from(">i", data, place + 8)
        if length <= 0:
            return
        (attributes,) = struct.unpack_from(">h", data, place + 21)
        if not attributes & CONTROL:
            yield struct.unpack_from(">h", data, place + 51)[0]
        place += 12 + length


@pytest.mark.parametrize("apart", [True, False])
def test_batches_on_public_topics_do_not_count_the_other_steps(bench, broker, apart):
    """How many steps compute a release depends on how many keys there are."""

    async def run() -> bool:
        shard = publishing(bench, (0, 1, 6))
        if not apart:
            object.__setattr__(shard._spec, "publishing_id", "")
        await shard.open()
        shard.deliver(interval(0, 7))
        await applied(shard, 7)
        counts = new_epochs(shard._producers.steps)
        await shard.close()
        return counts

    assert asyncio.run(run())  # the brokers have transaction.version 2
    first, second, third = epochs(broker, bench.out, 3)
    assert (second - first, third - second) == ((1, 1) if apart else (1, 5))
    assert bench.published() == [b"0", b"1", b"6"] and bench.rows()[b"n"] == b"7"


@pytest.mark.parametrize("public", [(0, 1, 3), (0, 3)])
def test_an_owner_that_was_fenced_commits_no_step_of_either_kind(bench, public):
    async def run() -> None:
        before = publishing(bench, public)
        await before.open()
        before.deliver(interval(0, 1))
        await applied(before, 1)
        other = publishing(bench, public, "two")
        await other.open()
        assert other.applied == 1
        before.leave()  # it opens no more
        before.deliver(interval(1, 2))  # a step of the one kind or of the other
        await until(lambda: before.left)
        other.deliver(interval(1, 4))
        await applied(other, 4)
        await before.close()
        await other.close()

    asyncio.run(run())
    assert bench.published() == [b"%d" % n for n in public] and bench.failures == []


def test_a_transaction_waits_until_that_of_the_other_producer_has_ended(bench, monkeypatch):
    """So at most one can be forgotten by the brokers, and it is the last step."""
    asked: list[tuple[Any, TopicPartition]] = []

    async def run() -> None:
        shard = publishing(bench, (1, 2))
        await shard.open()
        steps, public = shard._producers.steps, shard._producers.public
        real = producers.ended

        async def ended(producer: Any, place: TopicPartition) -> None:
            asked.append((producer, place))
            await real(producer, place)

        monkeypatch.setattr(producers, "ended", ended)
        shard.deliver(interval(0, 5))
        await applied(shard, 5)
        place = TopicPartition(f"{bench.name}-log", 0)
        assert asked == [(steps, place), (public, place)]
        await shard.close()

    asyncio.run(run())
    assert bench.rows()[b"n"] == b"5" and bench.failures == []


def test_a_shard_opens_again_where_nobody_says_that_a_transaction_has_ended(bench, monkeypatch):
    failing = [KafkaError("silent")]
    real = producers.ended

    async def ended(producer: Any, place: TopicPartition) -> None:
        if failing:
            raise failing.pop()
        await real(producer, place)

    async def run() -> None:
        shard = publishing(bench, (1,))
        await shard.open()
        monkeypatch.setattr(producers, "ended", ended)
        shard.deliver(interval(0, 3))
        await until(lambda: bench.seeks == [1])
        shard.deliver(interval(1, 3))
        await applied(shard, 3)
        await shard.close()

    asyncio.run(run())
    assert bench.published() == [b"1"] and bench.rows()[b"n"] == b"3"
    assert bench.failures == []


def test_both_are_stopped_at_once(tmp_path, monkeypatch):
    """Each may take seconds where its topics are gone, and a worker has little time to end."""
    stopping: list[str] = []

    async def stop(producer: str) -> None:
        stopping.append(producer)
        await asyncio.sleep(0.05)
        assert sorted(stopping) == ["public", "steps"]

    monkeypatch.setattr(producers, "stop_quietly", stop)

    async def run() -> None:
        held = unopened(tmp_path).shard()._producers
        held.steps, held.public = "steps", "public"
        await held.stop()
        assert held.steps is None is held.public

    asyncio.run(run())


def test_an_end_is_waited_for(bench):
    async def run() -> None:
        shard = publishing(bench, (1,))
        await shard.open()
        producer, place = shard._producers.steps, TopicPartition(f"{bench.name}-log", 0)
        await producer.begin_transaction()
        await producer.send_and_wait(place.topic, b"", partition=0)
        waiting = asyncio.ensure_future(producers.ended(producer, place))
        await asyncio.sleep(0.5)
        assert not waiting.done()
        await producer.abort_transaction()
        await asyncio.wait_for(waiting, 30)
        await shard.close()

    asyncio.run(run())
    visible(bench.kafka, f"{bench.name}-log")

"""What a shard takes of its input, without a broker: no gap, no record twice, no more than fits.

Covers: agents/worker/shards/shard.py
"""

from __future__ import annotations

import asyncio

import hushstream.agents.kafka.backlog as backlog
import hushstream.agents.worker.shards.producers as producers
import pytest
from aiokafka.structs import TopicPartition
from faust.types import TP
from hushstream.agents.kafka.intervals import Interval
from hushstream.errors import EngineError

from ..bench import held, interval, unopened


@pytest.mark.parametrize("apart", [False, True])
def test_it_has_the_partitions_that_it_writes_looked_at_before_it_restores(
    tmp_path, monkeypatch, apart
):
    asked = []

    async def started(producer: object, *places: object) -> None:
        asked.append([producer, *places])
        if len(asked) > apart:
            raise EngineError("enough")

    monkeypatch.setattr(producers, "start_producer", started)
    monkeypatch.setattr(producers, "transactional_producer", lambda _, name, __: name)
    bench = unopened(tmp_path)
    bench.apart = apart
    shard = bench.shard()
    with pytest.raises(EngineError, match="enough"):
        asyncio.run(shard._producers.start(shard._answered))
    log, name = [TopicPartition(f"{bench.name}-log", 0)], bench.name
    if apart:
        public = [TopicPartition(bench.out, 0)]
        assert asked == [[f"{name}.id", log, (), shard._answered],
                         [f"{name}.public", log, public, shard._answered]]  # fmt: skip
    else:
        assert asked == [[f"{name}.id", log, [], shard._answered]]


def test_a_gap_in_the_input_is_never_taken_but_fetched_again(tmp_path):
    async def run() -> None:
        bench = unopened(tmp_path)
        shard = bench.shard()
        shard.deliver(interval(0, 3))
        shard.deliver(interval(5, 9))  # 3 and 4 were filtered out, or are still to come
        await asyncio.sleep(0)
        assert (held(shard), shard.wanted, bench.seeks) == ([0, 1, 2], 3, [3])

    asyncio.run(run())


def test_what_was_delivered_before_is_not_taken_twice(tmp_path):
    async def run() -> None:
        shard = unopened(tmp_path).shard()
        shard.deliver(interval(0, 5))
        shard.deliver(interval(0, 5))  # fetched under another generation
        shard.deliver(interval(3, 8))  # overlaps the first one
        assert (held(shard), shard.wanted) == (list(range(8)), 8)

    asyncio.run(run())


def test_an_empty_interval_moves_the_position(tmp_path):
    async def run() -> None:
        shard = unopened(tmp_path).shard()
        shard.deliver(Interval(TP("in", 0), 0, 7, []))
        assert (held(shard), shard.wanted) == ([], 7)

    asyncio.run(run())


def test_a_full_shard_pauses_its_partition(tmp_path, monkeypatch):
    monkeypatch.setattr(backlog, "MOST", 10)

    async def run() -> None:
        bench = unopened(tmp_path)
        shard = bench.shard()
        shard.deliver(interval(0, 8))
        assert bench.flows == []
        shard.deliver(interval(8, 20))
        shard.deliver(interval(20, 22))
        assert bench.flows == [False, False]  # again, since an interval came nevertheless
        shard._backlog.release(18)  # the stage has taken them
        assert bench.flows[2:] == [True] and held(shard) == [18, 19, 20, 21]

    asyncio.run(run())

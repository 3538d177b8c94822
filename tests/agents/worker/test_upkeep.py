"""A worker's upkeep: room for its tables, how far shards are behind, the beats in memory."""

from __future__ import annotations

import asyncio
import shutil
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import hushstream.agents.worker.upkeep as module
import pytest
from aiokafka.structs import TopicPartition as TP
from hushstream.agents.clock.log import ClockLog
from hushstream.agents.kafka.progress import Progress
from hushstream.agents.stages.topology import AGGREGATE, INGEST, Topology
from hushstream.agents.worker.metrics import OperatorMetrics
from hushstream.agents.worker.shards.shard import Shard
from hushstream.agents.worker.tables.left import LeftTables
from hushstream.agents.worker.upkeep import DiskRoom, Upkeep
from hushstream.errors import EngineError
from hushstream.topics.records import Beat, Marker


def free(metrics: OperatorMetrics) -> float:
    found = metrics.series.get_sample_value("hush_state_free_bytes")
    assert found is not None
    return found


def test_free_space_is_known_before_the_first_scrape(tmp_path: Path):
    metrics = OperatorMetrics()
    DiskRoom(tmp_path, metrics.room)
    assert free(metrics) > 0


def test_a_folder_that_was_deleted_ends_its_worker_with_advice(tmp_path: Path):
    folder, metrics = tmp_path / "w", OperatorMetrics()
    room = DiskRoom(folder, metrics.room)
    room.measure()  # a worker without shards has made none yet
    assert free(metrics) == 0
    folder.mkdir()
    room.measure()
    assert free(metrics) > 0
    shutil.rmtree(folder)
    with pytest.raises(
        EngineError, match="w was deleted while its worker runs: restart the worker"
    ):
        room.measure()


def test_a_shard_is_measured_against_the_end_of_its_topic_and_not_what_was_fetched() -> None:
    told: list[tuple[int, int]] = []

    class Measured:
        def __init__(self, partition: int) -> None:
            self.partition = partition

        async def measure(self, end: int) -> None:
            told.append((self.partition, end))

    upkeep = object.__new__(Upkeep)
    upkeep._shards = {TP("raw", n): Measured(n) for n in range(2)}  # type: ignore[misc]
    upkeep._follower = SimpleNamespace(ends={TP("raw", 0): 900_000})  # type: ignore[assignment]
    asyncio.run(upkeep._measure())
    assert told == [(0, 900_000), (1, 0)]


@pytest.mark.parametrize("opening", [True, False])
@pytest.mark.parametrize("stage", [INGEST, AGGREGATE, None])
def test_beats_that_no_shard_here_waits_for_leave_memory(stage: str | None, opening: bool):
    """A worker without a shard of a raw partition would keep those of months."""
    upkeep, shard = Upkeep.__new__(Upkeep), SimpleNamespace(tp=TP("t", 0), marker=Marker("g", 0))
    upkeep._clock = clock = ClockLog({"p": 24})
    upkeep._opening = cast(asyncio.Lock, SimpleNamespace(locked=lambda: opening))
    spec: Any = SimpleNamespace(stage=stage, pipeline=None)
    upkeep._topology = cast(Topology, SimpleNamespace(of=lambda *tp: spec))
    upkeep._shards = cast(dict[TP, Shard], {} if stage is None else {shard.tp: shard})
    for n in range(1_000):
        clock.append(2 * n, Beat(n, {"events": [n]}))
        shard.marker = Marker("g", 0, 2 * n)
        upkeep.prune_clock()
        assert clock.since(2 * n)  # also the first ones, of a young log
    kept = {INGEST: 1, AGGREGATE: 128, None: 128}[stage]
    assert len(clock.since(clock.base)) == (1_000 if opening else kept)


def test_tables_that_were_left_behind_are_looked_at_again_and_again(monkeypatch):
    """Beside the watched task, which moves on while a shard opens for long."""
    upkeep, looks, failed = Upkeep.__new__(Upkeep), list[int](), list[BaseException]()
    moves, enough = [0], asyncio.Event()

    def moved() -> None:
        moves[0] += 1
        if moves[0] % 5 == 0:
            enough.set()

    async def run() -> None:
        ended = asyncio.Event()

        async def empty() -> None:
            looks.append(moves[0])
            enough.clear()
            await enough.wait()
            if len(looks) == 3:
                raise EngineError("enough")

        def fail(error: BaseException) -> None:
            failed.append(error)
            ended.set()

        upkeep._left = cast(LeftTables, SimpleNamespace(empty=empty))
        task = asyncio.ensure_future(upkeep.run(lambda: None, fail))
        async with asyncio.timeout(60):
            await ended.wait()
        task.cancel()
        await asyncio.wait([task])

    upkeep._forgetting = upkeep._emptying = None
    upkeep._trim_seconds, upkeep.progress = 0.0, cast(Progress, SimpleNamespace(moved=moved))
    monkeypatch.setattr(module, "LEFT_SECONDS", 0.0)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.001)
    asyncio.run(run())
    assert len(looks) >= 3 and str(failed[0]) == "enough"
    assert all(later > sooner for sooner, later in pairwise(looks))  # one after the other

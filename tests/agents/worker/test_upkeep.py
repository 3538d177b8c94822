"""The room for a worker's tables, measured from the beginning; how far shards are behind."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from aiokafka.structs import TopicPartition as TP
from hushstream.agents.worker.metrics import OperatorMetrics
from hushstream.agents.worker.upkeep import DiskRoom, Upkeep
from hushstream.errors import EngineError


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

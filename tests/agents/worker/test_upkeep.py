"""The room for a worker's tables: measured from the beginning, and missed when it is gone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hushstream.agents.worker.metrics import OperatorMetrics
from hushstream.agents.worker.upkeep import DiskRoom
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

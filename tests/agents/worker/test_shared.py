"""What shards share stays within the limits of the configuration."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hushstream.agents.worker.metrics import OperatorMetrics
from hushstream.agents.worker.shared import ALARMS, SNAPSHOTS, share
from hushstream.topics.config.model import Engine, Kafka
from prometheus_client import generate_latest

from ...support import NAMES

LOSS = 'hush_loss_alarm{cause="late",pipeline="p"} 1.0'


def made(folder: Path, engine: Engine, metrics: OperatorMetrics | None = None) -> Any:
    config = SimpleNamespace(engine=engine, kafka=Kafka(bootstrap="127.0.0.1:1"))
    setup: Any = SimpleNamespace(config=config, names=NAMES, data_dir=folder, secret=bytes(32))
    return share(setup, metrics or OperatorMetrics(), str)


def test_shards_share_the_memory_that_is_configured_and_no_snapshots_unless_asked(tmp_path):
    found = made(tmp_path, Engine(input_mb=8, transaction_timeout=9_000_000))
    assert found.room.share == 8 << 20 and found.transaction_timeout_ms == 9_000
    assert found.genesis == NAMES.genesis and found.copies is None
    kept = made(tmp_path, Engine(snapshots=f"file://{tmp_path}/store"))
    assert kept.copies is not None and kept.copies._folder == tmp_path / SNAPSHOTS


def test_an_alarm_about_losses_is_a_metric_and_a_line_of_a_file(tmp_path):
    metrics = OperatorMetrics()
    found = made(tmp_path, Engine(loss_share=Fraction(1, 10)), metrics)
    found.losses.count({("p", "records"): 10_000, ("p", "late"): 9_000})
    found.losses.look()
    assert LOSS in generate_latest(metrics.series).decode()
    assert "late" in (tmp_path / ALARMS).read_text("utf-8")

"""Disk usage of a deployment on a local broker, and settings that size its segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from _cluster import Local
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

# Settings that compress hours of a broker's work into seconds: segments of 1 MiB, not 64 MiB, and
# tombstones kept for a minute, not a day.
SEGMENTS = {
    "segment.bytes": str(1 << 20), "segment.ms": "20000", "max.compaction.lag.ms": "20000",
    "delete.retention.ms": "60000", "file.delete.delay.ms": "1000",
}  # fmt: skip
FEW = 8  # fewer measurements have no quarters
BROKER = {"log.cleaner.backoff.ms": "1000", "log.retention.check.interval.ms": "2000"}


def resize(run: Local, settings: Mapping[str, str], prefix: str | None = None) -> None:
    """Change settings of all topics with a prefix; by default, of the internal ones."""
    client = AdminClient({"bootstrap.servers": run.bootstrap})
    begins = run.names.base if prefix is None else prefix
    changes = [
        ConfigResource(
            ResourceType.TOPIC,
            topic,
            incremental_configs=[
                ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
                for name, value in settings.items()
            ],
        )
        for topic in run.cluster.topics()
        if topic.startswith(begins)
    ]
    for future in client.incremental_alter_configs(changes).values():
        future.result(20)


def logs(data: Path, prefix: str) -> dict[str, int]:
    """Bytes of logs in a broker's folder, by partition, for topics with a prefix."""
    return {
        p.name: _size(p.glob("*.log")) for p in data.rglob(f"{prefix}*") if p.is_dir()
    }  # fmt: skip


def folder(path: Path) -> int:
    """Bytes of all files below a folder."""
    return _size(path.rglob("*"))


def tables(path: Path) -> int:
    """Bytes of a worker's state folder, without what a fault has filled its disk with."""
    return _size(file for file in path.rglob("*") if file.name != "filler")


def growth(
    seconds: Sequence[float], seen: Mapping[str, Sequence[float]]
) -> dict[str, dict[str, float | None]]:
    """How each figure has grown: slope per hour, and means of the second and the last quarter.

    Args:
        seconds: times of measurement, from the beginning on.
        seen: each figure at these times.

    Returns:
        ``second``, ``last``, ``ratio`` and ``slope`` by figure; nothing after few measurements.
    """
    if len(seconds) < FEW:
        return {}
    at = np.array(seconds) / 3600
    second = (at >= at[-1] / 4) & (at < at[-1] / 2)
    last, late = at >= 3 * at[-1] / 4, at >= at[-1] / 4
    found: dict[str, dict[str, float | None]] = {}
    for name, values in seen.items():
        figures = np.array(values)
        before, after = float(figures[second].mean()), float(figures[last].mean())
        found[name] = {
            "second": round(before, 2), "last": round(after, 2),
            "ratio": round(after / before, 3) if before else None,
            "slope": round(float(np.polyfit(at[late], figures[late], 1)[0]), 2),
        }  # fmt: skip
    return found


def _size(files: object) -> int:
    total = 0
    for file in files:  # type: ignore[attr-defined]
        try:
            total += file.stat().st_size if file.is_file() else 0
        except FileNotFoundError:  # deleted meanwhile, as RocksDB and brokers do
            continue
    return total

"""Disk usage of a deployment on a local broker, and settings that size its segments."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

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


def _size(files: object) -> int:
    total = 0
    for file in files:  # type: ignore[attr-defined]
        try:
            total += file.stat().st_size if file.is_file() else 0
        except FileNotFoundError:  # deleted meanwhile, as RocksDB and brokers do
            continue
    return total

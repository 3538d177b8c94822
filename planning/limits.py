"""Limits, in words: the part that saturates first as a load grows."""

from __future__ import annotations

from typing import NamedTuple

from .size import Load, Size

BROKER_BYTES = 100e6  # per second written to the disks of one broker, assumed
HALF = 0.5  # share of the work from which frames take more than events


class Limit(NamedTuple):
    """A part that can saturate."""

    room: float  # factor by which the load may grow until then
    words: str  # the part, and the remedy


def limits(load: Load, found: Size, brokers: int) -> list[Limit]:
    """List the parts that can saturate, the earliest first; ``brokers`` share the topics."""
    return sorted(_each(load, found, brokers))


def _each(load: Load, found: Size, brokers: int) -> list[Limit]:
    shard = load.rate * found.worker_us / 1e6 / found.partitions
    frames = found.frame_cores / found.worker_cores if found.worker_cores else 0.0
    disks = found.written + load.replicas * found.raw
    parts = [
        Limit(_room(1.0, shard), "one shard's core: more partitions, if the deployment is new"),
        Limit(_room(HALF, frames), "frames between the stages: longer engine.beat_interval, or "
                                   "fewer engine.cells_partitions"),
        Limit(_room(load.every, found.trigger), "triggers, which read all keys of a cells "
                                                "partition: more engine.cells_partitions"),
        Limit(_room(brokers * BROKER_BYTES, disks), "the brokers' disks, at an assumed 100 MB/s "
                                                    "each: more brokers"),
    ]  # fmt: skip
    if found.known < 1:
        words = "memory for rows of units, so that some are read from disk: engine.unit_cache_mb"
        parts.append(Limit(found.known, words))
    return parts


def _room(most: float, now: float) -> float:
    return most / now if now > 0 else float("inf")

"""Costs of an event, a row and a process, from benchmarks on one machine.

Times are CPU on two cores that run nothing else but the broker; those of steps and fetched lists
come from a machine with other work.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Costs(NamedTuple):
    """Costs of one event, unit, key and frame; `MEASURED_BY` names the benchmark of each figure."""

    direct_us: float  # worker CPU per event with a declared partitioner, microseconds
    rekeyed_us: float  # worker CPU per event re-partitioned by unit, microseconds
    known_us: float  # added if there are many units, with their rows in memory
    disk_us: float  # added if their rows are read from disk
    beside: float  # factor of all worker times with two or more processes
    broker_direct_us: float  # leaders' CPU per event with a declared partitioner, microseconds
    broker_rekeyed_us: float  # leaders' CPU per event re-partitioned by unit, microseconds
    frame_us: float  # CPU of writing and reading a frame with hardly any sums, microseconds
    step_us: float  # CPU of a step, however few events it takes, microseconds
    idle_us: float  # CPU of an idle process, microseconds per second
    fetch_us: float  # CPU of a fetch that finds few events, microseconds
    trigger_us: float  # CPU of a trigger per key that it reads, microseconds
    restore_us: float  # CPU per row restored from a changelog, microseconds
    event_bytes: float  # of an event in the units topic, without its key
    sum_bytes: float  # of a partial sum in the cells topic, without its key
    row_bytes: float  # of a unit's row in a changelog, with its record and without pairs
    row_pair_bytes: float  # of each of its pairs there
    key_row_bytes: float  # of a key per release in the aggregate changelog, without the key
    frame_bytes: float  # of a frame, without its sums
    process_bytes: float  # resident memory of a process with few units and keys
    shard_bytes: float  # additional memory per shard
    sum_held_bytes: float  # additional memory per key that is summed or released
    known_bytes: float  # additional memory per unit's row
    user_bytes: float  # disk of a unit without pairs, in a merged table
    pair_bytes: float  # disk of each of its pairs
    key_bytes: float  # disk of a key
    table_bytes: float  # disk of a table without rows


COSTS = Costs(
    direct_us=2.25, rekeyed_us=3.63, known_us=1.5, disk_us=4.3, beside=1.15,
    broker_direct_us=0.59, broker_rekeyed_us=0.83, frame_us=81,
    step_us=5_000, idle_us=7_000, fetch_us=1_000, trigger_us=1.5, restore_us=0.4,
    event_bytes=33.7, sum_bytes=13.3, row_bytes=37.2, row_pair_bytes=5, key_row_bytes=56.4,
    frame_bytes=834, process_bytes=3.72e8, shard_bytes=1.5e6, sum_held_bytes=875,
    known_bytes=49, user_bytes=16.5, pair_bytes=5.89, key_bytes=12.0, table_bytes=62_000,
)  # fmt: skip

MEASURED_BY: Mapping[str, str] = MappingProxyType({
    "direct_us": "costs.py: direct_us",
    "rekeyed_us": "costs.py: rekeyed_us",
    "known_us": "units.py: event_many",
    "disk_us": "units.py: many_on_disk",
    "beside": "processes.py: two over one",
    "broker_direct_us": "costs.py: broker_direct_us",
    "broker_rekeyed_us": "costs.py: broker_rekeyed_us",
    "frame_us": "costs.py: frame_us",
    "step_us": "partitions.py: cpu",
    "idle_us": "idle.py: percent",
    "fetch_us": "partitions.py: cpu",
    "trigger_us": "costs.py: trigger_us",
    "restore_us": "restore.py: cpu",
    "event_bytes": "size.py: units",
    "sum_bytes": "size.py: cells",
    "row_bytes": "size.py: rows",
    "row_pair_bytes": "size.py: rows",
    "key_row_bytes": "size.py: sums",
    "frame_bytes": "costs.py: frame_bytes",
    "process_bytes": "size.py: memory",
    "shard_bytes": "partitions.py: memory",
    "sum_held_bytes": "size.py: memory",
    "known_bytes": "units.py: memory_bytes",
    "user_bytes": "costs.py: user_bytes",
    "pair_bytes": "costs.py: pair_bytes",
    "key_bytes": "costs.py: key_bytes",
    "table_bytes": "size.py: disk",
})  # fmt: skip

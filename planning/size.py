"""Partitions, cores, memory, disk and traffic that a load needs, from measured costs.

The model is linear where the engine is: each event, row, key, step and frame has a cost. Steps
follow from the number of shards and their rests, and each writes a frame to every partition of the
next stage.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ..agents.worker.shards.rest import ENOUGH, kept, paused
from ..errors import ParameterError
from .costs import Costs

BUSY = 0.7  # share of a core that a steady load may take: the rest is for catching up
SPREAD = 3  # partitions per process, so that one process more or less still shares them evenly
FEW = 40  # frames that a step of the bound stage takes while a trigger waits, as it does not rest
STEP_BYTES = 4 * 2**20  # of small frames that a step of the bound stage takes
FRAMES = 48  # frames that such a step takes in any case
FULL = 40_000  # events of a step where the cost of an event is measured, which includes the step
TOGETHER = 40_000  # events whose sums such a step merges
TRIGGERED = 2  # steps of an aggregate shard at a small trigger: it computes, and it publishes
SUMS = 400_000  # sums that an aggregate shard holds in memory
MOST = 100_000  # processes; if these are not enough, no number is


class Load(NamedTuple):
    """Load of a deployment, and its settings."""

    users: float  # units active in one epoch of a pipeline
    keys: float  # keys in one window, all of which a trigger reads in the worst case
    rate: float  # events per second
    pairs: float = 3.0  # keys of a unit in an epoch, on average
    raw_bytes: float = 100.0  # of an event as stored in the raw topic
    key_text: float = 16.0  # bytes of a key
    direct: int = 1  # pipelines whose input declares its partitioner
    rekeyed: int = 0  # all others
    replicas: int = 3  # of internal topics
    every: float = 3600.0  # seconds between two triggers
    # retention of units topics in seconds; 0: they are trimmed at once
    keep: float = 7 * 86_400.0
    beat: float = 1.0  # seconds between two beats
    step: int = 40_000  # events of one step, at most
    # bytes of memory for rows of units, per process; None: enough for all of them
    unit_cache: float | None = None
    standbys: int = 0  # copies of each table, on other processes
    snapshots: float = 0.0  # seconds between two copies in an object store; 0: no copies
    # bytes of records waiting for their step, per process, while it catches up
    waiting: float = 256.0 * 2**20
    processes: int | None = None  # None: as many as needed
    partitions: int | None = None  # of raw topics; None: `SPREAD` for each process
    units: int | None = None  # partitions of units topics; None: as many as of raw topics
    cells: int | None = None  # partitions of cells topics; None: `SPREAD` for each process


class Topics(NamedTuple):
    """Bytes of one replica for each event, by kind of topic."""

    units: float
    cells: float
    rows: float  # changelogs of units' rows
    sums: float  # changelogs of aggregate

    @property
    def all(self) -> float:
        """Bytes of all internal topics."""
        return sum(self)


class Size(NamedTuple):
    """Needs of a deployment."""

    processes: int  # of workers, each of which uses one core
    partitions: int  # of raw topics
    units: int  # partitions of units topics
    cells: int  # partitions of cells topics
    worker_us: float  # CPU of workers for an event, microseconds
    worker_cores: float  # cores that workers use
    frame_cores: float  # of these, for frames alone
    step_cores: float  # of these, for steps without their events and frames
    broker_cores: float  # broker cores for internal topics, with replicas
    memory: float  # bytes of all processes, while they catch up
    unit_cache: float  # bytes of memory for rows of units, per process
    known: float  # share of units whose rows are in memory
    disk: float  # bytes of local tables, merged
    shards: int  # of all processes; each has a table
    stored: float  # bytes of snapshots in an object store, one of each table
    sent: float  # bytes per second to the object store
    topics: Topics  # bytes of an event
    raw: float  # bytes per second of the raw topic, one replica
    written: float  # bytes per second to internal topics, with replicas
    # bytes of units topics that are kept, and of changelogs once compacted, with replicas
    kept: float
    frames: float  # per second, between the stages
    steps: float  # per second, of all shards
    trigger: float  # seconds of work of a trigger at each of the cells partitions
    restore: float  # seconds of work to restore all tables of one process


def distinct(draws: float, among: float) -> float:
    """Expected number of distinct values in ``draws`` draws from ``among`` equally likely ones."""
    return 0.0 if among <= 0 else -among * math.expm1(-draws / among)


def size(load: Load, cost: Costs) -> Size:
    """Compute what a load needs, from unit costs.

    All users and keys are assumed to be equally busy, which is the worst case for bytes: if some
    are busier, more events of a step share a row or a sum. Every pipeline is charged the whole cost
    of an event, although pipelines of one input share its decoding.

    Raises:
        ParameterError: a figure is negative, or no number of processes is enough.
    """
    _check(load)
    if load.processes is not None:
        return _sized(load, cost, load.processes)
    processes = 1
    # More processes have more memory for rows, so fewer rows are read from disk; but they need more
    # partitions, and each step writes a frame to each of them.
    while (needed := _needed(_sized(load, cost, processes))) > processes:
        processes = min(needed, 2 * processes)
        if processes > MOST:
            raise ParameterError("beat", load.beat, "longer: frames would cost more than events")
    return _sized(load, cost, processes)


def _needed(found: Size) -> int:
    return max(math.ceil(found.worker_cores / BUSY), 1)


class _Flow(NamedTuple):
    """Frames, steps and bytes of one pipeline."""

    frames: float  # for each event
    steps: float  # of its own shards, for each event
    topics: Topics


class _Partitions(NamedTuple):
    """Numbers of partitions."""

    raw: int
    units: int
    cells: int


def _shards(load: Load, parts: _Partitions) -> int:
    pipelines = load.direct + load.rekeyed
    return parts.raw + load.rekeyed * parts.units + pipelines * parts.cells


def _taken(load: Load, parts: _Partitions, processes: int) -> float:
    """Events of a step: those since the previous step, up to the limit if there is a backlog.

    Shards rest between two steps until enough events have come.
    """
    each = load.rate / parts.raw
    rested = min(each * kept(_shards(load, parts) / processes), ENOUGH / max(load.raw_bytes, 1.0))
    return min(float(load.step), max(each * load.beat, rested, 1.0))


def _flow(load: Load, cost: Costs, rekeyed: bool, parts: _Partitions, taken: float) -> _Flow:
    """Follow the events of one pipeline through its stages; ``taken`` of them are a step's."""
    unit_frames, event, bound, shards, steps = 0.0, 0.0, taken, parts.raw, 0.0
    if rekeyed:
        shards = parts.units
        unit_frames = min(shards / taken, 1.0)
        event = cost.event_bytes + unit_frames * cost.frame_bytes
        most = max(STEP_BYTES / event, FRAMES * taken / shards)
        bound = min(most, taken * parts.raw / shards)  # a frame of each shard of ingest
        steps = 1 / bound
    together = min(bound, TOGETHER) if rekeyed else bound
    sums = distinct(together, load.keys) / together
    rows = distinct(bound, load.users / shards) / bound
    cell_frames = min(parts.cells / together, sums)
    topics = Topics(
        units=event,
        cells=sums * (cost.sum_bytes + load.key_text) + cell_frames * cost.frame_bytes,
        # Each event's row has the unit's earlier keys, half of all on average, and the new key.
        rows=rows * (cost.row_bytes + (1 + load.pairs / 2) * cost.row_pair_bytes),
        sums=_changed(load) * (cost.key_row_bytes + load.key_text),
    )
    return _Flow(unit_frames + cell_frames, steps, topics)


class _Asked(NamedTuple):
    """Steps and frames that triggers ask for, per second."""

    steps: float
    frames: float  # beyond those of steps that rest


def _triggered(load: Load, parts: _Partitions) -> _Asked:
    pipelines = load.direct + load.rekeyed
    turns = max(parts.raw / FEW, 1.0)  # steps of each shard of the bound stage
    released = parts.raw + TRIGGERED * pipelines * parts.cells
    frames = load.rekeyed * parts.units * (turns - 1) * parts.cells / load.every
    steps = (released + load.rekeyed * parts.units * turns) / load.every
    return _Asked(steps, min(frames, load.rate))


def _fetched(load: Load, parts: _Partitions, processes: int, cores: float) -> float:
    """Fetches per second, beyond those of a busy process, which find long lists.

    Args:
        cores: all that processes use for other work.
    """
    found = min(load.rate, processes / paused(kept(_shards(load, parts) / processes)))
    return found * max(1 - cores / processes / BUSY, 0.0)


def _changed(load: Load) -> float:
    """Changed keys that a trigger finds, per event."""
    events = load.rate * load.every
    return distinct(events, load.keys) / events if events else 0.0


def _sized(load: Load, cost: Costs, processes: int) -> Size:
    pipelines = load.direct + load.rekeyed
    spread = SPREAD * processes
    parts = _Partitions(
        load.partitions or spread, load.units or load.partitions or spread, load.cells or spread
    )
    taken = _taken(load, parts, processes)
    flows = [(_flow(load, cost, True, parts, taken), load.rekeyed),
             (_flow(load, cost, False, parts, taken), load.direct)]  # fmt: skip
    topics = Topics(*(sum(n * flow.topics[kind] for flow, n in flows) for kind in range(4)))
    frames = sum(n * flow.frames for flow, n in flows)
    steps = load.rate * (1 / taken + sum(n * flow.steps for flow, n in flows))
    asked = _triggered(load, parts)
    steps += asked.steps
    shards = _shards(load, parts)
    rows = load.users * pipelines
    # A standby is one more table in another process, which applies each changed row.
    copies = min(load.standbys, processes - 1)
    mine = (1 + copies) * rows * cost.known_bytes / processes
    held = pipelines * min(load.keys, SUMS * parts.cells)
    cache = mine if load.unit_cache is None else load.unit_cache
    known = 1.0 if mine == 0 else min(cache / mine, 1.0)
    row = known * cost.known_us + (1 - known) * cost.disk_us
    base = load.direct * cost.direct_us + load.rekeyed * cost.rekeyed_us
    beside = cost.beside if processes > 1 else 1.0
    frame_us = beside * cost.frame_us
    if load.rate:
        frames += asked.frames / load.rate
    copied = copies * pipelines * cost.restore_us
    included = load.rate / FULL * (1 + load.rekeyed)
    step_cores = max(steps - included, 0.0) * beside * cost.step_us / 1e6
    used = beside * (base + pipelines * row + copied) + frames * frame_us
    cores = load.rate * used / 1e6 + step_cores + processes * cost.idle_us / 1e6
    cores += _fetched(load, parts, processes, cores) * beside * cost.fetch_us / 1e6
    leader = load.direct * cost.broker_direct_us + load.rekeyed * cost.broker_rekeyed_us
    disk = (rows * (cost.user_bytes + load.pairs * cost.pair_bytes)
            + pipelines * load.keys * cost.key_bytes)  # fmt: skip
    logged = (rows * (cost.row_bytes + load.pairs * cost.row_pair_bytes)
              + pipelines * load.keys * (cost.key_row_bytes + load.key_text))  # fmt: skip
    return Size(
        processes=processes,
        partitions=parts.raw,
        units=parts.units,
        cells=parts.cells,
        worker_us=1e6 * cores / load.rate if load.rate else 0.0,
        worker_cores=cores,
        frame_cores=load.rate * frames * frame_us / 1e6,
        step_cores=step_cores,
        broker_cores=load.replicas * load.rate * leader / 1e6,
        memory=processes * (cost.process_bytes + load.waiting + min(cache, mine))
        + held * cost.sum_held_bytes
        + (1 + copies) * shards * cost.shard_bytes,
        unit_cache=cache,
        known=known,
        disk=(1 + copies) * (disk + shards * cost.table_bytes),
        shards=shards,
        stored=disk if load.snapshots else 0.0,
        sent=disk / load.snapshots if load.snapshots else 0.0,
        topics=topics,
        raw=load.rate * load.raw_bytes,
        written=load.replicas * load.rate * topics.all,
        kept=load.replicas * (load.keep * load.rate * topics.units + logged),
        frames=load.rate * frames,
        steps=steps,
        trigger=cost.trigger_us * load.keys / parts.cells / 1e6,
        restore=(rows + pipelines * load.keys) / processes * cost.restore_us / 1e6,
    )


def _check(load: Load) -> None:
    for name, value in load._asdict().items():
        if value is not None and not 0 <= value < math.inf:
            raise ParameterError(name, value, "a finite number, not negative")
    if load.direct + load.rekeyed < 1:
        raise ParameterError("pipelines", 0, "at least one")
    for name in ("replicas", "step", "every", "processes", "partitions", "units", "cells"):
        given = getattr(load, name)
        if given is not None and given < (1 if name != "every" else 1e-3):
            raise ParameterError(name, given, "at least 1")

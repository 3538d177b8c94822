"""Parts that all shards of one worker share, within the limits of its configuration."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from rocksdict import Cache

from ...topics.config.model import Kafka
from ..clock.wall_time import WallClock
from ..kafka.backlog import Flight, Room
from ..snapshots.copies import Copies
from ..snapshots.objects import Objects
from ..state.units.room import UnitRoom
from .health.losses import LossWatch
from .metrics import OperatorMetrics
from .setup import WorkerSetup

IN_FLIGHT = 4  # times `step_bytes`: limit of the steps being computed or committed at once
SNAPSHOTS = "snapshots"  # folder within the worker's, for snapshots on their way
ALARMS = "alarms.log"  # file in the worker's folder, inside the trust boundary


@dataclass(frozen=True)
class Shared:
    """The parts that all shards of one worker share.

    Attributes:
        write_buffer_bytes: size of each table's write buffer.
        wall: wall time, never behind the clock log.
        losses: alarms about lost records.
        room: memory for records that wait for their step.
        flight: memory for steps that are being computed or committed.
        units: memory for rows of units that are on disk.
        published: called with the pipeline of each release of a shard that has become readable.
        copies: snapshots of tables; None: no store is configured.
    """

    kafka: Kafka
    genesis: str
    data_dir: Path
    cache: Cache
    write_buffer_bytes: int
    executor: Executor
    metrics: OperatorMetrics
    transaction_timeout_ms: int
    wall: WallClock = field(default_factory=WallClock)
    losses: LossWatch | None = None
    room: Room = field(default_factory=lambda: Room(1 << 28))
    flight: Flight = field(default_factory=lambda: Flight(1 << 25))
    units: UnitRoom = field(default_factory=lambda: UnitRoom(1 << 24))
    published: Callable[[str], object] = str
    copies: Copies | None = None


def share(
    setup: WorkerSetup, metrics: OperatorMetrics, published: Callable[[str], object]
) -> Shared:
    """Make what all shards of a worker share, within the limits of its configuration."""
    engine = setup.config.engine

    def lost(pipeline: str, cause: str, alarm: bool) -> None:
        metrics.loss.labels(pipeline=pipeline, cause=cause).set(alarm)

    return Shared(
        kafka=setup.config.kafka,
        genesis=setup.names.genesis,
        data_dir=setup.data_dir,
        cache=Cache(engine.block_cache_mb * 1024 * 1024),
        write_buffer_bytes=engine.write_buffer_mb * 1024 * 1024,
        units=UnitRoom(engine.unit_cache_mb * 1024 * 1024),
        executor=ThreadPoolExecutor(2, thread_name_prefix="shard"),
        metrics=metrics,
        transaction_timeout_ms=engine.transaction_timeout // 1000,
        room=Room(engine.input_mb * 1024 * 1024),
        flight=Flight(IN_FLIGHT * engine.step_bytes),
        losses=LossWatch(engine.loss_share, setup.data_dir / ALARMS, lost),
        published=published,
        copies=_copies(setup),
    )


def _copies(setup: WorkerSetup) -> Copies | None:
    if not (url := setup.config.engine.snapshots):
        return None
    folder = setup.data_dir / SNAPSHOTS
    return Copies(Objects(url), setup.secret, setup.names.genesis, folder)

"""Periodic work of a worker: measure, drop old feedback and tables, trim internal topics."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from aiokafka.structs import TopicPartition as TP
from prometheus_client import Gauge

from ...errors import EngineError, HushError
from ...topics.config.model import Kafka
from ...topics.records import Marker
from ..clock.log import RECENT
from ..kafka.cluster import Cluster
from ..kafka.patience import OUTAGES, asked_to_end
from ..kafka.progress import Progress
from ..kafka.trim import Trimmer
from ..stages.feedback import needed_from
from ..stages.topology import BOUND, INGEST, VIEW, Topology
from .forgetting import Forgetting
from .health.losses import LossWatch
from .health.topics import LOOK_SECONDS as TOPICS_SECONDS
from .health.topics import Inflow, TopicWatch
from .log_follower import LogFollower
from .setup import WorkerSetup
from .shards.shard import Shard
from .tables.left import LeftTables

MEASURE_SECONDS = 30.0
LOOK_SECONDS = 1.0
FORGET_SECONDS = 5.0
LEFT_SECONDS = 3600.0


class ClockTrim:
    """Deletes records that the clock's owner no longer needs, and feedback of earlier windows."""

    def __init__(self, kafka: Kafka, follower: LogFollower) -> None:
        self._trimmer = Trimmer(kafka)
        self._follower = follower

    async def __call__(self, floors: Mapping[TP, int], first: Mapping[str, int]) -> None:
        """Trim each log up to its place in the previous call, in a thread; see `Trimmer.round`."""
        due = {**floors, **self._follower.below(first)}
        await self._trimmer.round(due, self._follower.check)


class DiskRoom:
    """The free space of the disk that a worker's folder lies on; measured when this is made.

    Args:
        folder: the worker's folder.
        gauge: reports the space to the operator; at 0, an alert would see it vanish.
    """

    def __init__(self, folder: Path, gauge: Gauge) -> None:
        self._folder, self._gauge = folder, gauge
        self._there = folder.is_dir()
        self.measure()

    def measure(self) -> None:
        """Report the free space; if it cannot be read, the last figure stays.

        Raises:
            EngineError: the folder was there, and is gone.
        """
        try:
            self._gauge.set(shutil.disk_usage(self._folder).free)
            self._there = True
        except FileNotFoundError:
            if self._there and not self._folder.is_dir():
                raise EngineError(
                    f"the folder {self._folder} was deleted while its worker runs: restart the "
                    "worker, which restores its tables from their changelogs, and see that nothing "
                    "else deletes what lies in engine.data_dir"
                ) from None
        except OSError:
            pass


class Upkeep:
    """Periodic work of one worker.

    Args:
        shards: open shards of this worker; changes as partitions come and go.
        follower: checks whether the cluster still has the history that was read; feedback of
            windows that all shards here have finished is dropped.
        opening: lock held while shards open, since they may need what would be dropped.
        room: reports the free space of the disk to the operator.
        copies: lists the folders of tables that stand by here.

    Attributes:
        progress: progress of this task, and thus of its event loop.
        answers: progress that moves whenever the cluster has answered.
    """

    def __init__(
        self,
        setup: WorkerSetup,
        topology: Topology,
        shards: Mapping[TP, Shard],
        follower: LogFollower,
        opening: asyncio.Lock,
        losses: LossWatch | None,
        room: Gauge,
        copies: Callable[[], Collection[Path]],
    ) -> None:
        self._topology = topology
        self._shards = shards
        clock = self._clock = follower.clock
        self._follower = follower
        self._opening = opening
        self.progress = Progress("the event loop")
        self._losses = losses
        self._room = DiskRoom(setup.data_dir, room)
        self._left = LeftTables(
            setup.data_dir / setup.names.genesis, opening,
            lambda: {*copies(), *(shard.table.path for shard in shards.values())},
        )  # fmt: skip
        self.inflow = Inflow(
            lambda tp: clock.reached(*tp), follower.ends, lambda: follower.progress.away
        )
        self._topics = TopicWatch(Cluster(setup.config.kafka), setup.deployment, setup.ledger)
        self.answers = self._topics.progress
        self._emptying: asyncio.Task[None] | None = None
        self._trimmer = Trimmer(setup.config.kafka)
        self._trim_seconds = setup.config.engine.trim_interval / 1e6
        self._keep_units = setup.config.engine.keep_units
        self._forgetting: Forgetting | None = None
        if setup.ratchet is not None:
            made = setup.deployment.pipelines
            self._forgetting = Forgetting(
                setup.config.kafka, setup.names, made, setup.ratchet, clock
            )

    async def run(
        self, crash: Callable[[], BaseException | None], fail: Callable[[BaseException], None]
    ) -> None:
        """Look after a started worker, until cancelled.

        Args:
            crash: returns why Faust's own services have stopped; None while they run.
        """
        try:
            await asyncio.gather(self._look_after(crash, fail), self._forget_keys(fail))
        finally:
            if self._emptying is not None:
                self._emptying.cancel()

    async def _empty_left(self, fail: Callable[[BaseException], None]) -> None:
        try:
            await self._left.empty()
        except Exception as error:
            fail(error)

    async def _forget_keys(self, fail: Callable[[BaseException], None]) -> None:
        while self._forgetting is not None:
            await asyncio.sleep(FORGET_SECONDS)
            try:
                await self._forgetting.round()
            except OUTAGES:
                if asked_to_end():
                    raise  # otherwise the next round tries again
            except HushError as error:
                fail(error)

    async def watch_topics(self, fail: Callable[[BaseException], None]) -> None:
        """Check for deleted topics, until cancelled."""
        while True:
            await asyncio.sleep(TOPICS_SECONDS)
            try:
                await asyncio.to_thread(self._topics.look)
            except HushError as error:
                fail(error)

    async def _look_after(
        self, crash: Callable[[], BaseException | None], fail: Callable[[BaseException], None]
    ) -> None:
        measured = trimmed = looked = emptied = time.monotonic()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.progress.moved()
            now = time.monotonic()
            if now - looked > TOPICS_SECONDS:
                looked = now
                self.inflow.look(self._fetching())
            if now - measured > MEASURE_SECONDS:
                measured = now
                await self._measure()
                try:
                    self._room.measure()
                except EngineError as gone:
                    fail(gone)
                if self._losses is not None:
                    self._losses.look()
                self.forget_feedback()
            if self._trim_seconds and now - trimmed > self._trim_seconds:
                trimmed = now
                await self._trim()
            if now - emptied > LEFT_SECONDS and (self._emptying is None or self._emptying.done()):
                emptied = now
                # Beside this task, whose progress is watched: a shard may be opening for long.
                emptying = self._empty_left(fail)
                self._emptying = asyncio.create_task(emptying, name="emptying old tables")
            if (error := crash()) is not None:
                fail(error)

    async def _measure(self) -> None:
        """Report how far each shard is behind the end of its input, and the size of its table."""
        ends = self._follower.ends
        await asyncio.gather(*(s.measure(ends.get(tp, 0)) for tp, s in self._shards.items()))

    def _fetching(self) -> dict[TP, int]:
        """The next offset of each partition that should be fetched."""
        return {tp: shard.wanted for tp, shard in self._shards.items() if not shard.paused}

    def prune_clock(self) -> None:
        """Drop beats that all ingest shards here have passed; a shard that opens reads them again.

        Without such a shard, the newest ones are kept for the next.
        """
        if self._opening.locked():
            return  # a shard that is about to open may need older beats than all others
        passed = [marker.clock for marker in self._markers(INGEST)]
        self._clock.prune(min(passed, default=self._clock.end - RECENT))

    def forget_feedback(self) -> None:
        """Drop feedback of windows that all shards here have finished."""
        if self._opening.locked():
            return  # a shard that is about to open may need it
        raw = [marker.clock for marker in self._markers(INGEST)]
        for name, feedback in self._follower.feedback.items():
            closed = [marker.closed.get(name, 0) for marker in self._markers(BOUND, name)]
            below = needed_from(self._clock, name, raw, closed)
            if below is not None:
                feedback.forget(below)

    def _markers(self, stage: str, pipeline: str | None = None) -> list[Marker]:
        """Markers of the shards of one stage, or of one pipeline's if it is given."""
        found = []
        for shard in self._shards.values():
            spec = self._topology.of(*shard.tp)
            mine = pipeline is None or (
                spec.pipeline is not None and spec.pipeline.name == pipeline
            )
            if spec.stage == stage and mine:
                found.append(shard.marker)
        return found

    async def _trim(self) -> None:
        """Delete records of internal topics that are already in the state, off the event loop."""
        done = {
            tp: shard.applied
            for tp, shard in self._shards.items()
            if shard.applied > 0 and self._passing(tp)
        }
        await self._trimmer.round(done, self._follower.check)

    def _passing(self, tp: TP) -> bool:
        """Whether a partition only carries records from one shard to the next."""
        stage = self._topology.of(*tp).stage
        return stage not in (INGEST, VIEW) and not (stage == BOUND and self._keep_units)

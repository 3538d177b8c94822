"""The clock, on the one worker that is assigned its partition."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from aiokafka.structs import TopicPartition as TP

from ...mechanisms.noise import fingerprint
from ...topics.records import ClockRecord, Retired, Skipped, Trigger
from ..clock.known import ClockSetup
from ..clock.ledger import Ledger
from ..clock.owner import ClockOwner
from ..clock.wall_time import Settling
from ..deployment.model import Pipeline
from ..kafka.progress import Progress
from ..version import code_version
from .log_follower import LogFollower
from .metrics import OperatorMetrics, PublicMetrics
from .setup import WorkerSetup
from .tasks import Tasks
from .upkeep import ClockTrim

log = logging.getLogger("hushstream.worker")

READ_SECONDS = 60.0  # that the clock waits at most for the shards of its worker
LOOK_SECONDS = 0.1


class OwnedClock:
    """The clock's owner from its opening to its close, while this worker has the partition.

    Args:
        public: public metrics, updated with each committed record.
        settling: holds back triggers after an outage; one object per process.
        read: returns whether each shard here has applied some of its waiting records.

    Attributes:
        tp: the partition whose worker owns the clock.
    """

    def __init__(
        self,
        setup: WorkerSetup,
        follower: LogFollower,
        tasks: Tasks,
        public: PublicMetrics,
        operator: OperatorMetrics,
        settling: Settling,
        read: Callable[[], bool],
    ) -> None:
        self._setup = setup
        self._follower = follower
        self._tasks = tasks
        self._public = public
        self._operator = operator
        self._owner: ClockOwner | None = None
        self._beating: asyncio.Task[None] | None = None
        self._settling = settling
        self._read = read
        self.tp = TP(setup.names.clock, 0)

    @property
    def progress(self) -> list[Progress]:
        """Progress of the clock; empty if it is not owned. Any thread may ask."""
        owner = self._owner
        return [] if owner is None else [owner.progress]

    @property
    def owned(self) -> bool:
        """Whether this worker owns the clock; True as soon as it begins to open it."""
        return self._owner is not None

    @property
    def opening(self) -> bool:
        """Whether the clock is owned but does not beat yet."""
        return self.owned and self._beating is None

    async def open(self) -> None:
        """Open the clock and let it beat, unless it is open already or is left meanwhile."""
        if self._owner is not None:
            return
        self._owner = self._make()
        if await self._owner.open():
            self._beating = self._tasks.start("the clock", self._beat(self._owner))

    async def _beat(self, owner: ClockOwner) -> None:
        """Beat, once the shards here have shown that they can apply their waiting records.

        A worker that crashes on a record and is restarted again and again would otherwise charge,
        at each start, for epochs of which it can release nothing. The wait is limited to
        `READ_SECONDS`, because the crashing shards may be on other workers and triggers must not
        wait for ever.
        """
        until = time.monotonic() + READ_SECONDS
        while not self._read() and time.monotonic() < until:
            owner.progress.moved()
            await asyncio.sleep(LOOK_SECONDS)
        await owner.run()

    def leave(self) -> None:
        """Beat on until another worker has opened the clock, or it is closed; open it no more."""
        if self._owner is not None:
            self._owner.leaving = True
        if self._beating is not None:
            self._tasks.release(self._beating)

    @property
    def left(self) -> bool:
        """Whether it has stopped beating."""
        return self._beating is None or self._beating.done()

    async def close(self) -> None:
        """Let go of the clock."""
        if self._beating is not None:
            await self._tasks.stop(self._beating)
            self._beating = None
        if self._owner is not None:
            await self._owner.close()
            self._owner = None

    def _make(self) -> ClockOwner:
        setup, kafka, engine = self._setup, self._setup.config.kafka, self._setup.config.engine
        key = fingerprint(setup.secret)
        clock = ClockSetup(
            kafka, setup.names, setup.deployment, engine, code_version(), key, setup.witness,
            setup.signing,
        )  # fmt: skip
        trim = ClockTrim(kafka, self._follower) if engine.trim_interval else None
        lost = self._operator.ledger_failures.inc
        return ClockOwner(clock, self._written, lost, trim, self._settling)

    def _written(self, pipeline: Pipeline, record: ClockRecord, ledger: Ledger) -> None:
        if isinstance(record, Trigger):
            self._public.triggered(pipeline, record)
        elif isinstance(record, Retired):
            self._public.retired(pipeline, record.window)
            log.info("pipeline %s is retired before window %d", pipeline.name, record.window)
        elif isinstance(record, Skipped):
            self._public.refused(pipeline)
            log.error("pipeline %s: the budget's limit is reached; a window is not released",
                      pipeline.name)  # fmt: skip
        self._public.spent(pipeline, ledger)

"""A worker: Faust assigns partitions, agents hand fetched lists to shards, shards do the rest.

`Worker` opens and closes shards as partitions are assigned, and stops on any unforeseen error.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

from aiokafka.structs import TopicPartition as TP

from ...errors import EngineError
from ...topics.records import Marker
from ..clock.log import ClockLog
from ..clock.wall_time import Settling
from ..kafka import transport
from ..kafka.cluster import Cluster
from ..kafka.intervals import Interval, Most
from ..kafka.patience import asked_to_end
from ..kafka.progress import Progress
from ..registry.asking import asking_of
from ..stages.aggregate.nonces import drawn
from ..stages.aggregate.secrets import Secrets
from ..stages.topology import StageFactory, Topology
from .agents import declare_agents, make_app
from .attribute_reader import AttributeReader
from .claims import tables_on_disk
from .health.joining import Joining
from .health.namesake import Identity, Namesake
from .health.state import Health
from .leaving import Leaver, come_back, hand_over, stop_app, tell_positions
from .lines.redaction import told, traced, where
from .log_follower import Hearers, LogFollower
from .metrics import OperatorMetrics, PublicMetrics
from .opening import check_opening
from .owned_clock import OwnedClock
from .setup import WorkerSetup
from .shards.maker import ShardMaker
from .shards.rest import Rests
from .shards.shard import Shard
from .shared import share
from .tables.standbys import Standbys
from .tables.uploads import Uploads
from .tasks import Tasks
from .upkeep import Upkeep

log = logging.getLogger("hushstream.worker")


class Worker:
    """One process of the consumer group.

    Attributes:
        public: metrics that anyone may scrape.
        operator: metrics that are a function of raw data.
        shards: open shards, by input partition.
        error: the first error that made this worker stop; None if none did.
        stopped: event that stops the worker when set.
    """

    def __init__(self, setup: WorkerSetup) -> None:
        self.setup = setup
        self.public = PublicMetrics()
        self.operator = OperatorMetrics()
        self.shards: dict[TP, Shard] = {}
        self.error: BaseException | None = None
        self.stopped = asyncio.Event()
        self._member = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._restoring: set[Shard] = set()
        self._tasks, self._opening = Tasks(self.fail), asyncio.Lock()
        self._followed = self._joined = self._leaving = False
        self._joining = Joining(setup.config.kafka.outage_timeout)
        self._shared = share(setup, self.operator, self.public.published)
        self._wire()
        self.public.watch(self.health.ready)
        for pipeline in setup.deployment.pipelines:
            self.public.declare(pipeline)
            self.operator.declare(pipeline)
            self.public.spent(pipeline, setup.ledger)
            if (end := setup.ledger.end(pipeline)) is not None:
                self.public.retired(pipeline, end)

    def _most(self) -> Most:
        """Limits of one interval: two waiting intervals and the one being fetched fill a share."""
        size = min(self.setup.config.engine.step_bytes, self._shared.room.share // 2)
        largest = self.setup.deployment.largest
        return Most(transport.MAX_RECORDS, size, largest, largest)

    def _wire(self) -> None:
        """Build the stages, the logs that they read, and the Faust application."""
        setup, names, made = self.setup, self.setup.names, self.setup.deployment
        kafka, engine = setup.config.kafka, setup.config.engine
        clock = ClockLog({p.name: p.traits.horizon for p in made.pipelines})
        self._topology = Topology(made, names)
        self._rests = Rests(clock, self.shards)
        secrets = Secrets(setup.secret, drawn(os.urandom), setup.noise_keys, setup.sealing)
        self._asking = asking_of(setup.config.registry, self._wake) if made.framed else None
        stating = [one.topic for one in made.inputs if one.beside]
        largest = {topic: made.largest[topic] for topic in stating}
        self._stated = AttributeReader(kafka, largest, self._wake) if stating else None
        factory = StageFactory(
            made, names, secrets, clock, engine.step_records, self._asking, self._stated
        )
        self._maker = ShardMaker(setup, self._shared, self._topology, factory, self._rests)
        feedback, settling = factory.feedback, Settling(engine.settle)
        self._follower = LogFollower(
            kafka, names, clock, feedback, made.fingerprints(setup.secret),
            Hearers(self._wake, self.fail, settling.watched, lambda: list(self.shards)),
            self._shared.wall,
        )  # fmt: skip
        self._upkeep = Upkeep(
            setup, self._topology, self.shards, self._follower, self._opening,
            self._shared.losses, self.operator.room,
            lambda: () if self._standbys is None else self._standbys.folders,
        )  # fmt: skip
        self._standbys = Standbys(self._shared, self._maker.copy) if engine.standbys else None
        self._uploads: Uploads | None = None
        self._uploading: asyncio.Task[None] | None = None
        if self._shared.copies is not None:
            every = engine.snapshot_interval / 1e6
            self._uploads = Uploads(self._shared.copies, every, self.shards, self.operator)
        self._clock = OwnedClock(
            setup, self._follower, self._tasks, self.public, self.operator, settling,
            self._have_read,
        )  # fmt: skip
        self.health = Health(self._watched, engine.stall_timeout / 1e6, self._upkeep.answers)
        identity = Identity.own()
        folder = setup.data_dir / names.genesis
        self._claimed = tables_on_disk(self._topology, folder) if engine.standbys else []
        self.app = make_app(setup, self._topology, self.fail, identity.client_id, self._claimed)
        instance = self.app.conf.consumer_group_instance_id
        self._namesake = Namesake(Cluster(kafka), names.group, setup.member, instance, identity)
        declare_agents(self.app, self._topology, names.clock, self._deliver)
        self.app.on_rebalance_complete.connect(self._on_assigned)
        self.app.on_partitions_revoked.connect(self._on_revoked)
        self.app.on_before_shutdown.connect(self._on_shutdown)

    def _deliver(self, interval: Interval) -> None:
        shard = self.shards.get(interval.tp)
        if shard is not None:  # otherwise its partition was revoked meanwhile
            shard.deliver(interval)

    @property
    def _consumer(self) -> transport.Consumer:
        return self.app.consumer  # type: ignore[no-any-return]

    # -- assignment ---------------------------------------------------------------------------

    async def _on_assigned(self, *_: Any, **__: Any) -> None:
        """Open and close shards to match the assignment; runs before positions are sought."""
        try:
            async with self._opening:
                await self._match(set(self._consumer.assignment()))
        except BaseException as error:
            self.fail(error)
            if asked_to_end() or not isinstance(error, Exception | asyncio.CancelledError):
                raise
            # Raising would crash Faust while it is being stopped, so wait until it is stopped.
            await asyncio.Event().wait()

    async def _match(self, assigned: set[TP]) -> None:
        self._shared.room.among = len(assigned)
        self._consumer.most = self._most
        # Dependencies set the order: shards need the logs of the follower, and the clock comes
        # last, because its first beat lets every shard begin.
        self._consumer.positions = self._positions
        self._consumer.pause = self._rests.pause
        self._consumer.applied = self._applied
        self._consumer.doubt = self._doubt
        self._loop = asyncio.get_running_loop()
        self._joined = True
        await self._follow()
        away = self._was_away()
        if away:
            await asyncio.to_thread(self._namesake.changed)
        kept = set() if away else assigned
        self._consumer.serve(kept & self.shards.keys())  # they do not wait for the others
        await self._close_all_but(kept)
        strange = {tp for tp in assigned - {self._clock.tp} if not self._topology.find(*tp)}
        if strange:
            log.warning("%d partitions of shared topics are of pipelines that are not in this "
                        "worker's file, which leaves them alone", len(strange))  # fmt: skip
        own = assigned - strange - {self._clock.tp}
        fresh = [tp for tp in own if tp not in self.shards]
        if fresh:  # shards from other workers may need feedback that was dropped here
            await self._follower.recall()
        await asyncio.gather(*(self._open_shard(tp) for tp in fresh))
        self._consumer.serve(set(self.shards))  # nor wait for the clock
        if self._clock.tp in assigned and not self._leaving:
            await self._clock.open()
        if self._standbys is not None:
            given = {TP(*tp) for tp in self.app.assignor.assigned_standbys()} - {self._clock.tp}
            await self._standbys.match({tp for tp in given - own if self._topology.find(*tp)})
        self._wake()
        self.health.serving = True
        clock = ", and the clock" if self._clock.owned else ""
        log.info("ready: %d shards%s", len(self.shards), clock)

    async def _follow(self) -> None:
        if self._followed:
            return
        await self._follower.open()
        for beside in (self._asking, self._stated, self._standbys):
            if beside is not None:
                self._tasks.start(beside.progress.what, beside.run())
        if (uploads := self._uploads) is not None:
            self._uploading = self._tasks.start(uploads.progress.what, uploads.run())
        self._followed = True

    def _was_away(self) -> bool:
        """Whether the group took this worker for dead, so that others may have had its partitions.

        A new member id shows that. The assignment alone does not: the partitions may be the same as
        before, although other workers have written their state meanwhile.
        """
        before, self._member = self._member, self._consumer.member_id
        if not before or before == self._member:
            return False
        log.warning("the group took this worker for dead; all its shards are opened again")
        return True

    def _doubt(self, tp: TP) -> None:
        """Make a shard check its position again; called from the consumer's thread."""
        shard = self.shards.get(tp)
        if shard is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(shard.doubt)

    def _watched(self) -> list[Progress]:
        """Progress of all tasks that must make progress."""
        found = [self._follower.progress, self.app.progress]
        found += [self._upkeep.progress, *self._upkeep.inflow.progress.values()]
        found += [shard.progress for shard in [*self.shards.values(), *self._restoring]]
        besides = self._asking, self._stated, self._standbys, self._uploads
        found += [one.progress for one in besides if one is not None]
        return [*found, *self._clock.progress]

    async def _close_all_but(self, assigned: set[TP]) -> None:
        closing = [self.shards.pop(tp) for tp in [*self.shards] if tp not in assigned]
        await asyncio.gather(*(shard.close() for shard in closing))
        for shard in self.shards.values():
            shard.forget_pause()
        if self._clock.tp not in assigned:
            await self._clock.close()

    async def _on_revoked(self, *_: Any, **__: Any) -> None:
        """Close nothing yet: most shards come back, and new owners fence the others."""

    async def _open_shard(self, tp: TP) -> None:
        if self._leaving:  # it would fence who has taken over
            return
        copy = await self._standbys.take(tp) if self._standbys is not None else None
        shard = self._maker.shard(tp, await self._maker.begin(tp), self, copy)
        self._restoring.add(shard)
        if self._leaving:
            shard.leave()
        try:
            await shard.open()
        finally:
            self._restoring.discard(shard)
        self.shards[tp] = shard

    # -- what the consumer and the shards ask -------------------------------------------------

    def _positions(self) -> Mapping[TP, int]:
        # Called from the consumer's thread too, so iterate over a copy.
        found = {tp: shard.wanted for tp, shard in list(self.shards.items())}
        if self._clock.owned:
            found[self._clock.tp] = self._follower.clock.end
        return found

    def _applied(self) -> Mapping[TP, int]:
        return {tp: shard.applied for tp, shard in self.shards.items() if shard.applied > 0}

    def flow(self, tp: TP, open_: bool) -> None:
        """Resume or pause the input of a shard."""
        if open_:
            self._consumer.resume_partitions({tp})
        else:
            self._consumer.pause_partitions({tp})

    async def seek(self, tp: TP, position: int) -> None:
        """Fetch the input of a shard from another position, unless it has been revoked."""
        if tp in self._consumer.assignment():
            await self._consumer.seek_to(tp, position)

    async def before_open(self, tp: TP, marker: Marker, end: int) -> None:
        """Check that the logs are of the history of a shard: see `check_opening`."""
        stage, kafka = self._topology.of(*tp), self.setup.config.kafka
        await check_opening(kafka, self._follower, stage, tp, marker, end)

    def _have_read(self) -> bool:
        """Whether each shard of a raw topic has applied some records that the clock log covers."""
        reached = self._follower.clock.reached
        raw = [tp for tp in list(self.shards) if self._topology.of(*tp).pipeline is None]
        return all(self.shards[tp].moved or self.shards[tp].applied >= reached(*tp) for tp in raw)

    def _wake(self) -> None:
        if self._joined and not self._rests.pause():
            self._consumer.hurry.set()
        for shard in self.shards.values():
            shard.stir()
        self._upkeep.prune_clock()

    # -- running and ending -------------------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """Stop on any unforeseen error: only a new process is safe after one.

        Args:
            error: cause; `run` raises the first one, since later ones follow from it.
        """
        if self.error is not None or self.stopped.is_set():
            return  # errors during the stop follow from it
        if isinstance(error, asyncio.CancelledError):  # it has no text to log
            error = EngineError(f"cancelled from outside ({where(error)}); restart the worker")
        self.error = error
        log.error("%s", told(error), exc_info=traced(error))
        self.health.serving = False
        self.stopped.set()

    async def run(self, stopping: Callable[[], None] = lambda: None) -> None:
        """Serve until `stopped` is set; ``stopping`` is called as soon as it is.

        Raises:
            BaseException: the error that made the worker stop, if one did.
        """
        ended = asyncio.ensure_future(self.stopped.wait())
        # Watch from the beginning: if a topic is deleted while the group assigns partitions, the
        # start never ends.
        watching = self._tasks.start("watching topics", self._upkeep.watch_topics(self.fail))
        starting = asyncio.ensure_future(self._start())
        # Wait for whichever comes first: a start that waits for a broker must not delay a signal to
        # stop.
        await asyncio.wait([ended, starting], return_when=asyncio.FIRST_COMPLETED)
        if starting.done() and (error := starting.exception()) is not None:
            self.fail(error)
        upkeep = self._tasks.start("upkeep", self._upkeep.run(self._look, self.fail))
        await ended
        if self.error is None:
            log.info("stopping")
        stopping()
        await self._tasks.stop(watching)
        await self._tasks.stop(upkeep)
        if self._uploading is not None:
            await self._tasks.stop(self._uploading)
        if self._standbys is not None and self.error is None and self.health.serving:
            self.health.serving, self._leaving = False, True
            await hand_over(self._consumer, self._namesake.others, self._served)
        if self.error is None and self._joined:
            await tell_positions(self._consumer)
        await stop_app(self.app)
        if self._uploads is not None and self.error is None:
            await self._uploads.last()
        starting.cancel()
        if self.error is not None:
            raise self.error

    async def _start(self) -> None:
        if self._standbys is not None:
            await self._follow()
            await come_back(self._standbys, self._claimed, self._namesake.others)
        if not self.stopped.is_set():
            await self.app.start()

    def _served(self) -> dict[TP, Leaver]:
        opening = {shard.tp: shard for shard in self._restoring}
        return {**self.shards, **opening, self._clock.tp: self._clock}

    def _look(self) -> BaseException | None:
        """Find the error that stopped Faust's services, which do not report it; None: no error."""
        if self._clock.opening or self._restoring or self._follower.progress.away:
            self.app.progress.moved()  # nothing is fetched meanwhile, and other tasks are watched
        stopped = EngineError("the consumer stopped") if self.app.should_stop else None
        crash: BaseException | None = self.app.crash_reason or self._consumer.group_error()
        busy = self._joined or self._opening.locked() or self.app.progress.away
        left_out = self._joining.look(busy)
        return crash or stopped or left_out

    async def _on_shutdown(self, *_: Any, **__: Any) -> None:
        self.health.serving = False
        if self._uploads is not None:
            self._uploads.leave()
        await self._clock.close()
        await asyncio.gather(*(s.close() for s in self.shards.values()), return_exceptions=True)
        self.shards.clear()
        if self._standbys is not None:
            await self._standbys.close()
        await self._follower.close()

"""A worker: Faust assigns partitions, agents hand fetched lists to shards, shards do the rest."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import faust
from faust.types import TP
from rocksdict import Cache

from ...errors import EngineError
from ...mechanisms.noise import fingerprint
from ...topics.records import ClockRecord, Marker, Skipped, Trigger
from ..clock.ledger import Ledger
from ..clock.log import ClockLog
from ..clock.owner import ClockOwner
from ..deployment.model import Pipeline
from ..kafka import transport
from ..kafka.transport import Interval
from ..kafka.trim import Trimmer
from ..stages.feedback import Feedback, needed_from
from ..stages.gates import AggregateShard, IngestShard, UnitsShard, bound_upstreams
from .log_follower import Broadcast
from .metrics import OperatorMetrics, PublicMetrics, code_version
from .redaction import told, traced
from .shard import Shard
from .shard_state import Shared
from .topology import Plan, begin_of, stages_of, topics_of

log = logging.getLogger("hushstream.worker")

MEASURE_SECONDS = 30.0
HELD = 60_000  # unit rows that a shard keeps in memory before it writes them: some 15 MB


class Worker:
    """One process of the consumer group."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        engine = plan.config.engine
        self.public = PublicMetrics()
        self.operator = OperatorMetrics()
        self._owners = {
            t: (s, p) for s, p in stages_of(plan.deployment) for t in topics_of(plan, s, p)
        }
        horizons = {p.name: p.mechanism.horizon for p in plan.deployment.pipelines}
        self._feedback = {
            p.name: Feedback(p.cells_partitions)
            for p in plan.deployment.pipelines
            if p.mechanism.feedback
        }
        self._broadcast = Broadcast(
            plan.config.kafka,
            plan.names,
            ClockLog(horizons),
            self._feedback,
            fingerprint(plan.secret),
            self._wake,
            self.fail,
        )
        self._shared = Shared(
            kafka=plan.config.kafka,
            genesis=plan.names.genesis,
            data_dir=plan.data_dir,
            cache=Cache(engine.block_cache_mb * 1024 * 1024),
            write_buffer_bytes=engine.write_buffer_mb * 1024 * 1024,
            executor=ThreadPoolExecutor(2, thread_name_prefix="shard"),
            metrics=self.operator,
            transaction_timeout_ms=engine.transaction_timeout // 1000,
        )
        self.shards: dict[TP, Shard] = {}
        self._trimmer = Trimmer(plan.config.kafka)
        self._clock: ClockOwner | None = None
        self._opening = asyncio.Lock()
        self._followed = False
        self.error: BaseException | None = None
        self.stopped = asyncio.Event()
        for pipeline in plan.deployment.pipelines:
            self.public.declare(pipeline)
            self.public.spent(pipeline, plan.ledger.epochs(pipeline.name))
        self.app = self._build_app()

    # -- Faust --------------------------------------------------------------------------------

    def _build_app(self) -> faust.App:
        transport.register()
        engine, kafka = self.plan.config.engine, self.plan.config.kafka
        session = engine.session_timeout / 1e6
        self.plan.data_dir.mkdir(parents=True, exist_ok=True)
        brokers = [f"{transport.ALIAS}://{address}" for address in kafka.bootstrap.split(",")]
        app = faust.App(
            self.plan.names.group,
            broker=brokers,
            broker_credentials=transport.credentials(kafka),
            store="memory://",
            datadir=str(self.plan.data_dir / "faust"),
            web_enabled=False,
            topic_allow_declare=False,
            topic_disable_leader=True,
            stream_buffer_maxsize=16,
            stream_wait_empty=False,
            broker_session_timeout=session,
            broker_heartbeat_interval=max(session / 5, 0.3),
            broker_request_timeout=max(60.0, session + 1),
            broker_rebalance_timeout=60.0,
            broker_max_poll_interval=3600.0,
            broker_commit_interval=5.0,
            consumer_auto_offset_reset="none",
            consumer_max_fetch_size=engine.step_bytes,
            consumer_group_instance_id=self.plan.member or None,
            loghandlers=[],
        )
        app.conf.web_tables_enabled = False
        self._add_agent(app)
        app.on_rebalance_complete.connect(self._on_assigned)
        app.on_partitions_revoked.connect(self._on_revoked)
        app.on_before_shutdown.connect(self._on_shutdown)
        return app

    def _add_agent(self, app: faust.App) -> None:
        names = [*self._owners, self.plan.names.clock]
        topic = transport.topic(app, names)

        async def deliver(stream: AsyncIterable[Interval]) -> None:
            async for interval in stream:
                shard = self.shards.get(interval.tp)
                if shard is not None:
                    shard.deliver(interval)

        app._on_agent_error = self._on_agent_error
        app.agent(topic, concurrency=1, name="hush")(deliver)

    async def _on_agent_error(self, agent: Any, error: BaseException) -> None:
        self.fail(error)  # an event whose agent raised would be acknowledged and lost

    @property
    def _consumer(self) -> transport.Consumer:
        return self.app.consumer  # type: ignore[no-any-return]

    # -- assignment ---------------------------------------------------------------------------

    async def _on_assigned(self, *_: Any, **__: Any) -> None:
        """Open and close shards so that they match the assignment; before positions are sought."""
        try:
            async with self._opening:
                await self._match(set(self._consumer.assignment()))
        except BaseException as error:
            self.fail(error)
            raise

    async def _match(self, assigned: set[TP]) -> None:
        self._consumer.positions = self._positions
        self._consumer.applied = self._applied
        if not self._followed:
            await self._broadcast.open()
            self._followed = True
        for tp in [tp for tp in self.shards if tp not in assigned]:
            await self.shards.pop(tp).close()
        for shard in self.shards.values():
            shard.forget_pause()
        clock = TP(self.plan.names.clock, 0)
        if self._clock is not None and clock not in assigned:
            await self._clock.close()
            self._clock = None
        fresh = [tp for tp in assigned if tp not in self.shards and tp != clock]
        if fresh:  # what comes from elsewhere may need feedback that was forgotten here
            await self._broadcast.recall()
        await asyncio.gather(*(self._open_shard(tp) for tp in fresh))
        if clock in assigned and self._clock is None:
            self._clock = self._make_clock()
            await self._clock.open()
        self._wake()
        self.public.ready.set(1)
        log.info("ready: %d shards%s", len(self.shards), ", and the clock" if self._clock else "")

    async def _open_shard(self, tp: TP) -> None:
        shard = self._make_shard(tp)
        await shard.open()
        self.shards[tp] = shard

    async def _on_revoked(self, *_: Any, **__: Any) -> None:
        """Nothing is closed yet: a shard that comes back is kept; transactions fence the rest."""

    def _positions(self) -> Mapping[TP, int]:
        # The consumer's thread asks too: a copy is not changed under it.
        found = {tp: shard.wanted for tp, shard in list(self.shards.items())}
        clock = TP(self.plan.names.clock, 0)
        if self._clock is not None:
            found[clock] = self._broadcast.clock.end
        return found

    def _applied(self) -> Mapping[TP, int]:
        return {tp: shard.applied for tp, shard in self.shards.items() if shard.applied > 0}

    def _make_shard(self, tp: TP) -> Shard:
        source, pipeline = self._owners[tp.topic]
        plan, names = self.plan, self.plan.names
        stage: Any
        if pipeline is None:
            kind, subject = "ingest", source.name
            stage = IngestShard(
                source,
                tp.partition,
                names,
                plan.secret,
                self._broadcast.clock,
                self._feedback,
                plan.config.engine.step_records,
            )
        elif tp.topic == names.units(pipeline.name):
            kind, subject = "bound", pipeline.name
            clock = self._broadcast.clock
            upstreams = source.partitions
            stage = UnitsShard(pipeline, tp.partition, names, upstreams, clock, self._feedback)
        else:
            kind, subject = "aggregate", pipeline.name
            upstreams = bound_upstreams(pipeline, source)
            clock = self._broadcast.clock
            stage = AggregateShard(pipeline, tp.partition, names, plan.secret, upstreams, clock)
        return Shard(
            self._shared,
            tp,
            stage,
            names.transactional_id(kind, tp.topic, tp.partition),
            names.changelog(kind, subject),
            self._on_flow,
            self._on_seek,
            self.fail,
            begin_of(plan.ledger, source)[tp.partition] if pipeline is None else 0,
            0 if kind == "aggregate" else HELD,
            self._beats_for if pipeline is None else None,
        )

    async def _beats_for(self, marker: Marker) -> None:
        """Before a shard goes on from its marker, the beats from there on must be known."""
        await self._broadcast.beats_from(marker.clock)

    def _make_clock(self) -> ClockOwner:
        engine = self.plan.config.engine
        return ClockOwner(
            self.plan.config.kafka,
            self.plan.names,
            self.plan.deployment,
            code_version(),
            fingerprint(self.plan.secret),
            engine.beat_interval / 1e6,
            engine.max_clock_lead,
            engine.transaction_timeout // 1000,
            self.fail,
            self._on_clock_record,
            self.operator.ledger_failures.inc,
        )

    def _on_clock_record(self, pipeline: Pipeline, record: ClockRecord, ledger: Ledger) -> None:
        if isinstance(record, Trigger):
            self.public.triggered(pipeline, record)
        elif isinstance(record, Skipped):
            self.public.refused(pipeline)
            log.error("pipeline %s: the budget's limit is reached; a window is not released",
                      pipeline.name)  # fmt: skip
        self.public.spent(pipeline, ledger.epochs(pipeline.name))

    # -- flow ---------------------------------------------------------------------------------

    def _on_flow(self, tp: TP, open_: bool) -> None:
        if open_:
            self._consumer.resume_partitions({tp})
        else:
            self._consumer.pause_partitions({tp})

    async def _on_seek(self, tp: TP, position: int) -> None:
        if tp in self._consumer.assignment():
            await self._consumer.seek_to(tp, position)

    def _wake(self) -> None:
        for shard in self.shards.values():
            shard.wake()
        if self._opening.locked():
            return  # a shard that is about to open may need older beats than all others
        ingests = [s.marker.clock for s in self.shards.values() if self._is_raw(s.tp)]
        if ingests:
            self._broadcast.clock.prune(min(ingests))

    def _forget_feedback(self) -> None:
        """Drop feedback of windows that all shards here have left behind."""
        if self._opening.locked():
            return  # a shard that is about to open may need it
        raw = [s.marker.clock for s in self.shards.values() if self._is_raw(s.tp)]
        for name, feedback in self._feedback.items():
            units = self.plan.names.units(name)
            bounds = [s.marker for s in self.shards.values() if s.tp.topic == units]
            closed = [marker.closed.get(name, 0) for marker in bounds]
            below = needed_from(self._broadcast.clock, name, raw, closed)
            if below is not None:
                feedback.forget(below)

    def _is_raw(self, tp: TP) -> bool:
        return self._owners[tp.topic][1] is None

    # -- ending -------------------------------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """Stop the worker: anything that was not foreseen may not go on."""
        if self.error is not None or self.stopped.is_set():
            return
        self.error = error
        log.error("%s", told(error), exc_info=traced(error))
        self.public.ready.set(0)
        self.stopped.set()

    async def run(self) -> None:
        """Serve until `stopped` is set; raises what made the worker stop, if anything did."""
        self.stopped = asyncio.Event()
        await self.app.start()
        watch = asyncio.create_task(self._watch())
        await self.stopped.wait()
        watch.cancel()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.app.stop(), timeout=20)
        if self.error is not None:
            raise self.error

    async def _watch(self) -> None:
        """Faust's own services may crash without telling anybody; sizes for the operator."""
        measured = trimmed = time.monotonic()
        every = self.plan.config.engine.trim_interval / 1e6
        while True:
            await asyncio.sleep(0.5)
            now = time.monotonic()
            if now - measured > MEASURE_SECONDS:
                measured = now
                await asyncio.gather(*(s.measure() for s in self.shards.values()))
                self._forget_feedback()
            if every and now - trimmed > every:
                trimmed = now
                await self._trim()
            crash = self.app.crash_reason or self._consumer.group_error()
            if crash is not None or self.app.should_stop:
                self.fail(crash or EngineError("the consumer stopped"))

    async def _trim(self) -> None:
        """Delete what is in the state from the internal topics, off the event loop."""
        done = {tp: n for tp, n in self._applied().items() if self._passing(tp)}
        await asyncio.get_running_loop().run_in_executor(None, self._trimmer.round, done)

    def _passing(self, tp: TP) -> bool:
        """Whether a topic only carries something from one shard to the next."""
        pipeline = self._owners[tp.topic][1]
        if pipeline is None:
            return False
        is_units = tp.topic == self.plan.names.units(pipeline.name)
        return not (is_units and self.plan.config.engine.keep_units)

    async def _on_shutdown(self, *_: Any, **__: Any) -> None:
        self.public.ready.set(0)
        if self._clock is not None:
            await self._clock.close()
        await asyncio.gather(*(s.close() for s in self.shards.values()), return_exceptions=True)
        self.shards.clear()
        await self._broadcast.close()

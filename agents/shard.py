"""A shard: one stage over one partition, with its producer, its table and its changelog.

A step is numbered below: compute, transact, store, acknowledge. The Kafka transaction is the
only point at which anything becomes true; RocksDB follows it and can always be rebuilt.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
from aiokafka.errors import ProducerFenced
from faust.types import TP
from hushstream.mechanisms.errors import EngineError
from hushstream.topics.config_model import Kafka
from hushstream.topics.records import Marker, encode
from rocksdict import Cache

from .kafka import Content, fill, read_to_end, stop_quietly, through_outages, transactional_producer
from .metrics import OperatorMetrics
from .rows import derived
from .stages import Stage
from .step import Out, Step
from .store import MARKER, POSITION, Changes, RocksStore, discard
from .transport import Interval

log = logging.getLogger("hushstream.shard")

_OFFSET = attrgetter("offset")
MOST = 60_000  # records waiting at one shard before its partition is paused
FENCED_SECONDS = 3.0
STALE_SECONDS = 20 * 3600  # below delete.retention.ms of the changelogs (24 h)


@dataclass(frozen=True)
class Shared:
    """What the shards of one worker have in common."""

    kafka: Kafka
    genesis: str
    data_dir: Path
    cache: Cache
    write_buffer_bytes: int
    executor: Executor
    metrics: OperatorMetrics
    transaction_timeout_ms: int


class Shard:
    """One stage over one partition of one topic.

    Args:
        tp: the input partition.
        transactional_id: fences any other owner.
        changelog: topic of this stage's state; same partition number.
        on_full, on_free: pause and resume the input.
        on_seek: ask for the input from another position.
        begin: where the input began when the deployment did.
        hold: rows kept in memory before they are written to disk.
        on_open: awaited with the marker before the stage opens there.
    """

    def __init__(
        self,
        shared: Shared,
        tp: TP,
        stage: Stage,
        transactional_id: str,
        changelog: str,
        on_flow: Callable[[TP, bool], None],
        on_seek: Callable[[TP, int], Awaitable[None]],
        on_failure: Callable[[BaseException], None],
        begin: int = 0,
        hold: int = 0,
        on_open: Callable[[Marker], Awaitable[None]] | None = None,
    ) -> None:
        self.tp = tp
        self._shared = shared
        self._stage = stage
        self._transactional_id = transactional_id
        self._changelog = changelog
        self._on_flow = on_flow
        self._on_seek = on_seek
        self._on_failure = on_failure
        self._path = shared.data_dir / shared.genesis / changelog / str(tp.partition)
        self._records: list[Any] = []
        self._wake = asyncio.Event()
        self._paused = False
        self._task: asyncio.Task[None] | None = None
        self._store: RocksStore | None = None
        self._restoring: RocksStore | None = None  # to be closed if opening is cancelled
        self._producer: Any = None
        self._hold = hold
        self._on_open = on_open
        self._guard = threading.Lock()
        self._closing = False
        self._fetched = 0
        self._reached = 0
        self._begin = Marker(shared.genesis, begin)
        self.marker = self._begin

    @property
    def applied(self) -> int:
        """Offset before which everything is in the committed state."""
        return self.marker.applied

    @property
    def wanted(self) -> int:
        """The next input offset to fetch."""
        return self._fetched

    # -- opening ------------------------------------------------------------------------------

    async def open(self) -> None:
        """Fence earlier owners, restore the state, and start stepping."""
        await through_outages(str(self.tp), self._acquire, self._let_go)
        self._task = asyncio.create_task(self._run(), name=f"shard {self.tp}")
        self.wake()

    async def _acquire(self) -> None:
        self._producer = transactional_producer(
            self._shared.kafka, self._transactional_id, self._shared.transaction_timeout_ms
        )
        await self._producer.start()  # returns once an earlier owner's leftovers are aborted
        self._store, self._restoring = await self._restore(), None
        (row,) = self._store.get_many([MARKER])
        self.marker = self._begin if row is None else msgspec.json.decode(row, type=Marker)
        if self._on_open is not None:
            await self._on_open(self.marker)
        self._stage.open(self._store, self.marker)
        self._records.clear()
        self._fetched = max(self.marker.applied, 0)

    async def _restore(self) -> RocksStore:
        """Local state brought up to the end of the changelog; from nothing where in doubt."""
        store = self._open_store()
        start = self._known(store)
        if start is None and store.get_many([MARKER]) != [None]:
            store.close()
            discard(self._path)
            store = self._open_store()
        name = f"{self._changelog}-{self.tp.partition}"
        remaining = self._shared.metrics.recovery.labels(store=name)
        try:
            lists = read_to_end(self._shared.kafka, self._changelog, self.tp.partition, start)
            async for records, position, end in lists:
                self._apply(store, records, position)
                remaining.set(max(end - position, 0))
        except EngineError:  # compacted or trimmed below what we have: begin again
            store.close()
            discard(self._path)
            store = self._open_store()
            lists = read_to_end(self._shared.kafka, self._changelog, self.tp.partition)
            async for records, position, _ in lists:
                self._apply(store, records, position)
        return store

    def _open_store(self) -> RocksStore:
        shared = self._shared
        self._restoring = RocksStore(
            self._path, shared.cache, shared.write_buffer_bytes, self._hold
        )
        return self._restoring

    def _known(self, store: RocksStore) -> int | None:
        """The changelog offset that local state reaches; None if it cannot be trusted."""
        position, marker = store.get_many([POSITION, MARKER])
        if position is None or marker is None:
            return None
        known = json.loads(position)
        mine = msgspec.json.decode(marker, type=Marker).genesis == self._shared.genesis
        fresh = 0 <= time.time() - known["time"] < STALE_SECONDS
        return int(known["offset"]) if mine and fresh else None

    def _apply(self, store: RocksStore, records: Sequence[Any], position: int) -> None:
        changes: Changes = {}
        for record in records:
            changes[record.key] = record.value
            changes.update(derived(record.key, record.value))
        if records:
            changes[POSITION] = _position(position)
            store.write(changes)

    # -- input --------------------------------------------------------------------------------

    def deliver(self, interval: Interval) -> None:
        """Take an interval that was fetched; never waits."""
        if interval.end <= self._fetched:
            return  # fetched before a seek: we have it all
        if interval.start > self._fetched:
            self._ask(self._fetched)
            return
        fresh = interval.records
        if interval.start < self._fetched:
            fresh = [r for r in fresh if r.offset >= self._fetched]
        self._records.extend(fresh)
        self._fetched = interval.end
        if len(self._records) > MOST and not self._paused:
            self._paused = True
            self._on_flow(self.tp, False)
        self.wake()

    def _ask(self, position: int) -> None:
        task = asyncio.ensure_future(self._on_seek(self.tp, position))
        task.add_done_callback(_consume_exception)

    def forget_pause(self) -> None:
        """Faust resumes every partition after a rebalance."""
        self._paused = False

    def wake(self) -> None:
        """Look whether there is something to do."""
        self._wake.set()

    # -- stepping -----------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                if self._closing:
                    return
                await self._drain()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._on_failure(error)

    async def _drain(self) -> None:
        while not self._closing:
            step = await self._compute()
            self._release_records()
            if step is None:
                return
            await self._until(step.not_before)
            try:
                await self._transact(step)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                await self._reopen(error)
                return
            await self._follow(step)

    async def _compute(self) -> Step | None:
        """1. The stage's pure function, on committed state."""
        records, fetched = list(self._records), self._fetched
        with self._shared.metrics.step.labels(stage="compute").time():
            step: Step | None = await self._in_thread(
                lambda: self._stage.step(self._table, self.marker, records, fetched)
            )
            return step

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        """Run work on the store off the event loop; the store is never closed under it."""

        def guarded() -> Any:
            with self._guard:
                return work()

        return await asyncio.get_running_loop().run_in_executor(self._shared.executor, guarded)

    @property
    def _table(self) -> RocksStore:
        if self._store is None:
            raise EngineError(f"the state of {self.tp} is closed")
        return self._store

    def _release_records(self) -> None:
        """Let go of what the stage has taken."""
        position, held = self._stage.position, self._records
        done = bisect_left(held, position, key=_OFFSET)
        del held[:done]
        if self._paused and len(self._records) < MOST // 2:
            self._paused = False
            self._on_flow(self.tp, True)

    async def _until(self, not_before: int) -> None:
        """Publish at the scheduled time plus a public delay, whatever the load."""
        await asyncio.sleep(max(not_before / 1e6 - time.time(), 0.0))

    async def _transact(self, step: Step) -> None:
        """2. ONE transaction: records, changed rows, and last the marker."""
        with self._shared.metrics.step.labels(stage="commit").time():
            await self._producer.begin_transaction()
            for (topic, partition), outs in _grouped(step.out).items():
                await self._send(topic, partition, [out[2:] for out in outs])
            rows: list[Content] = [(key, value, None, ()) for key, value in step.rows.items()]
            rows.append((MARKER, encode(step.marker), None, ()))
            last = await self._send(self._changelog, self.tp.partition, rows)
            await self._producer.commit_transaction()
            metadata = await last
        self._reached = metadata.offset  # of the last batch: reading some rows again is harmless

    async def _send(self, topic: str, partition: int, records: Sequence[Content]) -> Any:
        """Send records in batches; returns the future of the last one."""
        future, sent = None, 0
        while sent < len(records):
            batch = self._producer.create_batch()
            begun, sent = sent, fill(batch, records, sent)
            if sent == begun:
                raise EngineError(f"a record for {topic} is too large for one batch")
            future = await self._flush(batch, topic, partition)
        return future

    async def _flush(self, batch: Any, topic: str, partition: int) -> Any:
        return await self._producer.send_batch(batch, topic, partition=partition)

    async def _follow(self, step: Step) -> None:
        """3. ONE write batch after the commit. 4. From here on it is applied."""
        changes = {**step.rows, **step.local}
        changes[MARKER] = encode(step.marker)
        changes[POSITION] = _position(self._reached)
        with self._shared.metrics.step.labels(stage="store").time():
            await self._in_thread(lambda: self._table.write(changes))
        self.marker = step.marker
        self._report(step)

    def _report(self, step: Step) -> None:
        """Operator's figures of a committed step."""
        metrics = self._shared.metrics
        metrics.count(step.counts)
        name = f"{self.tp.topic}-{self.tp.partition}"
        metrics.lag.labels(store=name).set(max(self._fetched - self.marker.applied, 0))
        for pipeline, moment in step.watermark.items():
            labels = {"pipeline": pipeline, "partition": str(self.tp.partition)}
            metrics.watermark.labels(**labels).set(moment / 1e6)
        for pipeline in [p for p, what in step.counts if what == "manifests"]:
            late = max(time.time() - step.not_before / 1e6, 0.0)
            metrics.delay.labels(pipeline=pipeline).observe(late)
            if not step.counts[pipeline, "released"]:
                log.info(
                    "%s: shard %d released no key at this trigger; `hush plan` says how many "
                    "units a key needs",
                    pipeline,
                    self.tp.partition,
                )

    async def measure(self) -> None:
        """Size of the local state, for the operator; what is held goes to disk."""
        if self._store is not None:
            size = await self._in_thread(self._flushed_size)
            name = f"{self._changelog}-{self.tp.partition}"
            self._shared.metrics.state.labels(store=name).set(size)

    def _flushed_size(self) -> int:
        if self._store is None:
            return 0
        self._store.flush()
        return self._store.size()

    async def _reopen(self, error: Exception) -> None:
        """After any failed transaction: a new producer, and the state as it was committed."""
        log.warning("%s: a transaction failed (%s); reopening", self.tp, type(error).__name__)
        if isinstance(error, ProducerFenced):
            # Somebody else owns this shard now; a rebalance will say so and close this one.
            await asyncio.sleep(FENCED_SECONDS)
        if self._closing:
            return  # it is somebody else's: a new producer here would fence the new owner
        await self._let_go()
        await through_outages(str(self.tp), self._acquire, self._let_go)
        await self._on_seek(self.tp, self._fetched)
        self.wake()

    # -- closing ------------------------------------------------------------------------------

    async def close(self, patience: float = 3.0) -> None:
        """Let the step in flight end, else cancel it: its transaction aborts."""
        self._closing = True
        if self._task is not None:
            self.wake()
            await asyncio.wait([self._task], timeout=patience)
            if not self._task.done():
                self._task.cancel()
                await asyncio.wait([self._task], timeout=patience)
        await self._let_go()

    async def _let_go(self) -> None:
        if self._producer is not None:
            await stop_quietly(self._producer)
            self._producer = None
        await self._in_thread(self._close_store)

    def _close_store(self) -> None:
        for store in (self._store, self._restoring):
            if store is not None:
                store.close()
        self._store = self._restoring = None


def _position(offset: int) -> bytes:
    return json.dumps({"offset": offset, "time": time.time()}).encode()


def _grouped(outs: Sequence[Out]) -> dict[tuple[str, int], list[Out]]:
    groups: dict[tuple[str, int], list[Out]] = {}
    for out in outs:
        groups.setdefault((out.topic, out.partition), []).append(out)
    return groups


def _consume_exception(task: asyncio.Future[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.debug("a seek came too late: %s", type(task.exception()).__name__)

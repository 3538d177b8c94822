"""A shard: one stage over one partition, with its producer, its table and its changelog.

A step is numbered below: compute, transact, store, acknowledge. Only the Kafka transaction makes a
step count; RocksDB follows it and can always be rebuilt.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ....errors import DamagedError, HushError
from ....topics.records import Marker, TableSeal, encode
from ...kafka.backlog import Backlog
from ...kafka.clients import heard, within
from ...kafka.intervals import Interval, joined
from ...kafka.patience import ELSEWHERE, asked_to_end, through_outages
from ...kafka.progress import Progress
from ...stages.step import Stage, Step
from ...state.layout import MARKER
from ..shared import Shared
from ..tables.local_state import LocalState
from ..tasks import Tasks
from .producers import Producers
from .report import ShardReport
from .spec import Host, ShardSpec
from .transaction import names, transact

log = logging.getLogger("hushstream.shard")

FENCED_SECONDS = 3.0
LARGE = 16 << 20  # most bytes of input of one step, about
SLICE_SECONDS = 1.0


class Shard:
    """One stage over one partition of one topic.

    Args:
        state: table that a standby has left open; None: the table is closed.

    Attributes:
        marker: last committed marker.
        moved: whether it has committed a step here.
        seals: seals of table snapshots, for the markers of all further steps.
    """

    def __init__(
        self,
        shared: Shared,
        spec: ShardSpec,
        stage: Stage,
        host: Host,
        state: LocalState | None = None,
    ) -> None:
        self.tp = spec.tp
        self._name = f"{spec.tp.topic}-{spec.tp.partition}"
        self._tasks = Tasks(host.fail)
        self.progress = Progress(f"shard {self._name}")
        self._shared, self._spec, self._stage, self._host = shared, spec, stage, host
        flow = partial(host.flow, spec.tp)
        self._backlog = Backlog(
            shared.room, spec.step_bytes, spec.step_records, flow, spec.is_barrier
        )
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._producers = Producers(shared, spec)
        self._state = state or spec.state(shared, self.progress.moved)
        self._state.moved = self.progress.moved  # instead of a standby's
        self._guard = threading.Lock()
        self.moved = self._doubted = self._closing = self._leaving = False
        self._ended = asyncio.Event()  # it is being closed
        self._reached = self._last = 0
        self._end: int | None = None  # end of the changelog as read, until a step confirms it
        self.seals: list[TableSeal] = []
        self._name_next = names()
        self._aborted = ""  # an aborted transaction that brokers had forgotten, for the next marker
        self._report = ShardReport(shared, self.tp.partition, self._name)
        self.marker = self._begin = Marker(shared.genesis, spec.begin)

    @property
    def applied(self) -> int:
        """Offset before which everything is in the committed state."""
        return self.marker.applied

    @property
    def wanted(self) -> int:
        """The next input offset to fetch."""
        return self._backlog.end

    @property
    def paused(self) -> bool:
        """Whether fetching its input is paused, since enough records wait."""
        return self._backlog.paused

    # -- opening ------------------------------------------------------------------------------

    async def open(self) -> None:
        """Fence earlier owners, restore the state, and start stepping, unless it is to leave."""
        await self._reacquire()
        if not self._closing:
            self._task = self._tasks.start(f"shard {self._name}", self._run())

    async def _reacquire(self) -> None:
        progress, patience = self.progress, self._shared.kafka.outage_timeout
        progress.moved()
        opened = await through_outages(progress, self._acquire, self._let_go, patience, self._stays)
        self._closing |= not opened  # another worker opens it, or has done so
        self.wake()

    def _stays(self) -> bool:
        return not (self._closing or self._leaving)

    async def _acquire(self) -> None:
        await self._producers.start(self._answered)
        self._name_next = names()
        try:
            await self._restored()
        except DamagedError as error:  # in rows that only the stage reads
            await self._in_thread(partial(self._state.set_aside, error))
            await self._restored()

    async def _answered(self) -> bool:
        """Whether brokers had answered the commit of the hanging transaction."""
        name, answered = await self._state.hanging()
        self._aborted = "" if answered else name
        return answered

    async def _restored(self) -> None:
        marker = await self._state.open() or self._begin
        self._end = self._state.end
        self.seals = [] if self._shared.copies is None else list(marker.seals)
        # Skip records whose loss was accepted; the next step commits the place.
        self.marker = replace(marker, applied=max(marker.applied, self._spec.resume))
        await self._host.before_open(self.tp, self.marker, self._state.end)
        self._stage.open(self._state.table, self.marker)
        self._backlog.restart(max(self._stage.position, 0))  # a view may want earlier records again
        if self._aborted:  # say so at once: a later owner could not know it
            step = Step(self.marker)
            await self._transact(step)
            await self._follow(step)

    # -- input --------------------------------------------------------------------------------

    def deliver(self, interval: Interval) -> None:
        """Take a fetched interval, without waiting.

        Intervals may overlap after a seek, or leave a gap after a rebalance. The stage must see
        neither: a repeated record would be counted twice.
        """
        if not self._backlog.take(interval):
            again = asyncio.ensure_future(self._host.seek(self.tp, self.wanted))
            again.add_done_callback(heard)  # it may come too late
            return
        self.stir()

    def forget_pause(self) -> None:
        """Note that the input flows again: Faust resumes each partition after a rebalance."""
        self._backlog.paused = False

    def stir(self) -> None:
        """Make the shard check whether there is work, unless it rests."""
        if not self._rests():
            self.wake()

    def wake(self) -> None:
        """Make the shard check whether there is work."""
        self._wake.set()

    def doubt(self) -> None:
        """Open again before the next step, because the next record is gone.

        Another worker may have owned the partition meanwhile and have applied and trimmed more, so
        that the state here is outdated.
        """
        self._doubted = True
        self.wake()

    # -- stepping -----------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self._closing:
            await self._wake.wait()
            self._wake.clear()
            if self._doubted and not self._closing:
                self._doubted = False
                log.warning("%s: its next record is gone; opening it again", self._name)
                await self._open_again()
            await self._drain()
            self.progress.rest()

    async def _drain(self) -> None:
        more = True
        while more and not self._closing:
            self.progress.rest()
            if self._rests():
                return
            async with self._shared.flight.taken(self._weight()) as leave:
                self.progress.moved()
                more = await self._step(leave)

    def _rests(self) -> bool:
        """Whether the next step is not due yet; the shard is woken when it is."""
        rest, backlog = self._spec.rest, self._backlog
        if rest is None or backlog.full or backlog.paused:
            return False
        return rest.waits(self.marker, backlog.waiting, self.wake)

    def _weight(self) -> int:
        """Approximate bytes of the next step: those of its input, or of the last step."""
        return max(min(self._backlog.size, LARGE), self._last)

    async def _step(self, leave: Callable[[], None]) -> bool:
        """Take one step; False if there is none, or the shard was opened again."""
        try:
            step = await self._compute()
        except DamagedError as error:
            leave()  # what follows waits for the broker
            await self._restore(error)
            return False
        self._backlog.release(self._stage.position)  # records that the stage has taken
        if step is None:
            return False
        if step.not_before:
            leave()
            await self._until(step.not_before)
        if self._closing:
            return False  # the new owner computes the same step from the same state
        try:
            await self._transact(step)
        except HushError:  # the same step would raise it again
            raise
        except (Exception, asyncio.CancelledError) as error:
            # Any error of a client: after none of them is it certain whether the transaction was
            # committed. Only the changelog shows that, so the shard opens again.
            if asked_to_end():
                raise
            leave()
            await self._reopen(error)
            return False
        try:
            await self._follow(step)
        except DamagedError as error:  # the step is committed, so the changelog has it
            leave()
            await self._restore(error)
            return False
        self.moved = True
        return True

    async def _restore(self, error: DamagedError) -> None:
        """Set a damaged table aside, and open the shard again from the changelog."""
        await self._in_thread(lambda: self._state.set_aside(error))
        await self._open_again()

    async def _compute(self) -> Step | None:
        """1. Compute: the stage's pure function, on committed state."""
        # A separate list, since the event loop delivers more records while a thread computes.
        parts, fetched = self._backlog.offered()

        def work() -> Step | None:
            step = self._stage.step(self._state.table, self.marker, joined(parts), fetched)
            self._last = 0 if step is None else step.size
            return step

        with self._shared.metrics.step.labels(stage="compute").time():
            step: Step | None = await self._in_thread(work)
            return step

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        """Run work on the store in a thread; the store is not closed meanwhile."""

        def guarded() -> Any:
            with self._guard:
                return work()

        return await asyncio.get_running_loop().run_in_executor(self._shared.executor, guarded)

    async def _until(self, not_before: int) -> None:
        """Wait for the scheduled time plus a public delay, so that load does not show in it.

        The time is monotonic and never behind the clock log, so a wall clock that is set back
        delays nothing. It is read repeatedly, since the clock log may advance it.

        Args:
            not_before: microseconds since 1970; 0: do not wait.
        """
        while not self._closing and (left := not_before - self._shared.wall.now()) > 0:
            self.progress.rest()
            await asyncio.sleep(min(left / 1e6, SLICE_SECONDS))
        self.progress.moved()

    async def _transact(self, step: Step) -> None:
        """2. Transact: ONE transaction with records, changed rows, and last the marker."""
        with self._shared.metrics.step.labels(stage="commit").time():
            spec, publication = self._spec, step.not_before > 0
            name, seals = self._name_next(), self.seals
            step.marker = replace(step.marker, transaction=name, aborted=self._aborted, seals=seals)
            async with within(self._shared.transaction_timeout_ms):
                producer = await self._producers.next(publication)
                self._reached = await transact(
                    producer, step, spec.changelog, spec.tp.partition, spec.place, self._end
                )
                self._end = None

    async def _follow(self, step: Step) -> None:
        """3. Store: ONE write batch after the commit. 4. Acknowledge: it is applied from here on.

        If the process dies in between, the table is behind its changelog, and opening brings it up
        to date. A table written first could hold a step that never happened.
        """
        changes = {**step.rows, **step.local}
        changes[MARKER] = encode(step.marker)
        with self._shared.metrics.step.labels(stage="store").time():
            units = step.units.columns()
            await self._in_thread(lambda: self._state.write(changes, self._reached, units))
        self.marker, self._aborted = step.marker, ""
        if self._spec.rest is not None:
            self._spec.rest.stepped(asyncio.get_running_loop().time(), step.more)
        self._report.step(step)

    async def measure(self, end: int) -> None:
        """Tell the operator size and lag, given the input's end, and write held rows to disk."""
        try:
            size = await self._in_thread(self._state.size)
        except DamagedError:  # the next step handles it
            self.wake()
            return
        if self._closing:
            return  # its series have ended
        self._report.standing(self._state.name, size, end, self._stage)

    @property
    def table(self) -> LocalState:
        """The table, which is open while the shard is."""
        return self._state

    async def copy(self, folder: Path) -> list[bytes | None]:
        """Copy the table between two steps; see `LocalState.copy`."""
        rows: list[bytes | None] = await self._in_thread(partial(self._state.copy, folder))
        return rows

    async def _reopen(self, error: BaseException) -> None:
        """Open again after a failed transaction: a new producer, and the state as committed."""
        self._report.failed(error, self._leaving)
        if isinstance(error, TimeoutError):  # no broker has answered for long
            self.progress.outage(True)
        if isinstance(error, ELSEWHERE) and not self._leaving:
            # If another worker owns this shard, a rebalance will close it here.
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), FENCED_SECONDS)
        await self._open_again()

    async def _open_again(self) -> None:
        self._closing |= self._leaving
        if self._closing:
            return  # a new producer here would fence the new owner
        await self._let_go()
        await self._reacquire()
        await self._host.seek(self.tp, self.wanted)

    # -- closing ------------------------------------------------------------------------------

    def leave(self) -> None:
        """Step on until another worker has opened the shard, or it is closed; open it no more."""
        self._leaving = True
        if self._task is not None:
            self._tasks.release(self._task)

    @property
    def left(self) -> bool:
        """Whether it has stopped stepping."""
        return self._closing or self._task is None or self._task.done()

    async def close(self, patience: float = 3.0) -> None:
        """Let the step in flight end; after ``patience`` seconds, cancel it, which aborts it."""
        self._closing = True
        self._ended.set()
        if self._task is not None:
            self._tasks.release(self._task)
            self.wake()
            await asyncio.wait([self._task], timeout=patience)
            if not self._task.done():
                self._task.cancel()
                await asyncio.wait([self._task], timeout=patience)
        await self._let_go(soon=True)
        self._report.end(self._state.name)

    async def _let_go(self, soon: bool = False) -> None:
        await self._producers.stop()
        await self._in_thread(partial(self._state.close, soon))

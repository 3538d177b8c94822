"""The consumer group, and a stand-in for Faust: assignment, fetching, intervals.

The product's `Worker` is the real one. Faust and aiokafka's group run in a thread of their own,
which virtual time does not reach. So this module does what `agents/kafka/transport.py` does with
them: it calls the worker's callbacks in the same order, seeks to the positions of the shards, and
delivers intervals. `Gone`, which judges deleted positions, is the product's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from aiokafka.errors import OffsetOutOfRangeError
from faust.types import TP
from hushstream.agents.kafka.intervals import Gone, Interval
from hushstream.agents.kafka.patience import through_outages
from hushstream.agents.kafka.progress import Progress

from . import world
from .loop import HERE, Process
from .network import SERVER

AGAIN = 1.0  # seconds until a lost position is requested again


class Signal:
    """Stands for a signal of Faust."""

    def __init__(self) -> None:
        self._handlers: list[Callable[..., Any]] = []

    def connect(self, handler: Callable[..., Any]) -> None:
        """Register a handler."""
        self._handlers.append(handler)

    async def send(self) -> None:
        """Call all handlers."""
        for handler in self._handlers:
            await handler()


class Refused:
    """A fetcher's result for a position that the broker no longer has."""

    def __init__(self, tp: TP, position: int) -> None:
        self._where = {tp: position}

    def check_raise(self) -> None:
        """Raise the error of the fetch."""
        raise OffsetOutOfRangeError(self._where)


class SimApp:
    """Stands for the Faust application of one worker, and for its consumer.

    Attributes:
        consumer: this object itself; in Faust, application and consumer are two objects.
        conf: Faust's settings, without a static name; workers have distinct names anyway.
    """

    conf = SimpleNamespace(consumer_group_instance_id=None)

    def __init__(self, setup: Any, fail: Callable[[BaseException], None]) -> None:
        here = world.current()
        self._broker, self._group = here.broker, here.group
        self._topics: list[str] = []
        self._deliver: Callable[[Interval], None] = lambda interval: None
        self._patience = setup.config.kafka.outage_timeout
        self.process: Process | None = HERE.get()
        self.consumer = self
        self.on_rebalance_complete = Signal()
        self.on_partitions_revoked = Signal()
        self.on_before_shutdown = Signal()
        self.crash_reason: BaseException | None = None
        self.should_stop = False
        self.progress = Progress("the consumer")
        self.member_id = ""
        self.positions: Callable[[], Mapping[TP, int]] = dict
        self.applied: Callable[[], Mapping[TP, int]] = dict
        self.doubt: Callable[[TP], None] = lambda tp: None
        self._gone = Gone(doubt=lambda tp: self.doubt(tp))
        self._generation = 0
        self._flowing = False
        self._assigned: set[TP] = set()
        self._paused: set[TP] = set()
        self._at: dict[TP, int] = {}
        self.hurry, self._more = asyncio.Event(), asyncio.Event()
        self._watched: list[tuple[Any, Callable[[], None]]] = []
        self._due: dict[TP, float] = {}

    def subscribe(self, topics: list[str], deliver: Callable[[Interval], None]) -> None:
        """Set the topics to read and the receiver of intervals."""
        self._topics, self._deliver = topics, deliver

    # -- Faust's application ----------------------------------------------------------------------

    async def commit(self) -> None:
        """Tell the group the positions, which nothing here reads."""

    async def start(self) -> None:
        """Join the group; assignments come later."""

        async def join() -> None:
            await self._broker.call(lambda: self._group.join(self), patience=20.0)

        async def let_go() -> None:
            """Release nothing."""

        await through_outages(self.progress, join, let_go, self._patience)
        task = asyncio.ensure_future(self._fetching())
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.crash_reason = error

    async def stop(self) -> None:
        """Leave the group."""
        self.should_stop = True
        self._flowing = False
        await self.on_before_shutdown.send()
        self._unwatch()
        self._group.leave(self)

    # -- the group --------------------------------------------------------------------------------

    def assign(self, partitions: set[TP], generation: int) -> None:
        """Take an assignment; the group calls this in the context of this process."""
        if self.should_stop or generation < self._generation:  # a later one came first
            return
        self._generation, self._flowing = generation, False
        self._task = asyncio.ensure_future(self._rebalance(partitions, generation))

    async def _rebalance(self, partitions: set[TP], generation: int) -> None:
        await self.on_partitions_revoked.send()
        await asyncio.sleep(self._broker.delay())
        if self._generation != generation:
            return
        self._unwatch()
        self._assigned, self._at = partitions, {}
        self._paused.clear()
        await self.on_rebalance_complete.send()
        if self._generation != generation:
            return
        self._paused.clear()
        for tp, position in self.positions().items():
            if tp in self._assigned:
                self._at[tp] = position
        for tp in sorted(self._assigned):
            log = self._broker.logs[tp.topic, tp.partition]
            log.watchers.append(self._soon)
            self._watched.append((log, self._soon))
        self._flowing = True
        self._more.set()

    def _unwatch(self) -> None:
        for log, watcher in self._watched:
            log.watchers.remove(watcher)
        self._watched.clear()

    def _soon(self) -> None:
        process = self.process
        context = None if process is None else process.context
        self._broker.loop.call_later(self._broker.delay(), self._more.set, context=context)

    # -- fetching ---------------------------------------------------------------------------------

    async def _fetching(self) -> None:
        while not self.should_stop:
            await self._more.wait()
            self._more.clear()
            if not self._flowing or self._broker.away(self.process):
                self.progress.rest()
                continue
            self.progress.moved()
            for tp in sorted(self._assigned - self._paused):
                if tp in self._at:
                    self._fetch(tp)
            self.progress.rest()

    def _fetch(self, tp: TP) -> None:
        place, position = (tp.topic, tp.partition), self._at[tp]
        log, seen = self._broker.logs[place], self._broker.seen(place, self.process)
        if place in self._broker.leaderless:
            return
        if not seen.start <= position <= seen.end:
            self._gone.check(Refused(tp, position), self.positions())
            self._broker.loop.call_later(AGAIN, self._more.set)
            return
        draw = self._broker.random.random
        while position < seen.stable:
            records, end = log.read(position, 1 + int(draw() * 30), below=seen.stable)
            interval = Interval(tp, position, end, records)
            # Intervals pass Faust's streams in order.
            due = max(self._due.get(tp, 0.0) + 1e-6, self._broker.loop.now + draw() ** 3 * 0.02)
            self._due[tp] = due
            self._broker.loop.call_at(due, self._deliver, interval)
            self._at[tp] = position = end

    def assignment(self) -> set[TP]:
        """Partitions of this worker."""
        return set(self._assigned)

    def pause_partitions(self, partitions: set[TP]) -> None:
        """Fetch nothing from these partitions."""
        self._paused |= partitions

    def resume_partitions(self, partitions: set[TP]) -> None:
        """Fetch from these partitions again."""
        self._paused -= partitions
        self._more.set()

    def serve(self, partitions: set[TP]) -> None:
        """Let these partitions flow before the rebalance has ended."""
        positions = self.positions()
        self._at |= {tp: positions[tp] for tp in partitions & self._assigned}
        self._paused -= partitions
        self._flowing = True
        self._more.set()

    async def seek_to(self, tp: TP, position: int) -> None:
        """Move the position of a partition."""
        await asyncio.sleep(self._broker.random.random() * 0.002)
        self._at[tp] = position
        self._more.set()

    def group_error(self) -> None:
        """Report no error: this group refuses no member."""


class Group:
    """The coordinator of the one consumer group.

    Args:
        here: world of the group.
        session: seconds of silence before a member is dead.
    """

    def __init__(self, here: world.World, session: float) -> None:
        self._world = here
        self.session = session
        self.members: dict[str, SimApp] = {}
        self._owned: dict[TP, str] = {}
        self._joined = 0
        self._generation = 0
        self._coming = False
        self.objections: list[str] = []  # to actions of members

    def _later(self, seconds: float, work: Callable[..., Any], *args: Any) -> None:
        """Schedule work of the coordinator, which outlives the process that asked for it."""
        self._world.loop.call_later(seconds, work, *args, context=SERVER)

    def join(self, app: SimApp) -> None:
        """Admit a member; it learns its partitions after the next rebalance."""
        for name in [n for n, member in self.members.items() if member is app]:
            del self.members[name]  # the answer was lost
        self._joined += 1
        app.member_id = f"member-{self._joined}"
        self.members[app.member_id] = app
        self.rebalance()

    def leave(self, app: SimApp) -> None:
        """Remove a member that left in order."""
        if self.members.pop(app.member_id, None) is not None:
            self.rebalance()

    def silent(self, process: Process) -> None:
        """Note that a process was paused or died: after the session it counts as dead."""
        for name, app in list(self.members.items()):
            if app.process is process:
                self._later(self.session, self._expire, name, app)

    def _expire(self, name: str, app: SimApp) -> None:
        process = app.process
        assert process is not None
        if self._world.broker.down:
            self._later(self.session, self._expire, name, app)
        elif (process.dead or process.paused) and self.members.pop(name, None) is not None:
            self.rebalance()

    def forget(self, process: Process) -> None:
        """Remove a live member, as after an outage; it joins again when it learns of it."""
        for name, app in list(self.members.items()):
            if app.process is process and self.members.pop(name, None) is not None:
                self.rebalance()
                self.heard(process, app)

    def resumed(self, process: Process, app: SimApp) -> None:
        """Let a resumed process learn whether it is still a member."""
        if app.member_id not in self.members and app.member_id:
            self.heard(process, app)

    def heard(self, process: Process, app: SimApp) -> None:
        """Let a removed member learn of its removal at the next heartbeat."""
        delay = self._world.random.random() * 2.0
        self._world.loop.call_later(delay, self._rejoin, app, context=process.context)

    def _rejoin(self, app: SimApp) -> None:
        if app.should_stop or app.member_id in self.members:
            return
        if self._world.broker.away(app.process):
            assert app.process is not None
            self._world.loop.call_later(1.0, self._rejoin, app, context=app.process.context)
        else:
            self.join(app)

    def rebalance(self) -> None:
        """Rebalance in a moment."""
        if not self._coming:
            self._coming = True
            delay = self._world.random.random() ** 2 * 3.0
            self._later(delay, self._spread)

    def _silent(self, app: SimApp) -> bool:
        """Whether a rebalance would wait for a member in vain."""
        return app.process is not None and app.process.paused

    def _ordered(self, places: list[TP], names: list[str]) -> list[TP]:
        """The order in which partitions are assigned."""
        return places

    def _heir(self, tp: TP, shares: dict[str, set[TP]], most: int) -> str:
        """The member that gets a partition that moves."""
        least = min(map(len, shares.values()))
        return self._world.random.choice([n for n in shares if len(shares[n]) == least])

    def _shared(self, shares: dict[str, set[TP]]) -> None:
        """Take note of the members' shares, before any member learns its own."""

    def opened(self, identity: str, who: str, before: str) -> None:
        """Take note that a worker opened an id that ``before``, or no worker, had."""

    def _spread(self) -> None:
        apps = self.members
        if self._world.broker.down or any(map(self._silent, apps.values())):
            # A silent member delays the rebalance until its session has ended.
            self._later(0.5, self._spread)
            return
        self._coming = False
        self._generation += 1
        living = {n: a for n, a in apps.items() if a.process is not None and not a.process.dead}
        names = sorted(living)
        if not names:
            return
        shares: dict[str, set[TP]] = {name: set() for name in names}
        random = self._world.random
        places = sorted(TP(t, n) for t in living[names[0]]._topics
                        for n in range(self._world.broker.topics[t]))  # fmt: skip
        random.shuffle(places)
        most = -(-len(places) // len(names))
        for tp in self._ordered(places, names):
            owner = self._owned.get(tp, "")
            if len(shares.get(owner, range(most))) >= most or random.random() < 0.1:
                owner = self._heir(tp, shares, most)
            self._owned[tp] = owner
            shares[owner].add(tp)
        self._shared(shares)
        for name, app in living.items():
            assert app.process is not None
            self._world.loop.call_later(
                random.random() * 0.3, app.assign, shares[name], self._generation,
                context=app.process.context,
            )  # fmt: skip

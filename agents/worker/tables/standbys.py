"""Copies of tables that other workers own, so that a shard which comes here is open at once.

Faust's assignor gives each partition a standby member, and prefers it when the owner is gone. A
standby reads committed rows of the shard's changelog and writes them to a table where a shard would
keep it. It sends nothing and has no producer. When the shard opens here, a copy passes the same
checks as a table that an earlier owner left on this disk.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from aiokafka.structs import TopicPartition

from ....errors import DamagedError
from ...kafka.clients import reached, reader
from ...kafka.patience import OUTAGES, asked_to_end
from ...kafka.progress import Progress
from ..shared import Shared
from .local_state import LocalState

log = logging.getLogger("hushstream.state")

Ends = Mapping[TopicPartition, int]
ROUND_SECONDS = 0.5  # between two looks at the ends of all changelogs
SHORT_SECONDS = 1.0  # a look that takes less leaves all copies near their ends


class _LeftError(Exception):
    """The shard opens here, or another worker stands by for it: stop reading for its copy."""


@dataclass
class _Copy:
    """One table.

    Attributes:
        lock: lock of the table, held during every access.
        left: whether this worker has stopped standing by.
    """

    state: LocalState
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    left: bool = False


class Standbys:
    """The copies of one worker.

    Args:
        make: makes the closed state of a shard; its argument is called after each list that was
            read.
    """

    def __init__(
        self, shared: Shared, make: Callable[[TopicPartition, Callable[[], None]], LocalState]
    ) -> None:
        self._shared = shared
        self._make = make
        self._copies: dict[TopicPartition, _Copy] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="standby")
        self._near = asyncio.Event()  # set while all copies are near the ends of their changelogs
        self.progress = Progress("the standbys")

    @property
    def folders(self) -> list[Path]:
        """The folders of all copies."""
        return [copy.state.path for copy in self._copies.values()]

    async def match(self, wanted: set[TopicPartition]) -> None:
        """Stand by for exactly these shards."""
        for tp in self._copies.keys() - wanted:
            await self._drop(tp)
        for tp in wanted - self._copies.keys():
            moved = partial(self._moved, tp)
            self._copies[tp] = _Copy(self._make(tp, moved))

    async def warm(self, wanted: set[TopicPartition], patience: float) -> None:
        """Stand by for shards, and wait for `run` to bring the copies near their ends.

        Args:
            patience: seconds to wait at most.
        """
        await self.match(wanted)
        self._near.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._near.wait(), patience)

    def _moved(self, tp: TopicPartition) -> None:
        self.progress.moved()
        if tp not in self._copies:
            raise _LeftError

    async def take(self, tp: TopicPartition) -> LocalState | None:
        """Hand over the copy of a shard that opens here; None unless it is open and restored."""
        state = await self._left(tp)
        if state is None or state.ready:
            return state
        await self._in_thread(state.close)
        return None

    async def _drop(self, tp: TopicPartition) -> None:
        state = await self._left(tp)
        if state is not None:
            await self._in_thread(partial(state.close, True))
            state.forget()

    async def _left(self, tp: TopicPartition) -> LocalState | None:
        """Stop following a shard, and wait until its table is no longer in use."""
        copy = self._copies.pop(tp, None)
        if copy is None:
            return None
        copy.left = True
        self._shared.metrics.forget_standby(copy.state.name)
        async with copy.lock:  # waits for the list that is being written
            return copy.state

    async def close(self) -> None:
        """Close all copies."""
        await self.match(set())
        self._thread.shutdown()

    async def run(self) -> None:
        """Follow the changelogs of all copies, one after the other.

        Raises:
            RewoundError: a changelog ends before its copy: the cluster was rewound.
            EngineError: a table cannot be written.
        """
        while True:
            try:
                async with reader(self._shared.kafka) as client:
                    while True:
                        await self._whole(client)
                        self.progress.outage(False)
                        self.progress.rest()
                        await asyncio.sleep(ROUND_SECONDS)
            except OUTAGES as error:
                if asked_to_end():
                    raise
                # The worker's own shards decide how long to wait for brokers.
                log.debug("standbys wait for a broker (%s)", type(error).__name__)
                self.progress.outage(True)
                await asyncio.sleep(1)

    async def _whole(self, client: Any) -> None:
        began, ready = time.monotonic(), all(one.state.ready for one in self._copies.values())
        await self._round(client)
        if ready and time.monotonic() - began < SHORT_SECONDS:
            self._near.set()

    async def _round(self, client: Any) -> None:
        for copy in [one for one in self._copies.values() if not one.state.ready]:
            await self._work(copy, copy.state.open())
        places = await self._places()
        if not places:
            return
        known = {place: position for place, (position, _) in places.items()}
        ends = await reached(client, known)
        self._tell(known, ends)
        for copy in list(self._copies.values()):
            end = ends.get(copy.state.place)
            if end is None or not copy.state.ready:
                continue
            position, old = places[copy.state.place]
            if position < end:
                await self._work(copy, copy.state.follow(client, end, self._thread))
            elif old:
                await self._work(copy, self._in_thread(copy.state.renew))

    async def _places(self) -> dict[TopicPartition, tuple[int, bool]]:
        """Read each copy's position, and whether it was noted long ago, unless it is in use."""
        known: dict[TopicPartition, tuple[int, bool]] = {}
        for copy in [one for one in self._copies.values() if one.state.ready]:
            if copy.lock.locked():
                continue
            try:
                known[copy.state.place] = copy.state.position, copy.state.old
            except DamagedError as error:
                await self._work(copy, self._in_thread(partial(copy.state.set_aside, error)))
        return known

    def _tell(self, known: Ends, ends: Ends) -> None:
        """Report the lag of all copies to the operator, before they catch up."""
        for state in [one.state for one in self._copies.values() if one.state.place in known]:
            lag = self._shared.metrics.standby_lag.labels(store=state.name)
            lag.set(max(ends[state.place] - known[state.place], 0))

    async def _work(self, copy: _Copy, work: Any) -> None:
        async with copy.lock:
            if copy.left:
                work.close()
                return
            try:
                await work
            except _LeftError:
                pass
            except DamagedError as error:
                await self._in_thread(partial(copy.state.set_aside, error))
            except BaseException:
                if not copy.state.ready:  # a half-restored copy is useless
                    copy.state.close()
                raise

    async def _in_thread(self, work: Callable[[], object]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, work)

"""Fetched records that wait for their step, and steps in flight, within limits of the process."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from .intervals import Interval, joined, since

MOST = 60_000  # records waiting at one shard before its partition is paused
LEAST = 1 << 20  # least bytes of a share, however many partitions there are
SMALL = 1 << 20  # bytes of a step that never waits for others


class Room:
    """The memory for fetched records of all partitions of a process.

    Attributes:
        among: number of partitions that share it.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self.among = 1

    @property
    def share(self) -> int:
        """Bytes that one partition may hold before it is paused."""
        return max(self._total // max(self.among, 1), LEAST)


class Flight:
    """Limit, in bytes, of the steps that all shards of a process compute and commit at once.

    Until it is committed, a step needs several times its bytes of memory. Large steps take turns in
    order of arrival; a single one may exceed the limit.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._used = 0
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def taken(self, size: int) -> AsyncIterator[Callable[[], None]]:
        """Wait for room for a step of ``size`` bytes; yield a function that frees it early."""
        held = [size] if size >= SMALL else []

        def leave() -> None:
            if held:
                self._used -= held.pop()
                self._admit()

        if held:
            await self._enter(size, leave)
        try:
            yield leave
        finally:
            leave()

    async def _enter(self, size: int, leave: Callable[[], None]) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((size, turn))
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._admit()  # the steps behind it
            else:
                leave()
            raise

    def _admit(self) -> None:
        while self._queue:
            size, turn = self._queue[0]
            if not turn.cancelled():
                if self._used and self._used + size > self._most:
                    return
                self._used += size
                turn.set_result(None)
            self._queue.popleft()


class _Fetched(NamedTuple):
    """An interval that was taken, with its end and its bytes."""

    end: int
    size: int
    records: Sequence[Any]
    barriers: int


class Queued(NamedTuple):
    """Records that wait for a step."""

    size: int  # bytes, at most slightly overestimated
    end: int  # offset before which no record is missing
    barriers: int = 0  # how many of them end a micro-batch of their sender


class Backlog:
    """Fetched records of one partition, in order and without a gap.

    Records stay in their fetched lists: joining them costs a copy, and a step takes only some.

    Args:
        step: bytes of records offered to one step; 0: all.
        most: most records that one step takes; 0: all.
        flow: called with whether more records may come.
        is_barrier: whether a record with this value is a barrier; None: none is.

    Attributes:
        end: next offset to fetch; no record before it is missing.
        size: bytes of ``records``, at most slightly overestimated.
        paused: whether fetching is paused, since enough records wait.
    """

    def __init__(
        self,
        room: Room,
        step: int = 0,
        most: int = 0,
        flow: Callable[[bool], object] = bool,
        is_barrier: Callable[[bytes], bool] | None = None,
    ) -> None:
        self._room = room
        self._step = step
        self._most = most
        self._parts: deque[_Fetched] = deque()
        self._number = 0
        self._flow = flow
        self._is_barrier = is_barrier
        self.end = 0
        self.size = 0
        self.paused = False

    def restart(self, position: int) -> None:
        """Drop all records, and begin at a position."""
        self._parts.clear()
        self._number = 0
        self.end, self.size = position, 0

    def take(self, interval: Interval) -> bool:
        """Take an interval; False if records before it are missing."""
        if interval.start > self.end:
            return False
        if interval.end > self.end:  # otherwise it was fetched before a seek, and adds nothing
            fresh = interval.records
            if interval.start < self.end:
                fresh = since(fresh, self.end)
            self._parts.append(_Fetched(interval.end, interval.size, fresh, self._barriers(fresh)))
            self._number += len(fresh)
            self.end = interval.end
            self.size += interval.size
        if self.full:  # pause again if it was paused: a rebalance resumes everything
            self.paused = True
            self._flow(False)
        return True

    @property
    def records(self) -> Sequence[Any]:
        """Records that no step has taken yet, as a new list whenever records are added."""
        return joined([part.records for part in self._parts]) if self._number else []

    def offered(self) -> tuple[list[Sequence[Any]], int]:
        """Return lists of records for the next step, and the offset before which they are complete.

        They hold all records, or at least as many as a step takes, up to the limit of bytes.
        """
        found, number, size = list[Sequence[Any]](), 0, 0
        for part in self._parts:
            found.append(part.records)
            number += len(part.records)
            size += part.size
            if (self._most and number >= self._most) or (self._step and size >= self._step):
                return found, part.end
        return found, self.end

    def release(self, position: int) -> None:
        """Drop records before a position."""
        while self._parts and self._parts[0].end <= position:
            part = self._parts.popleft()
            self.size -= part.size
            self._number -= len(part.records)
        if self._parts:
            part = self._parts[0]
            kept = since(part.records, position)
            self._number -= len(part.records) - len(kept)
            self._parts[0] = part._replace(records=kept, barriers=self._barriers(kept))
        if self.paused and self.low:
            self.paused = False
            self._flow(True)

    def _barriers(self, records: Sequence[Any]) -> int:
        tell = self._is_barrier
        return 0 if tell is None else sum(tell(record.value) for record in records)

    @property
    def waiting(self) -> Queued:
        """Size and end of the records that wait for the next step, and their barriers."""
        return Queued(self.size, self.end, sum(part.barriers for part in self._parts))

    @property
    def full(self) -> bool:
        """Whether the partition should be paused."""
        return self._number > MOST or self.size > self._room.share

    @property
    def low(self) -> bool:
        """Whether a paused partition should resume."""
        return self._number < MOST // 2 and self.size <= self._room.share // 2

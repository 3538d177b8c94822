"""Fetched records that wait for their step: a limit for the process that its partitions share."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from .intervals import Interval, below, joined, since

MOST = 60_000  # records waiting at one shard before its partition is paused
LEAST = 1 << 20  # bytes of a share, however many partitions there are


class Room:
    """Memory for fetched records of all partitions of a process.

    Args:
        total: bytes.

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


class Backlog:
    """Fetched records of one partition, in order and without a gap.

    Args:
        room: of the process.
        step: bytes of records that are offered to one step; 0: all.

    Attributes:
        end: offset before which nothing is missing; the next to fetch.
        size: bytes of ``records``, or slightly more.
    """

    def __init__(self, room: Room, step: int = 0) -> None:
        self._room = room
        self._step = step
        self._sizes: deque[tuple[int, int]] = deque()  # end and bytes of each interval
        self._parts: list[Sequence[Any]] = []
        self._number = 0
        self.end = 0
        self.size = 0

    def restart(self, position: int) -> None:
        """Hold nothing, and begin at a position."""
        self._sizes.clear()
        self._parts.clear()
        self._number = 0
        self.end, self.size = position, 0

    def take(self, interval: Interval) -> bool:
        """Take an interval; False if records before it are missing."""
        if interval.end <= self.end:
            return True  # fetched before a seek: we have it all
        if interval.start > self.end:
            return False
        fresh = interval.records
        if interval.start < self.end:
            fresh = since(fresh, self.end)
        if len(fresh):
            self._parts.append(fresh)
            self._number += len(fresh)
        self.end = interval.end
        self.size += interval.size
        self._sizes.append((interval.end, interval.size))
        return True

    @property
    def records(self) -> Sequence[Any]:
        """List records that were not taken by a step; more records make another list."""
        if len(self._parts) != 1:
            self._parts = [joined(self._parts) if self._parts else []]
        return self._parts[0]

    def offered(self) -> tuple[Sequence[Any], int]:
        """Records for the next step, and the offset before which they are complete."""
        room = self._step
        for end, size in self._sizes if room else ():
            room -= size
            if room <= 0:
                return below(self.records, end), end
        return self.records, self.end

    def release(self, position: int) -> None:
        """Let go of what lies before a position."""
        kept = since(self.records, position)
        self._parts, self._number = [kept], len(kept)
        while self._sizes and self._sizes[0][0] <= position:
            self.size -= self._sizes.popleft()[1]

    @property
    def full(self) -> bool:
        """Whether the partition should be paused."""
        return self._number > MOST or self.size > self._room.share

    @property
    def low(self) -> bool:
        """Whether a paused partition should go on."""
        return self._number < MOST // 2 and self.size <= self._room.share // 2

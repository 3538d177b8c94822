"""Fetched records that wait for their step: a limit for the process that its partitions share."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from operator import attrgetter
from typing import Any

from .intervals import Interval

MOST = 60_000  # records waiting at one shard before its partition is paused
LEAST = 1 << 20  # bytes of a share, however many partitions there are

_OFFSET = attrgetter("offset")


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
        records: those that were not taken by a step.
        end: offset before which nothing is missing; the next to fetch.
        size: bytes of ``records``, or slightly more.
    """

    def __init__(self, room: Room, step: int = 0) -> None:
        self._room = room
        self._step = step
        self._sizes: deque[tuple[int, int]] = deque()  # end and bytes of each interval
        self.records: list[Any] = []
        self.end = 0
        self.size = 0

    def restart(self, position: int) -> None:
        """Hold nothing, and begin at a position."""
        self._sizes.clear()
        self.records.clear()
        self.end, self.size = position, 0

    def take(self, interval: Interval) -> bool:
        """Take an interval; False if records before it are missing."""
        if interval.end <= self.end:
            return True  # fetched before a seek: we have it all
        if interval.start > self.end:
            return False
        fresh = interval.records
        if interval.start < self.end:
            fresh = [r for r in fresh if r.offset >= self.end]
        self.records.extend(fresh)
        self.end = interval.end
        self.size += interval.size
        self._sizes.append((interval.end, interval.size))
        return True

    def offered(self) -> tuple[list[Any], int]:
        """Records for the next step, and the offset before which they are complete."""
        room = self._step
        for end, size in self._sizes if room else ():
            room -= size
            if room <= 0:
                return self.records[: bisect_left(self.records, end, key=_OFFSET)], end
        return list(self.records), self.end

    def release(self, position: int) -> None:
        """Let go of what lies before a position."""
        del self.records[: bisect_left(self.records, position, key=_OFFSET)]
        while self._sizes and self._sizes[0][0] <= position:
            self.size -= self._sizes.popleft()[1]

    @property
    def full(self) -> bool:
        """Whether the partition should be paused."""
        return len(self.records) > MOST or self.size > self._room.share

    @property
    def low(self) -> bool:
        """Whether a paused partition should go on."""
        return len(self.records) < MOST // 2 and self.size <= self._room.share // 2

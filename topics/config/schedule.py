"""Windows, epochs and trigger times: pure functions of the configuration and of event times.

Every time is an integer number of microseconds since 1970, UTC. Windows are numbered from the
configured origin, earlier ones negatively. Every window has the same number of triggers.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from itertools import islice, pairwise
from typing import Any, Protocol

import numpy as np
from cronsim import CronSim, CronSimError
from numpy.typing import NDArray

from ...errors import ConfigError
from .pipeline import PipelineSettings

I64 = NDArray[np.int64]

MAX_TRIGGERS = 100_000
_FIVE_WEEKS = 35 * 86_400_000_000
_1970 = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Due:
    """A trigger that is due: window, index from 1, and scheduled time."""

    window: int
    index: int
    scheduled: int


class ScheduleState(Protocol):
    """Progress of a pipeline.

    ``done`` holds the number of past triggers of each open window; windows below ``floor`` and in
    ``closed`` are finished.
    """

    @property
    def floor(self) -> int: ...
    @property
    def done(self) -> Mapping[int, int]: ...
    @property
    def closed(self) -> Container[int]: ...


@dataclass(frozen=True)
class Schedule:
    """Times at which the windows of one pipeline begin, end and are released.

    Attributes:
        origin: start of window 0.
        length: length of a window.
        per_epoch: windows that share one charge and one contribution bound.
        every: interval between triggers, a divisor of ``length``; 0 if ``cron`` is given.
        cron: cron rule of trigger times, UTC.
        horizon: triggers per window, T.
        lateness: added to every trigger time.
        arrival: whether an event belongs to the window that is open at its arrival, whatever its
            time.
    """

    origin: int
    length: int
    per_epoch: int = 1
    every: int = 0
    cron: str | None = None
    horizon: int = 1
    lateness: int = 0
    arrival: bool = False

    @classmethod
    def of(cls, pipeline: PipelineSettings) -> Schedule:
        """Return the schedule of a valid pipeline."""
        window, rule, length = pipeline.window, pipeline.triggers, pipeline.window_length
        return cls(
            origin=window.origin,
            length=length,
            per_epoch=pipeline.epoch_length // length,
            every=rule.every or 0,
            cron=rule.cron,
            horizon=rule.count or length // (rule.every or length),
            lateness=pipeline.lateness,
            arrival=window.horizon is not None,
        )

    @classmethod
    def declared(cls, config: Mapping[str, Any]) -> Schedule:
        """Return the schedule of a pipeline whose charged settings a ledger holds."""
        window, triggers = config["window"], config["triggers"]
        every, horizon = triggers["every"] or 0, window["horizon"]
        length = window["length"] or (horizon or 1) * every
        return cls(
            origin=window["origin"],
            length=length,
            per_epoch=config["epoch"] // length,
            every=every,
            cron=triggers["cron"],
            horizon=triggers["count"] or length // (every or length),
            lateness=config["lateness"],
            arrival=horizon is not None,
        )

    def start(self, window: int) -> int:
        """First microsecond of a window."""
        return self.origin + window * self.length

    def window(self, time: int) -> int:
        """The window that an event time falls into."""
        return (time - self.origin) // self.length

    def windows(self, times: I64) -> I64:
        """(n,) windows of (n,) event times."""
        return np.floor_divide(times - self.origin, self.length)

    def epoch(self, window: int) -> int:
        """The epoch that a window belongs to."""
        return window // self.per_epoch

    def epoch_at(self, time: int) -> int:
        """The epoch that an event time falls into."""
        return self.epoch(self.window(time))

    def begin(self, epoch: int) -> int:
        """First microsecond of an epoch."""
        return self.start(epoch * self.per_epoch)

    def boundary(self, time: int) -> int:
        """The first boundary of two epochs after a time."""
        return self.begin(self.epoch_at(time) + 1)

    def ordinal(self, window: int) -> int:
        """Place of a window in its epoch, from 0."""
        return window % self.per_epoch

    def times(self, window: int) -> tuple[int, ...]:
        """Scheduled trigger times of a window, ascending; ``horizon`` of them."""
        start = self.start(window) + self.lateness
        return tuple(start + offset for offset in self._offsets(window))

    def _offsets(self, window: int) -> tuple[int, ...]:
        if self.cron is None:
            return self._regular
        return _cron_offsets(self.cron, self.start(window), self.horizon)

    @cached_property
    def _regular(self) -> tuple[int, ...]:
        return tuple(self.every * i for i in range(1, self.horizon + 1))

    def longest_gap(self) -> int:
        """Longest time between successive triggers of all windows together, in microseconds.

        Exact for regular triggers; for a cron rule over five weeks or 32 windows, if that is more.
        """
        if self.cron is None:
            return self.every
        most = max(2, 20_000 // self.horizon)
        windows = range(min(most, max(32, -(-_FIVE_WEEKS // self.length))))
        times = sorted({time for window in windows for time in self.times(window)})
        return max((b - a for a, b in pairwise(times)), default=self.length)

    def due(
        self, state: ScheduleState, now: int, limit: int | None = None, end: int | None = None
    ) -> list[Due]:
        """Return triggers scheduled at or before ``now`` that have not fired yet.

        They are in firing order: by scheduled time, then by window. A window's triggers keep their
        order. At most ``limit`` are returned, the earliest; none of window ``end`` or a later one.
        """
        return list(islice(self._pending(state, now, end), limit))

    def _pending(self, state: ScheduleState, now: int, end: int | None) -> Iterator[Due]:
        """Merge the windows' triggers, opening a window only when its first one is next."""
        heap: list[tuple[int, int, int]] = []
        window = state.floor
        while True:
            while (end is None or window < end) and (
                self.times(window)[0] <= (heap[0][0] if heap else now)
            ):
                done = state.done.get(window, 0)
                if window not in state.closed:
                    self._push(heap, window, done + 1, now)
                window += 1
            if not heap:
                return
            scheduled, served, index = heapq.heappop(heap)
            yield Due(served, index, scheduled)
            self._push(heap, served, index + 1, now)

    def _push(self, heap: list[tuple[int, int, int]], window: int, index: int, now: int) -> None:
        if index <= self.horizon and (scheduled := self.times(window)[index - 1]) <= now:
            heapq.heappush(heap, (scheduled, window, index))


@lru_cache(maxsize=256)
def _cron_offsets(rule: str, start: int, count: int) -> tuple[int, ...]:
    """The first ``count`` times of a rule after ``start``, relative to it."""
    begin = _1970 + timedelta(microseconds=start)
    try:
        fires = tuple(islice(CronSim(rule, begin), count))
    except CronSimError as error:
        raise ConfigError(f"{rule!r} is not a cron rule ({error})") from error
    if len(fires) < count:
        raise ConfigError(f"the cron rule {rule!r} fires less than {count} times")
    return tuple((fire - begin) // timedelta(microseconds=1) for fire in fires)

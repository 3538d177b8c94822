"""Windows, epochs and trigger times: pure functions of the configuration and of event times.

Every time is an integer number of microseconds since 1970, UTC. Windows are numbered from the
configured origin, earlier ones negatively. Windows of a fixed length all have the same number of
triggers; those of a calendar have at most as many as the longest of them.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from itertools import islice, pairwise
from typing import Any, Protocol

import numpy as np
from cronsim import CronSim, CronSimError
from numpy.typing import NDArray

from ....errors import ConfigError
from ...calendar import Calendar, CalendarSpan, interval
from ..toml.values import format_duration
from .pipeline import PipelineSettings, endless

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
        length: length of a window; with a calendar, of the longest one.
        per_epoch: windows that share one charge and one contribution bound.
        every: interval between triggers, a divisor of ``length``; 0 if ``cron`` or a calendar
            gives them.
        cron: cron rule of trigger times, UTC.
        horizon: triggers per window, T; with a calendar, the largest number.
        lateness: added to every trigger time.
        arrival: whether an event belongs to the window open at its arrival, whatever its event
            time.
        calendar: windows of the calendar; None: all have the same length.
        hops: number of these windows that each release covers, including the last. If more than 1,
            windows overlap, and a window here is a hop elsewhere.
        endless: whether the window has no stated end.
    """

    origin: int
    length: int
    per_epoch: int = 1
    every: int = 0
    cron: str | None = None
    horizon: int = 1
    lateness: int = 0
    arrival: bool = False
    calendar: Calendar | None = None
    hops: int = 1
    endless: bool = False

    @classmethod
    def of(cls, pipeline: PipelineSettings) -> Schedule:
        """Return the schedule of a valid pipeline."""
        window, rule, made = pipeline.window, pipeline.triggers, pipeline.calendar
        if made is not None:
            epoch = pipeline.epoch_length
            return cls._of_calendar(made, epoch, pipeline.lateness)
        every, epoch = rule.every, pipeline.epoch_length
        assert not isinstance(every, CalendarSpan)  # a valid pipeline
        assert not isinstance(epoch, CalendarSpan)
        fixed = cls(
            window.origin, pipeline.window_length, every=every or 0, cron=rule.cron,
            lateness=pipeline.lateness, arrival=window.horizon is not None,
            endless=window.endless,
        )  # fmt: skip
        return fixed._divided(window.hop, epoch, rule.count)

    @classmethod
    def declared(cls, config: Mapping[str, Any]) -> Schedule:
        """Return the schedule of a pipeline whose charged settings a ledger holds.

        Raises:
            ConfigError: its windows are of a calendar, and this machine has other time zone rules.
        """
        window, triggers = config["window"], config["triggers"]
        if isinstance(window["length"], str):
            return cls._of_calendar(_charged(config), _span(config["epoch"]), config["lateness"])
        every, horizon = triggers["every"] or 0, window["horizon"]
        unstated = bool(window.get("endless"))
        whole = endless(every) if unstated else window["length"] or (horizon or 1) * every
        fixed = cls(
            window["origin"], whole, every=every, cron=triggers["cron"],
            lateness=config["lateness"], arrival=horizon is not None, endless=unstated,
        )  # fmt: skip
        return fixed._divided(window.get("hop"), config["epoch"], triggers["count"])

    def _divided(self, hop: int | None, epoch: int, count: int | None) -> Schedule:
        """The schedule of whole windows with their hops, epochs and triggers."""
        length = hop or self.length
        return replace(
            self, length=length, per_epoch=epoch // length, hops=self.length // length,
            horizon=count or length // (self.every or length),
        )  # fmt: skip

    @classmethod
    def _of_calendar(cls, made: Calendar, epoch: CalendarSpan | int, lateness: int) -> Schedule:
        return cls(
            origin=made.start(0),
            length=made.longest,
            per_epoch=epoch.holds(made.length) if isinstance(epoch, CalendarSpan) else 0,
            horizon=made.horizon,
            lateness=lateness,
            calendar=made,
        )

    @property
    def shown(self) -> str:
        """Length of a window, in words."""
        if self.endless:
            return "all time"
        if self.hops > 1:
            whole, hop = (format_duration(self.length * many) for many in (self.hops, 1))
            return f"{whole} every {hop}"
        return format_duration(self.length) if self.calendar is None else str(self.calendar)

    @property
    def epoch_shown(self) -> str:
        """Length of an epoch, in words."""
        if self.endless:
            return self.shown
        if self.calendar is None:
            return format_duration(self.length * self.per_epoch)
        return str(self.calendar.times_as_long(self.per_epoch))

    def start(self, window: int) -> int:
        """First microsecond of a window."""
        if self.calendar is not None:
            return self.calendar.start(window)
        return self.origin + window * self.length

    def end(self, window: int) -> int:
        """First microsecond after a window."""
        return self.start(window + 1)

    def opens(self, window: int) -> int:
        """First microsecond that a window's release covers."""
        return self.start(window - self.hops + 1)

    def opened(self, time: int) -> int:
        """The window whose release begins at a time."""
        return self.window(time) + self.hops - 1

    def window(self, time: int) -> int:
        """The window that an event time falls into."""
        if self.calendar is not None:
            return self.calendar.window(time)
        return (time - self.origin) // self.length

    def first(self, time: int) -> int:
        """The first window that a pipeline serves which starts at a time."""
        window = self.window(time)
        # No window precedes one without a stated end: a century of triggers would be overdue in it.
        return max(window, 0) if self.endless else window

    def holding(self, time: int) -> range:
        """The windows whose releases cover a time: one, or several with hops."""
        return range(self.window(time), self.opened(time) + 1)

    def windows(self, times: I64) -> I64:
        """(n,) windows of (n,) event times."""
        if self.calendar is not None:
            return self.calendar.windows(times)
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
        """The first boundary between epochs after a time."""
        return self.begin(self.epoch_at(time) + 1)

    def ordinal(self, window: int) -> int:
        """Number of a window within its epoch, from 0."""
        return window % self.per_epoch

    def times(self, window: int) -> Sequence[int]:
        """Scheduled trigger times of a window, ascending; ``triggers(window)`` of them."""
        if self.calendar is not None:
            return tuple(time + self.lateness for time in self.calendar.times(window))
        start = self.start(window) + self.lateness
        if self.endless:
            return range(start + self.every, start + self.length + 1, self.every)
        return tuple(start + offset for offset in self._offsets(window))

    def settled(self, time: int) -> int:
        """Time of the last trigger whose release events up to a time can still affect."""
        last = self.times(self.window(time))[-1]
        return min(last, time + self.every + self.lateness) if self.endless else last

    def triggers(self, window: int) -> int:
        """Number of triggers of a window, at most ``horizon``."""
        return self.horizon if self.calendar is None else len(self.calendar.times(window))

    def _offsets(self, window: int) -> tuple[int, ...]:
        if self.cron is None:
            return self._regular
        return _cron_offsets(self.cron, self.start(window), self.horizon)

    @cached_property
    def _regular(self) -> tuple[int, ...]:
        return tuple(self.every * i for i in range(1, self.horizon + 1))

    def longest_gap(self) -> int:
        """Longest time between successive triggers of all windows together, in microseconds.

        Exact for regular triggers; for a cron rule, the longest within five weeks or 32 windows,
        whichever is more; for a calendar, an upper bound.
        """
        if self.calendar is not None:
            return self.calendar.longest_gap
        if self.cron is None:
            return self.every
        most = max(2, 20_000 // self.horizon)
        windows = range(min(most, max(32, -(-_FIVE_WEEKS // self.length))))
        times = sorted({time for window in windows for time in self.times(window)})
        return max((b - a for a, b in pairwise(times)), default=self.length)

    def shortest_gap(self) -> int:
        """Shortest time between successive triggers of two windows, in microseconds."""
        if self.endless:
            return self.every
        times = sorted({time for window in range(2) for time in self.times(window)})
        return min((b - a for a, b in pairwise(times)), default=self.length)

    def due(
        self, state: ScheduleState, now: int, limit: int | None = None, end: int | None = None
    ) -> list[Due]:
        """Return triggers scheduled at or before ``now`` that have not fired yet.

        They are in firing order: by scheduled time, then by window; a window's triggers keep their
        order. Returns at most ``limit``, the earliest, and none of window ``end`` or later.
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
        if index <= self.triggers(window) and (scheduled := self.times(window)[index - 1]) <= now:
            heapq.heappush(heap, (scheduled, window, index))


def _span(value: str | int) -> CalendarSpan | int:
    """The length in charged settings: microseconds, or a span of the calendar.

    Raises:
        ConfigError: a text is not a span.
    """
    made = CalendarSpan.parse(value) if isinstance(value, str) else value
    if made is None:
        raise ConfigError(f"{value!r} is no span of the calendar such as '1 month'")
    return made


def _charged(config: Mapping[str, Any]) -> Calendar:
    """The calendar in charged settings.

    Raises:
        ConfigError: this machine's package `tzdata` has other midnights of the zone.
    """
    window = config["window"]
    length = _span(window["length"])
    assert isinstance(length, CalendarSpan)  # the caller checked that it is a text
    every = interval(_span(config["triggers"]["every"] or window["length"]))
    made = Calendar(window["zone"], length, every, window["origin"])
    if made.digest != window["midnights"]:
        raise ConfigError(
            f"days of {made.zone} begin at other times by this machine's package tzdata than by "
            "the one with which the pipeline was declared: install that one, which the lock file "
            "of the declaring version names"
        )
    return made


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

"""Windows of the calendar: days, weeks and months of a time zone, as exact times.

A day begins at the first instant at which the zone's clock shows its date's midnight or later. So a
day has 23 hours where clocks go forward, 25 where they go back, and 24.5 on Lord Howe Island. Weeks
begin on Monday, a quarter is three months, a year twelve.

All edges come from one table of midnights, 1970 to 2100, by the rules of the package `tzdata`,
never those of the operating system. The table's digest is part of the charged configuration: a
machine with other rules for any time stops before it releases anything.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import cached_property, lru_cache
from importlib import resources
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from ..formats.events.decode import utc

I64 = NDArray[np.int64]

_FIRST, _END = date(1969, 12, 29), date(2100, 1, 1)  # a Monday; months count from January 1970
_DAY = 86_400_000_000  # microseconds
_SECOND = 1_000_000
_1970 = datetime(1970, 1, 1, tzinfo=UTC)
_SPAN = re.compile(r"\s*(\d{1,5})\s+(day|week|month|quarter|year)s?\s*")
_MONTHS = {"month": 1, "quarter": 3, "year": 12}


class CalendarSpan(str):
    """A number of days, weeks or months, as settings write it; quarters and years are months.

    >>> CalendarSpan.parse("1 quarter"), CalendarSpan.parse("31d")
    ('3 months', None)
    """

    __slots__ = ()

    @classmethod
    def of(cls, count: int, unit: str) -> CalendarSpan:
        """A span of ``count`` days, weeks or months."""
        return cls(f"{count} {unit}{'s' * (count > 1)}")

    @classmethod
    def parse(cls, text: str) -> CalendarSpan | None:
        """Read a text such as ``"1 month"`` or ``"2 weeks"``; None if it is not one."""
        found = _SPAN.fullmatch(text.lower())
        if found is None:
            return None
        count, unit = int(found[1]), found[2]
        if unit in _MONTHS:
            return cls.of(count * _MONTHS[unit], "month")
        return cls.of(count, unit)

    @property
    def number(self) -> int:
        """Number of units."""
        return int(self.split()[0])

    @property
    def unit(self) -> str:
        """Day, week or month."""
        return self.split()[1].removesuffix("s")

    @property
    def step(self) -> int:
        """Number of days, or of months."""
        return self.number * 7 if self.unit == "week" else self.number

    @property
    def grid(self) -> str:
        """Unit of `step`: day or month."""
        return "month" if self.unit == "month" else "day"

    def holds(self, other: CalendarSpan) -> int:
        """Number of other spans in this one; 0 if it is not whole, or the units differ."""
        same = self.unit == other.unit and self.number % other.number == 0
        return self.number // other.number if same else 0


@dataclass(frozen=True)
class Calendar:
    """Edges of the windows of a zone, and their triggers.

    A window has one trigger for each whole or started interval, the last one at its end.
    ``horizon`` is the largest number of any window. The mechanism is calibrated for it; a window
    with fewer triggers releases a prefix of what it has paid for, which costs no more: dropping
    releases is post-processing.
    """

    zone: str  # name of a time zone of the package `tzdata`
    length: CalendarSpan  # of a window
    # interval between triggers: days, weeks or months counted from the window's start, or
    # microseconds (less than a day) counted from every midnight
    every: CalendarSpan | int
    # start of window 0, microseconds since 1970; 0: the window that began at midnight of
    # 1970-01-01 or in its week
    origin: int = 0

    def __str__(self) -> str:
        return f"{self.length} in {self.zone}"

    def objections(self, most: int) -> Iterator[tuple[str, str]]:
        """Yield objections to these as windows of at most ``most`` triggers: setting and reason."""
        if why := _objection(self.length, self.every):
            yield "triggers.every", why
            return
        try:
            zone_of(self.zone)
        except ConfigError as error:
            yield "window.zone", str(error)
            return
        try:
            if self.horizon > most:
                yield (
                    "triggers.every",
                    f"makes more than {most:,} triggers per window: write a longer one",
                )
        except ConfigError as error:
            yield "window", str(error)

    def times_as_long(self, count: int) -> Calendar:
        """Windows each as long as ``count`` of these: the epochs."""
        return replace(self, length=CalendarSpan.of(self.length.number * count, self.length.unit))

    @cached_property
    def _base(self) -> I64:
        return starts(self.zone, self.length.grid)

    @cached_property
    def _anchor(self) -> int:
        """Index of the origin among the starts of days or months."""
        if not self.origin:
            return (date(1970, 1, 1) - _FIRST).days if self.length.unit == "day" else 0
        place = int(np.searchsorted(self._base, self.origin))
        if self._base[min(place, len(self._base) - 1)] != self.origin:
            raise ConfigError(
                f"window.origin = {utc(self.origin)}: no {self.length.grid} of "
                f"{self.zone} begins then; {self._near(place)}"
            )
        return place

    def _near(self, place: int) -> str:
        near = self._base[max(place - 1, 0) : place + 1].tolist()
        return f"{self.length.grid}s near it begin at " + " and ".join(map(utc, near))

    @cached_property
    def edges(self) -> I64:
        """(k + 1,) starts of all windows from 1970 to 2100, and the end of the last one."""
        step = self.length.step
        made = self._base[self._anchor % step :: step]
        if not (np.diff(made) > 0).all() or self._has_empty_interval():
            raise ConfigError(
                f"window.zone = {self.zone} has skipped a whole day, which would be a window or an "
                "interval between triggers without any time: choose longer ones, or another zone"
            )
        return made

    def _has_empty_interval(self) -> bool:
        if isinstance(self.every, int):
            return False
        return not (np.diff(starts(self.zone, self.every.grid)) > 0).all()

    @cached_property
    def zeroth(self) -> int:
        """Index of window 0 among the edges."""
        return self._anchor // self.length.step

    @cached_property
    def _counts(self) -> I64:
        """(k,) triggers of each window."""
        if isinstance(self.every, int):
            days = starts(self.zone, "day")
            each = np.zeros(len(days), np.int64)
            each[1:] = np.cumsum(-(-np.diff(days) // self.every))
            counts: I64 = np.diff(each[np.searchsorted(days, self.edges)])
            return counts
        places = np.searchsorted(starts(self.zone, self.every.grid), self.edges)
        return -(-np.diff(places) // self.every.step)

    @cached_property
    def horizon(self) -> int:
        """The largest number of triggers of any window."""
        return int(self._counts.max())

    @cached_property
    def fewest(self) -> int:
        """The smallest number of triggers of any window."""
        return int(self._counts.min())

    @cached_property
    def usual(self) -> int:
        """The commonest number of triggers of a window."""
        return int(np.bincount(self._counts).argmax())

    @property
    def alike(self) -> bool:
        """Whether all windows have the same number of triggers."""
        return self.horizon == self.fewest

    @cached_property
    def longest(self) -> int:
        """Length of the longest window, microseconds."""
        return int(np.diff(self.edges).max())

    @cached_property
    def longest_gap(self) -> int:
        """Bound on the time between two successive triggers, microseconds."""
        if isinstance(self.every, int):
            return self.every
        grid, step = starts(self.zone, self.every.grid), self.every.step
        return min(int((grid[step:] - grid[:-step]).max()), self.longest)

    def start(self, window: int) -> int:
        """First microsecond of a window.

        Raises:
            ConfigError: it lies before 1970 or after 2100.
        """
        place = window + self.zeroth
        if not 0 <= place < len(self.edges):
            raise ConfigError(f"window {window} of {self} lies before 1970 or after 2100")
        return int(self.edges[place])

    def window(self, time: int) -> int:
        """The window of an event time; all times before 1970 share one, as do those after 2100."""
        return int(np.searchsorted(self.edges, time, side="right")) - 1 - self.zeroth

    def windows(self, times: I64) -> I64:
        """(n,) windows of (n,) event times."""
        return np.searchsorted(self.edges, times, side="right").astype(np.int64) - 1 - self.zeroth

    def times(self, window: int) -> tuple[int, ...]:
        """Trigger times of a window, ascending; the last one is its end."""
        return _times(self, window)

    def _inner(self, start: int, end: int) -> tuple[int, ...]:
        if isinstance(self.every, int):
            days = starts(self.zone, "day")
            first, last = np.searchsorted(days, [start, end])
            return tuple(
                int(time)
                for a, b in zip(days[first:last], days[first + 1 : last + 1], strict=True)
                for time in (*range(int(a) + self.every, int(b), self.every), b)
                if a < b
            )
        grid = starts(self.zone, self.every.grid)
        first, last = np.searchsorted(grid, [start, end])
        inner = grid[first + self.every.step : last : self.every.step]
        return (*inner.tolist(), end)

    @property
    def digest(self) -> str:
        """SHA-256 of the zone's midnights, hexadecimal; the edges depend on nothing else."""
        return digest(self.zone)


@lru_cache(maxsize=1024)
def _times(calendar: Calendar, window: int) -> tuple[int, ...]:
    return calendar._inner(calendar.start(window), calendar.start(window + 1))


def _objection(length: CalendarSpan, every: CalendarSpan | int) -> str:
    """Say why windows cannot have triggers at this interval; empty if they can."""
    if isinstance(every, int):
        return "" if every < _DAY else "must be less than a day, or whole days"
    if length.grid != every.grid:
        return "" if length.grid == "month" else f"is no part of {length}"
    return f"does not divide window.length = {length}" if length.step % every.step else ""


def interval(every: CalendarSpan | int) -> CalendarSpan | int:
    """An interval between triggers; a duration of whole days becomes calendar days."""
    return (
        CalendarSpan.of(every // _DAY, "day")
        if isinstance(every, int) and every % _DAY == 0
        else every
    )


@lru_cache(maxsize=64)
def zone_of(name: str) -> ZoneInfo:
    """A time zone by the rules of the package `tzdata`.

    Raises:
        ConfigError: the package has no such zone.
    """
    root = resources.files("tzdata")
    known = root.joinpath("zones").read_text("utf-8").split()
    if name not in known:
        raise ConfigError(f"there is no time zone {name!r}: write one such as Europe/Berlin")
    with root.joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def not_a_zone(name: str) -> str:
    """Say why no machine may read a name as a time zone; empty if all can.

    >>> not_a_zone("Europe/Berlin"), not_a_zone("localtime")
    ('', '"localtime" is not a time zone: write one such as Europe/Berlin')
    """
    try:
        zone_of(name)
    except ConfigError:
        return f'"{name}" is not a time zone: write one such as Europe/Berlin'
    return ""


@lru_cache(maxsize=64)
def starts(zone: str, grid: str) -> I64:
    """(n,) starts of all days or months of a zone, microseconds since 1970, ascending.

    The first day is 1969-12-29, the first month January 1970.
    """
    days = _midnights(zone)
    if grid == "day":
        return days
    dates = (date(1970 + m // 12, m % 12 + 1, 1) for m in range((_END.year - 1970) * 12 + 1))
    return days[[(one - _FIRST).days for one in dates]]


@lru_cache(maxsize=64)
def _midnights(name: str) -> I64:
    zone, days = zone_of(name), (_END - _FIRST).days
    midnight = datetime(_FIRST.year, _FIRST.month, _FIRST.day)
    made = np.array(
        [_instant(midnight + timedelta(days=day), zone) for day in range(days + 1)], np.int64
    )
    made.flags.writeable = False
    return made


def midnight(zone: str, day: date) -> int:
    """First microsecond of a date in a zone, since 1970."""
    return _instant(datetime(day.year, day.month, day.day), zone_of(zone))


def _instant(wall: datetime, zone: ZoneInfo) -> int:
    """The first instant at which a zone's clock shows a time of day or a later one."""
    early = _utc(wall.replace(tzinfo=zone, fold=0))
    late = _utc(wall.replace(tzinfo=zone, fold=1))
    if early <= late:  # the time of day exists, once or twice
        return early * _SECOND
    # Clocks skip it: the offset before the jump puts it after the jump, the other before it.
    seconds = range(late, early)
    place = bisect_left(seconds, True, key=lambda second: _shown(second, zone) >= wall)
    return (late + place) * _SECOND


def _utc(moment: datetime) -> int:
    return int((moment.astimezone(UTC) - _1970).total_seconds())


def _shown(second: int, zone: ZoneInfo) -> datetime:
    return (_1970 + timedelta(seconds=second)).astimezone(zone).replace(tzinfo=None)


@lru_cache(maxsize=64)
def digest(zone: str) -> str:
    """SHA-256 of the midnights of a zone, hexadecimal."""
    return hashlib.sha256(_midnights(zone).astype("<i8").tobytes()).hexdigest()

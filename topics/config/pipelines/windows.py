"""Windows and triggers of a pipeline, as frozen dataclasses. Their docstrings are the reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from ...calendar import CalendarSpan
from ..toml.lines import Path
from ..toml.read import Convert, Reader, shown
from ..toml.values import UNIX_EPOCH, Duration, Instant, is_duration, span, within


def length_up_to(most: str) -> Convert:
    """A duration, or a number of days, weeks or months of the calendar."""

    def read(reader: Reader, raw: Any, path: Path) -> Duration | CalendarSpan:
        made = CalendarSpan.parse(raw) if isinstance(raw, str) else None
        if made is None:
            if not (isinstance(raw, str) and is_duration(raw)):
                raise reader.fail(
                    path,
                    f'{shown(raw)} must be a duration such as "5s", "1h30m" or "31d", or of the '
                    'calendar, such as "1 month" or "1 quarter"',
                )
            duration: Duration = reader.read(Annotated[Duration, span("1s", most)], raw, path)
            return duration
        if not 1 <= made.step * (30 if made.grid == "month" else 1) <= 3650:
            raise reader.fail(path, f'"{raw}" must lie between 1 day and 10 years')
        return made

    return Convert(read)


Length = Annotated[Duration | CalendarSpan, length_up_to("3650d")]


@dataclass(frozen=True)
class WindowSettings:
    """Windows of event time or of arrival.

    Attributes:
        length: length of a window of event time: a duration, or a number of days, weeks, months,
            quarters or years of the calendar such as `"1 month"`.
        hop: a divisor of `length`: windows overlap, and begin at this interval. Each is released
            once, at its end.
        horizon: instead of `length`, triggers per window; events then belong to the micro-batch in
            which they arrive.
        endless: instead of `length`, one window from `origin` on, without a stated end: one charge
            covers its releases for a century or 2^24 triggers, whichever comes first.
        origin: a time at which a window begins.
        zone: time zone whose midnights begin windows of the calendar; default: UTC.
    """

    length: Length | None = None
    hop: Annotated[Duration, span("1s", "3650d")] | None = None
    horizon: Annotated[int, within(1, 100_000)] | None = None
    endless: bool = False
    origin: Instant = UNIX_EPOCH
    zone: str | None = None


@dataclass(frozen=True)
class Triggers:
    """Times at which a window is released: the same number for every window of a fixed length.

    Attributes:
        every: interval between triggers; must divide the window's `length`. In windows of the
            calendar, days, weeks and months are counted in its zone, and shorter intervals from
            each midnight; the last trigger is at the window's end.
        cron: cron rule of the triggers, UTC, counted from the window's start.
        count: number of triggers per window, with `cron`.
    """

    every: Length | None = None
    cron: str | None = None
    count: Annotated[int, within(1, 100_000)] | None = None

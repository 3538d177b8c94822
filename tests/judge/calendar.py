"""Windows of the calendar, by local dates; the product uses a table of midnights instead."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

DAY = 86_400_000_000
FIRST = {"day": date(1970, 1, 1), "week": date(1969, 12, 29), "month": date(1970, 1, 1)}


class Calendar:
    """The windows of a canonical configuration, numbered from the origin.

    Only for zones whose clocks never jump across midnight.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        window = config["window"]
        self.zone = ZoneInfo(window["zone"])
        self.count, self.unit = _parts(window["length"])
        self.per_epoch = _parts(config["epoch"])[0] // self.count
        self.every = config["triggers"]["every"]
        self.zeroth = self._index(window["origin"]) if window["origin"] else 0
        self.horizon = max(self.triggers(n) for n in range(-self.zeroth, self._last()))

    def window(self, time: int) -> int:
        """The window of an event time in microseconds since 1970."""
        return (self._index(time) - self.zeroth) // self.count

    def start(self, window: int) -> int:
        """First microsecond of a window."""
        return self._midnight(self._date(window))

    def triggers(self, window: int) -> int:
        """Number of triggers of a window."""
        first, end = self._date(window), self._date(window + 1)
        if isinstance(self.every, int) and self.every % DAY:
            days = [first + timedelta(days=n) for n in range((end - first).days + 1)]
            edges = [self._midnight(day) for day in days]
            return sum(-((a - b) // self.every) for a, b in pairwise(edges))
        count, unit = _parts(self.every) if isinstance(self.every, str) else (
            self.every // DAY, "day")  # fmt: skip
        if unit == "month":
            return self.count // count
        return -(-(end - first).days // (count * (7 if unit == "week" else 1)))

    def _last(self) -> int:
        return self.window(int(datetime(2099, 1, 1, tzinfo=UTC).timestamp()) * 10**6)

    def _index(self, time: int) -> int:
        day = datetime.fromtimestamp(time / 1e6, self.zone).date()
        if self.unit == "month":
            return (day.year - 1970) * 12 + day.month - 1
        return (day - FIRST[self.unit]).days // (7 if self.unit == "week" else 1)

    def _date(self, window: int) -> date:
        index = self.zeroth + window * self.count
        if self.unit == "month":
            return date(1970 + index // 12, index % 12 + 1, 1)
        return FIRST[self.unit] + timedelta(days=index * (7 if self.unit == "week" else 1))

    def _midnight(self, day: date) -> int:
        wall = datetime(day.year, day.month, day.day, tzinfo=self.zone)
        return round(wall.timestamp()) * 10**6


def _parts(text: str) -> tuple[int, str]:
    count, unit = text.split()
    return int(count), unit.removesuffix("s")

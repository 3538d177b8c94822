"""Windows, triggers and epochs of a pipeline, from its public configuration."""

from typing import Any

from .calendar import Calendar
from .endless import Endless


class Windows:
    """What the canonical configuration of a pipeline states about time."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        every, given = config["triggers"]["every"], config["window"]
        self.arrival = given["horizon"] is not None
        dated = isinstance(given["length"], str)
        self.calendar = Calendar(config) if dated else None
        self.endless = Endless(every) if given.get("endless") else None
        self.length = 0 if dated else (
            every * self.endless.horizon if self.endless
            else given["length"] or given["horizon"] * every
        )  # fmt: skip
        self.hops = self.length // given.get("hop", self.length) if self.length else 1
        self.length //= self.hops
        self.horizon = self.calendar.horizon if self.calendar else (
            config["triggers"]["count"] or self.length // (every or self.length))  # fmt: skip
        self.per_epoch = (
            self.calendar.per_epoch if self.calendar else config["epoch"] // self.length
        )

    def start(self, window: int) -> int:
        """First microsecond of a window."""
        if self.calendar:
            return self.calendar.start(window)
        return int(self.config["window"]["origin"]) + window * self.length

    def opens(self, window: int) -> int:
        """First microsecond that a window's release covers."""
        return self.start(window + 1 - self.hops)

    def window(self, time: int) -> int:
        """The window of an event time."""
        if self.calendar:
            return self.calendar.window(time)
        return (time - self.start(0)) // self.length

    def triggers(self, window: int) -> int:
        """Number of triggers of a window."""
        return self.calendar.triggers(window) if self.calendar else self.horizon

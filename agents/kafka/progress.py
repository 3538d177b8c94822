"""Whether a task that works against the broker gets on: read by health pages, from any thread."""

from __future__ import annotations

import time


class Progress:
    """How one task gets on.

    Args:
        what: name of the task, for the log.

    Attributes:
        away: it waits for a broker that is away.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self.away = False
        self._since: float | None = None

    def moved(self) -> None:
        """Say that a part of the work is done, and more of it follows."""
        self._since = time.monotonic()

    def rest(self) -> None:
        """Say that there is nothing to do."""
        self._since = None

    def outage(self, away: bool) -> None:
        """Say whether the broker is away; each attempt to reach it counts as progress."""
        self.away = away
        self.moved()

    def stalled(self, seconds: float) -> bool:
        """Whether the task has work, and has done nothing of it for so long."""
        since = self._since
        return since is not None and time.monotonic() - since > seconds

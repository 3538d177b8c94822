"""Progress of tasks that work against the broker; health pages read it from any thread."""

from __future__ import annotations

import time


class Progress:
    """Progress of one task."""

    def __init__(self, what: str) -> None:
        self.what = what
        self._away: float | None = None
        self._since: float | None = None

    def moved(self) -> None:
        """Note that a part of the work is done, and more follows."""
        self._since = time.monotonic()

    def rest(self) -> None:
        """Note that there is nothing to do."""
        self._since = None

    @property
    def away(self) -> bool:
        """Whether the task waits for a broker that is away."""
        return self._away is not None

    def missed(self, seconds: float) -> bool:
        """Whether the broker has been away for more than ``seconds``."""
        since = self._away
        return since is not None and time.monotonic() - since > seconds

    @property
    def resting(self) -> bool:
        """Whether there is nothing to do."""
        return self._since is None

    def outage(self, away: bool) -> None:
        """Note whether the broker is away; each attempt to reach it counts as progress."""
        if not away:
            self._away = None
        elif self._away is None:
            self._away = time.monotonic()
        self.moved()

    def stalled(self, seconds: float) -> bool:
        """Whether the task has work, and has not moved for ``seconds``."""
        since = self._since
        return since is not None and time.monotonic() - since > seconds

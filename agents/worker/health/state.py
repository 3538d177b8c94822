"""Whether a worker lives and serves, from the progress of its tasks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from ...kafka.progress import Progress

log = logging.getLogger("hushstream.worker")


class Health:
    """What `/live` and `/ready` answer; may be asked from any thread.

    Args:
        watched: tasks that should get on.
        patience: seconds without progress after which a task hangs.

    Attributes:
        serving: whether the worker has what the group assigned to it.
    """

    def __init__(self, watched: Callable[[], Iterable[Progress]], patience: float) -> None:
        self.serving = False
        self._watched = watched
        self._patience = patience
        self._told: set[str] = set()

    def live(self) -> bool:
        """Whether every task gets on; one that hangs is logged once."""
        hanging = {one.what for one in self._watched() if one.stalled(self._patience)}
        for what in sorted(hanging - self._told):
            log.error("%s has made no progress for %g s: not live", what, self._patience)
        self._told = hanging
        return not hanging

    def ready(self) -> bool:
        """Whether the worker serves: it is live, and reaches the broker."""
        return self.serving and not any(one.away for one in self._watched()) and self.live()

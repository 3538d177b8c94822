"""The health of a worker, told by the progress of its tasks: does it live, does it serve?"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from ...kafka.progress import Progress

ANSWER_SECONDS = 15.0
"""Seconds without an answer of the cluster from which a worker is not ready; it asks every 5 s."""
AWAY_SECONDS = 5.0
"""Seconds that a task must wait for a broker until its worker is not ready.

A request that was under way when a broker died may fail when the broker has been back for long; the
attempt that follows tells."""
log = logging.getLogger("hushstream.worker")


class Health:
    """The answers of `/live` and `/ready`; any thread may ask.

    Args:
        patience: seconds without progress after which a task counts as hanging.
        answers: moves whenever the cluster has answered.

    Attributes:
        serving: whether the worker has what the group assigned to it.
    """

    def __init__(
        self, watched: Callable[[], Iterable[Progress]], patience: float, answers: Progress
    ) -> None:
        self.serving = False
        self._answers = answers
        self._watched = watched
        self._patience = patience
        self._told: set[str] = set()

    def live(self) -> bool:
        """Whether every task makes progress; one that hangs is logged once."""
        hanging = {one.what for one in self._watched() if one.stalled(self._patience)}
        for what in sorted(hanging - self._told):
            log.error("%s has made no progress for %g s: not live", what, self._patience)
        self._told = hanging
        return not hanging

    def ready(self) -> bool:
        """Whether the worker serves: it is live, and reaches the broker."""
        # A broker that is away makes a worker not ready and leaves it live: a restart would not
        # bring the broker back, and every worker would restart at once. A task that waits for an
        # answer learns late that none comes, so a short question is asked beside them.
        reached = not self._answers.stalled(ANSWER_SECONDS)
        away = any(one.missed(AWAY_SECONDS) for one in self._watched())
        return self.serving and reached and not away and self.live()

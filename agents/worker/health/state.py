"""The health of a worker, derived from the progress of its tasks: is it live, is it ready?"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from ...kafka.progress import Progress

ANSWER_SECONDS = 15.0
"""Seconds without an answer of the cluster after which a worker is not ready; it asks every 5 s."""
AWAY_SECONDS = 5.0
"""Seconds for which a task may wait for a broker before its worker counts as not ready.

A request that was in flight when a broker died may fail long after the broker is back; the next
attempt shows whether it is."""
log = logging.getLogger("hushstream.worker")


class Health:
    """The answers of `/live` and `/ready`; any thread may ask.

    Args:
        patience: seconds without progress after which a task counts as hanging.
        answers: progress that moves whenever the cluster has answered.

    Attributes:
        serving: whether the worker has opened what the group assigned to it.
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
        # A worker whose broker is away is not ready but still live: a restart would not bring the
        # broker back, and every worker would restart at once. A waiting task notices an outage
        # late, so a short request is sent every few seconds as well.
        reached = not self._answers.stalled(ANSWER_SECONDS)
        away = any(one.missed(AWAY_SECONDS) for one in self._watched())
        return self.serving and reached and not away and self.live()

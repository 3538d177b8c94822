"""The start of a worker in its group: a worker that cannot join says so, and ends."""

from __future__ import annotations

import logging
import time

from ....errors import EngineError

SAID_SECONDS = 60.0
LOOK_SECONDS = 5.0  # counted between two looks, at most

log = logging.getLogger("hushstream.worker")


class Joining:
    """Watches whether the consumer group admits a worker.

    If the group's coordinator has no leader although all other partitions have one, or if the
    broker goes away during a rebalance, the client library looks for the coordinator without end.

    Args:
        patience: microseconds, `kafka.outage_timeout`.
    """

    def __init__(self, patience: int) -> None:
        self._patience = patience / 1e6
        self._looked = time.monotonic()
        self._waited = self._said = 0.0

    def look(self, joined: bool) -> EngineError | None:
        """Note whether the group has assigned partitions; return an error if it did not in time."""
        now = time.monotonic()
        # Time in which the process was suspended does not count.
        self._waited += min(now - self._looked, LOOK_SECONDS)
        self._looked = now
        if joined:
            self._waited = self._said = 0.0
        elif self._waited > self._patience:
            return EngineError(
                "joining the consumer group: no partitions were assigned for "
                f"{self._patience:g} s (kafka.outage_timeout): the broker is away, the group's "
                "coordinator has no leader, or its members take longer than that for a rebalance"
            )
        elif self._waited - self._said >= SAID_SECONDS:
            self._said = self._waited
            log.warning("joining the consumer group: waiting for it to assign partitions, for up "
                        "to %g s", self._patience)  # fmt: skip
        return None

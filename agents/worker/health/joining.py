"""The start of a worker in its group: one that is not taken in says so, and ends."""

from __future__ import annotations

import logging
import time

from ....errors import EngineError

SAID_SECONDS = 60.0
LOOK_SECONDS = 5.0  # between two looks, at most

log = logging.getLogger("hushstream.worker")


class Joining:
    """Watches that the consumer group takes a worker in.

    The group's coordinator may have no leader although everything else has one, or the broker goes
    away during a rebalance. The client library then looks for it without end.

    Args:
        patience: microseconds, `kafka.outage_timeout`.
    """

    def __init__(self, patience: int) -> None:
        self._patience = patience / 1e6
        self._looked = time.monotonic()
        self._waited = self._said = 0.0

    def look(self, joined: bool) -> EngineError | None:
        """Note whether the group has assigned partitions; an error where it never did."""
        now = time.monotonic()
        # A process that stood still has not waited.
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

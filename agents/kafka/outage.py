"""Log lines about outages of brokers: one at the beginning, and one at the end.

While a broker is away, each client of each shard tries again many times a second, and the libraries
log every attempt. None of these lines adds anything to the first one, so they count as signs of one
outage and are logged at level debug only.
"""

from __future__ import annotations

import logging
import re
import threading
import time

log = logging.getLogger("hushstream.kafka")

QUIET_SECONDS = 5.0  # without a sign, after which an answer ends the outage
CHANGE = {"change": True}  # marks a line about a change of state, which is never held back
LIBRARIES = ("aiokafka", "kafka", "mode", "faust")
SIGNS = re.compile(
    r"Unable connect to|Unable to (update|request) metadata|Failed fetch (messages|offsets) from|"
    r"Group Coordinator Request failed|marking (the )?coordinator dead|"
    r"Marking the coordinator dead|Heartbeat send request failed|Could not send "
)
STALLED = "Thread keepalive is not responding"  # the health page reports such a thread


def is_sign(record: logging.LogRecord) -> bool:
    """Whether a library's line says that a broker does not answer."""
    return _by_library(record) and SIGNS.search(str(record.msg)) is not None


def is_noise(record: logging.LogRecord) -> bool:
    """Whether a library's line repeats what the worker itself watches and reports."""
    return _by_library(record) and STALLED in str(record.msg)


def _by_library(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] in LIBRARIES


class Outage:
    """The current outage of brokers, for one process; usable from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._began: float | None = None
        self._last = 0.0

    def sign(self, why: str) -> None:
        """Note that a broker did not answer; the first sign of an outage is logged.

        Args:
            why: type of an error, or another text without content of records.
        """
        now = time.monotonic()
        with self._lock:
            first = self._began is None
            if first:
                self._began = now
            self._last = now
        if first:
            log.warning("a broker does not answer (%s): waiting for it", why, extra=CHANGE)

    def answered(self) -> None:
        """Note an answer; the end of an outage is logged with its length.

        Some brokers may answer while others are away, so an outage ends only after `QUIET_SECONDS`
        without a sign.
        """
        with self._lock:
            if self._began is None or time.monotonic() - self._last < QUIET_SECONDS:
                return
            length, self._began = self._last - self._began, None
        log.warning("the brokers answer again, after %.0f s", length, extra=CHANGE)


OUTAGE = Outage()
"""The outage of this process, which has one log."""

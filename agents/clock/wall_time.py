"""Time and pace of the clock's owner: it follows the monotonic clock, checked against the broker's.

After an outage it waits, so that producers can send buffered records: see `Settling`.
"""

from __future__ import annotations

import logging
import math
import time
from typing import Any

from ...errors import EngineError

log = logging.getLogger("hushstream.clock")

JUMP_SECONDS = 5.0
ASK_SECONDS = 10.0  # between two questions to the broker whether a changed clock is right
HURRY_SECONDS = 2.0  # after a request
NEAR_SECONDS = 0.25  # between two beats at most while a trigger is near
LEAST_SECONDS = 0.05  # between two beats at least, however many requests come
SOON = 2_000_000  # microseconds; more than a usual rest, and than one correction of a drift
STEADY = 10_000_000  # microseconds between two beats at most, if triggers follow this clock
SILENT = 5_000_000  # microseconds without an answer, beyond the usual rest, that mean an outage
WATCHED = 20_000_000  # the same, between two looks of a worker that does not own the clock
STOOD = 30_000_000  # microseconds without a beat, beyond the usual rest: no owner
APPENDED = 1  # timestamp type of a topic whose records are stamped by the broker


class WallClock:
    """Wall-clock time that neither jumps nor runs backwards while this process runs.

    It follows the monotonic clock from its start, and small drifts of the wall clock. A wall clock
    that was set forwards would fire triggers early, so it is followed only if the broker's clock
    agrees. A wall clock that was set back would write times that the log has passed, so it is never
    followed.

    Args:
        floor: time that has certainly been reached, microseconds since 1970.
    """

    def __init__(self, floor: int = 0) -> None:
        self._wall = max(time.time(), floor / 1e6)
        self._tick = time.monotonic()
        self._asked = self._tick - ASK_SECONDS
        self._warned = False

    def reach(self, moment: int) -> None:
        """Learn from the clock log that a time has been reached."""
        self._tick_on()  # otherwise the time since the last look would be added to the moment
        self._wall = max(self._wall, moment / 1e6)

    def agree(self, moment: int) -> None:
        """Learn that the broker's clock has reached a time; follow the wall clock up to that.

        So a worker that started with a clock far behind is late only until its clock is set right.
        """
        self.reach(min(moment, int(time.time() * 1e6)))

    def doubtful(self) -> bool:
        """Whether to ask the broker for its time now, because the wall clock was set."""
        self._tick_on()
        if time.time() - self._wall < JUMP_SECONDS or self._tick - self._asked < ASK_SECONDS:
            return False
        self._asked = self._tick
        return True

    def now(self) -> int:
        """Return the time, microseconds since 1970."""
        self._tick_on()
        ahead = time.time() - self._wall
        if 0 < ahead < JUMP_SECONDS:  # drift; more than that is a clock that was set
            self._wall += ahead * 0.1  # a part at each look, so that no beat jumps
        if (back := ahead < -JUMP_SECONDS) and not self._warned:
            log.warning(
                "the clock of this machine was set back by %.0f s, or is that far behind the clock "
                "log: triggers follow elapsed time instead",
                -ahead,
            )
        self._warned = back
        return int(self._wall * 1e6)

    def _tick_on(self) -> None:
        tick = time.monotonic()
        self._wall += tick - self._tick
        self._tick = tick


class ClockLead:
    """Compares a clock record's time with the broker's; ``most_ahead`` microseconds are tolerated.

    A record is made before it is appended, so a positive difference means that this clock is ahead
    of the broker's, however slow the transfer was. A clock behind only delays triggers.
    """

    def __init__(self, topic: str, most_ahead: int) -> None:
        self._topic = topic
        self._most = most_ahead
        self._warned = False

    def check(self, made: int, metadata: Any) -> None:
        """Compare the time in a record with the broker's answer, whose time is in milliseconds.

        Raises:
            EngineError: the clock is ahead, or the topic does not record the broker's time.
        """
        if metadata.timestamp_type != APPENDED:
            raise EngineError(
                f"topic {self._topic} must have message.timestamp.type=LogAppendTime: without the "
                "broker's time a wrong clock here would go unnoticed; alter the topic and restart"
            )
        ahead = made - metadata.timestamp * 1000
        if ahead > self._most:
            raise EngineError(
                f"the clock of this machine, or the clock log, is {ahead / 1e6:.1f} s ahead of the "
                "broker's clock: triggers would fire too early; synchronise the clocks (NTP) of "
                "workers and brokers, then restart (tolerated: engine.max_clock_lead)"
            )

    def check_behind(self, now: int, metadata: Any, first: bool) -> None:
        """Compare the time at which the broker appended a record with the time of its answer here.

        The answer comes after the record was appended, so a positive difference means that this
        clock is behind the broker's, however slow the transfer was.

        Args:
            first: whether the record sets a pipeline's first window.

        Raises:
            EngineError: the clock is behind, so a first window would be one that is already over.
        """
        behind = metadata.timestamp * 1000 - now
        if behind <= self._most:
            self._warned = False
        elif first:
            raise EngineError(
                f"the clock of this machine is {behind / 1e6:.1f} s behind the broker's: a "
                "pipeline would begin with a past window, and pay for all windows since; "
                "synchronise the clocks (NTP) of workers and brokers, then restart (tolerated: "
                "engine.max_clock_lead)"
            )
        elif not self._warned:
            self._warned = True
            log.warning("triggers are late: this clock is %.0f s behind the broker's", behind / 1e6)


class Pace:
    """The times of beats: every so many seconds, and more often while something public is near.

    No record moves them: the beat that covers a record is the next one, whatever came before it
    (`docs/guarantee.md`, side channels). A beat that took too long is followed by another at once.

    Args:
        seconds: time between two beats.

    Attributes:
        least: seconds of the shortest rest.
        longest: time between two beats, microseconds.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds, self._near = seconds, min(seconds, NEAR_SECONDS)
        self._first = self._began = time.monotonic()
        self._hurried = self._first - HURRY_SECONDS
        self.least = min(LEAST_SECONDS, seconds)
        self.longest = int(1e6 * seconds)

    def begin(self) -> None:
        """Note that a beat begins."""
        self._began = time.monotonic()

    def hurry(self) -> None:
        """Note that a request came: more may follow."""
        self._hurried = time.monotonic()

    def left(self, soon: bool) -> int:
        """Return the milliseconds left until the next beat; 0 if it is due.

        Args:
            soon: whether a trigger is near.
        """
        now = time.monotonic()
        hurried = now - self._hurried < HURRY_SECONDS
        step = self._near if soon or hurried else self._seconds
        beats = (self._began - self._first) // step + 1
        return max(math.ceil(1000 * (self._first + beats * step - now)), 0)


class Settling:
    """Holds back triggers after an outage, ``settle`` microseconds or more; see `holds`.

    While the brokers are away, producers buffer records. A cut at the first answer afterwards would
    make all of these late. How long producers take depends on raw data, so the wait is a setting:
    waiting until records stop would show when they did.

    The cause of a wait is public or a fault: a broker did not answer, no beat was written for long
    (one comes every `STEADY`, with or without new records), or a trigger is overdue. Each process
    has one object for its whole life, also while other workers own the clock.

    Times are microseconds since 1970, of a `WallClock`.
    """

    def __init__(self, settle: int) -> None:
        self._settle = settle
        self._seen = 0  # last look of this process at its logs; 0: none yet
        self._heard = 0  # last answer to the clock's owner
        self._began = self._returned = 0  # begin and end of the last outage

    def watched(self, now: int) -> None:
        """Note an answer to one of the regular looks of a worker at its logs."""
        known = max(self._seen, self._heard)
        if known and now - known > WATCHED:
            self._outage(known, now)
        self._seen = now

    def answered(self, now: int, usual: int) -> None:
        """Note an answer to the clock's owner; after a long silence it ends an outage.

        Args:
            usual: normal time between two beats.
        """
        if self._heard and now - self._heard > SILENT + usual:
            self._outage(self._heard, now)
        self._heard = now

    def opened(self, now: int, last: int, overdue: int | None, usual: int) -> None:
        """Take over a clock, which may have had no owner for a while.

        Args:
            last: time of the last record of the clock log; 0: it has none.
            overdue: scheduled time of the first due trigger; None: none is due.
        """
        self.watched(now)
        self._heard = now
        # The last owner may have held an overdue trigger back when it ended.
        since = [last or now, now if overdue is None else overdue]
        if last and now - min(since) > STOOD + usual:
            self._outage(min(since), now)

    def _outage(self, began: int, now: int) -> None:
        waiting = self._returned <= now < self._returned + self._settle
        self._began = min(began, self._began) if waiting else began
        self._returned = now
        log.warning(
            "the brokers, or the clock's owner, were away for %.0f s: triggers wait %g s, or for "
            "`lateness`, so that producers can send what they hold (engine.settle)",
            (now - self._began) / 1e6, self._settle / 1e6,
        )  # fmt: skip

    def holds(self, scheduled: int, lateness: int, now: int) -> bool:
        """Whether a due trigger must wait.

        Lateness counts only while brokers are reachable: a trigger that was due before their return
        waits for all of it, a later trigger for the part that fell into the outage.

        Args:
            lateness: lateness of the pipeline, microseconds.
        """
        self._returned = min(self._returned, now)  # if the clock was set since the outage
        whole = self._returned + lateness
        if scheduled > self._returned:
            whole = min(whole, scheduled + self._returned - self._began)
        return self._returned > 0 and now < max(self._returned + self._settle, whole)

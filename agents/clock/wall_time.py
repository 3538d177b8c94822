"""The clock owner's time and pace: it follows the monotonic clock, held against the broker's.

After an outage it waits, so that producers can send what they hold: see `Settling`.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from ...errors import EngineError

log = logging.getLogger("hushstream.clock")

JUMP_SECONDS = 5.0
ASK_SECONDS = 10.0  # between two questions to the broker, whether a clock that was set is right
QUIET_SECONDS = 2.0  # without a record of the clock or a request, after which it beats less often
QUIET_BEAT_SECONDS = 1.0
LEAST_SECONDS = 0.05  # between two beats, however many requests come
SOON = 2_000_000  # microseconds; more than a quiet rest, and than a drift is followed in one
STEADY = 10_000_000  # microseconds between two beats, at most, where triggers follow this clock
SILENT = 5_000_000  # microseconds without an answer, beyond the usual rest: the brokers were away
WATCHED = 20_000_000  # the same between two looks of a worker that does not own the clock
STOOD = 30_000_000  # microseconds without a beat, beyond the usual rest: nobody kept the clock
APPENDED = 1  # the timestamp type of a topic whose broker stamps records


class WallClock:
    """Wall-clock time that neither jumps nor goes back while this process runs.

    It follows the monotonic clock from where it started, and small drifts of the wall clock. A wall
    clock that was set forwards would fire triggers before their time, so it is followed only where
    the broker's clock agrees; one that was set back would write times that the log has passed, so
    it is never followed.

    Args:
        floor: a time that has certainly come, microseconds since 1970.
    """

    def __init__(self, floor: int = 0) -> None:
        self._wall = max(time.time(), floor / 1e6)
        self._tick = time.monotonic()
        self._asked = self._tick - ASK_SECONDS
        self._warned = False

    def reach(self, moment: int) -> None:
        """Learn from the clock log that a time has come."""
        self._tick_on()  # or the time since the last look would be added to the moment
        self._wall = max(self._wall, moment / 1e6)

    def agree(self, moment: int) -> None:
        """Learn that the broker's clock has reached a time: what both clocks say has come.

        A worker that began with a clock far behind goes on late until its clock is set right, and
        no longer.
        """
        self.reach(min(moment, int(time.time() * 1e6)))

    def doubtful(self) -> bool:
        """Whether the broker should be asked for its time now, since the wall clock was set."""
        self._tick_on()
        if time.time() - self._wall < JUMP_SECONDS or self._tick - self._asked < ASK_SECONDS:
            return False
        self._asked = self._tick
        return True

    def now(self) -> int:
        """Tell the time, in microseconds since 1970."""
        self._tick_on()
        ahead = time.time() - self._wall
        if 0 < ahead < JUMP_SECONDS:  # drift; more than that is a clock that was set
            self._wall += ahead * 0.1  # a part at each look, so that no beat sees a jump
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

    The record was made before it was appended, so however slow the way was, a positive
    difference is a clock ahead of the broker's. A clock behind only delays triggers.
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

        The answer came after the record was appended, so a positive difference is a clock behind
        the broker's, however slow the way was.

        Args:
            first: whether the record says in which window a pipeline begins.

        Raises:
            EngineError: the clock is behind, and a first window would be one that is over.
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
    """The rest between two beats: longer while nothing comes and nothing is due.

    A beat without new records writes nothing, and asks the broker all the same.

    Args:
        seconds: time between two beats while there is something to do.

    Attributes:
        least: seconds of any rest.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._stirred = self._began = time.monotonic()
        self.least = min(LEAST_SECONDS, seconds)

    def begin(self) -> None:
        """Note that a beat begins."""
        self._began = time.monotonic()

    def stir(self) -> None:
        """Note that there was something to do."""
        self._stirred = time.monotonic()

    def left(self, soon: bool) -> float:
        """Tell how many seconds are left until the next beat; 0 if it is due."""
        now = time.monotonic()
        quiet = not soon and now - self._stirred > QUIET_SECONDS
        seconds = max(self._seconds, QUIET_BEAT_SECONDS) if quiet else self._seconds
        return max(self._began + seconds - now, 0.0)

    @property
    def longest(self) -> int:
        """The longest rest between two beats, microseconds."""
        return int(1e6 * max(self._seconds, QUIET_BEAT_SECONDS))


class Settling:
    """Holds back triggers after an outage, ``settle`` microseconds or more; see `holds`.

    While the brokers are away, producers buffer. A cut at the first answer afterwards would leave
    all of that behind, and late. How long it takes them depends on raw data, so the wait is a
    setting: a wait until no more comes would show when that was.

    What begins a wait is public or a fault: a broker did not answer, no beat was written for long
    (one comes every `STEADY`, with or without new records), or a trigger is overdue. One object
    serves a process for all of its life, also while other workers own the clock.

    Times are microseconds since 1970, of a `WallClock`.
    """

    def __init__(self, settle: int) -> None:
        self._settle = settle
        self._seen = 0  # the last look of this process at its logs; 0: there was none
        self._heard = 0  # the last answer to the clock's owner
        self._began = self._returned = 0  # the last outage, from when to when

    def watched(self, now: int) -> None:
        """Take an answer to one of the looks at logs that a worker always takes."""
        known = max(self._seen, self._heard)
        if known and now - known > WATCHED:
            self._outage(known, now)
        self._seen = now

    def answered(self, now: int, usual: int) -> None:
        """Take an answer to the clock's owner, which ends an outage if there was none for long.

        Args:
            usual: time between two beats that means nothing.
        """
        if self._heard and now - self._heard > SILENT + usual:
            self._outage(self._heard, now)
        self._heard = now

    def opened(self, now: int, last: int, overdue: int | None, usual: int) -> None:
        """Take over a clock, which may have been without an owner for a while.

        Args:
            last: time of the last record of the clock log; 0: it has none.
            overdue: time for which the first trigger that is due was scheduled; None: none is due.
        """
        self.watched(now)
        self._heard = now
        # An overdue trigger may be one that the last owner held back when it ended.
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
        """Whether a trigger that is due must wait.

        `lateness` counts from what the brokers could take: all of it from their return on for a
        trigger that was due before, and for a later one the part of it that the outage took.

        Args:
            lateness: the pipeline's lateness, a part of that time.
        """
        self._returned = min(self._returned, now)  # a clock that was set since the outage
        whole = self._returned + lateness
        if scheduled > self._returned:
            whole = min(whole, scheduled + self._returned - self._began)
        return self._returned > 0 and now < max(self._returned + self._settle, whole)

"""Timelines: the state of each pipeline at a point of the clock log, a fold over its records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...errors import EngineError, RewoundError
from ...topics.records import (
    ClockRecord,
    PipelineStanding,
    Retired,
    Skipped,
    Snapshot,
    Start,
    Trigger,
)

NEVER = 1 << 62
"""Above every window, so that all windows of a retired pipeline are below it."""


@dataclass
class Timeline:
    """Triggers of one pipeline so far."""

    horizon: int  # triggers per window
    # the first window that is served; None before the pipeline has started
    first: int | None = None
    ordinal: int = 0  # number of the last trigger
    done: dict[int, int] = field(default_factory=dict)  # fired triggers of each open window
    # windows that had their last trigger or were skipped, at or above ``floor``
    closed: set[int] = field(default_factory=set)
    floor: int = 0  # every window below it is closed
    # the first window that a retired pipeline does not serve; None: it goes on
    end: int | None = None

    @classmethod
    def at(cls, standing: PipelineStanding, horizon: int) -> Timeline:
        """Make the timeline of a standing."""
        return cls(
            horizon,
            standing.first,
            standing.ordinal,
            dict(standing.done),
            set(standing.closed),
            standing.floor,
            standing.end,
        )

    def standing(self) -> PipelineStanding:
        """Make the standing of this pipeline, for a snapshot."""
        return PipelineStanding(
            self.first,
            self.ordinal,
            self.floor,
            sorted(self.done.items()),
            sorted(self.closed),
            self.end,
        )

    @property
    def ended(self) -> bool:
        """Whether the pipeline is retired and has had its last trigger."""
        return self.end is not None and self.floor >= self.end

    @property
    def over(self) -> int:
        """The first window that may still have rows; rows below it may be deleted."""
        return NEVER if self.ended else self.floor

    def apply(self, record: ClockRecord) -> None:
        """Advance by one record of this pipeline.

        Raises:
            RewoundError: an earlier trigger is missing.
        """
        if isinstance(record, Start):
            self.first = self.floor = record.window
        elif isinstance(record, Skipped):
            for window in range(record.window, record.end):
                self._close(window)
        elif isinstance(record, Retired):
            if self.end is not None or any(w >= record.window for w in self.done):
                raise RewoundError(
                    f"the clock log retires pipeline {record.pipeline!r} a second time, or below "
                    "a window that it has released"
                )
            self.end = record.window
        elif isinstance(record, Trigger):
            self._trigger(record)

    def _trigger(self, record: Trigger) -> None:
        expected = self.done.get(record.window, 0) + 1
        begun = self.first is not None
        if self.end is not None and record.window >= self.end:
            raise RewoundError(
                f"the clock log of pipeline {record.pipeline!r} has a trigger of window "
                f"{record.window}, and retired it before window {self.end}"
            )
        if not begun or record.ordinal != self.ordinal + 1 or record.index != expected:
            raise RewoundError(
                f"the clock log of pipeline {record.pipeline!r} has a gap: "
                f"trigger {record.ordinal} follows trigger {self.ordinal}"
            )
        self.ordinal = record.ordinal
        self.done[record.window] = record.index
        if record.final:
            self._close(record.window)

    def _close(self, window: int) -> None:
        self.done.pop(window, None)
        self.closed.add(window)
        # Overlapping windows close out of order. The floor passes every run of closed windows, or
        # the set would grow for ever.
        while self.floor in self.closed:
            self.closed.discard(self.floor)
            self.floor += 1

    def retired(self, window: int) -> bool:
        """Whether a window lies beyond the end of a retired pipeline."""
        return self.end is not None and window >= self.end

    def batch(self, window: int) -> int:
        """Number the open micro-batch of a window, from 1; 0 if the window takes no records."""
        if self.first is None or window < self.floor or window in self.closed:
            return 0
        if self.retired(window):
            return 0
        return self.done.get(window, 0) + 1


class Over:
    """Windows of one pipeline that are over, for a shard that has closed a number of triggers.

    Unlike a `Timeline`, it may be ahead of the shard in the clock log. From that part only refusals
    count: nothing of a refused window will ever be released, wherever a shard is.

    Attributes:
        version: grows whenever an answer of `floor` may change.
    """

    def __init__(self) -> None:
        self.version = 0
        self._first: int | None = None
        self._final: dict[int, int] = {}  # window -> ordinal of its last trigger
        self._refused: dict[int, int] = {}  # window -> end of its refused epoch
        self._before: dict[
            int, int
        ] = {}  # window -> ordinal of the last trigger before its refusal
        self._fired = 0
        self._least = 0  # every shard has closed as many: what they ended is dropped

    def apply(self, record: ClockRecord) -> None:
        """Take the next record of this pipeline."""
        if isinstance(record, Trigger):
            self._fired = record.ordinal
        if isinstance(record, Start):
            self._first = record.window
        elif isinstance(record, Skipped):
            self._refused[record.window] = record.end
            self._before[record.window] = self._fired
        elif isinstance(record, Retired):
            self._refused[record.window] = NEVER
        elif isinstance(record, Trigger) and record.final:
            self._final[record.window] = record.ordinal
        else:
            return
        self.version += 1

    def rebase(self, standing: PipelineStanding) -> None:
        """Drop what every shard has passed: all have closed the triggers in ``standing``."""
        self._first, self._least = standing.floor, standing.ordinal
        self._fired = max(self._fired, standing.ordinal)
        if standing.first is None:
            self._first = None
        below = standing.floor
        self._final = {w: n for w, n in self._final.items() if w >= below}
        self._refused = {w: end for w, end in self._refused.items() if end > below}
        self._before = {w: n for w, n in self._before.items() if w in self._refused}
        if standing.end is not None:
            self._refused[standing.end] = NEVER
        for window in standing.closed:
            if window not in self._refused:
                self._final.setdefault(window, standing.ordinal)

    def floor(self, ordinal: int, since: int | None = None) -> int | None:
        """Find the first window that is not over, from an earlier answer on; None before the start.

        Raises:
            EngineError: the shard is behind the oldest snapshot that was needed.
        """
        if self._first is None:
            return None
        if ordinal < self._least:
            raise EngineError(
                "the clock log was trimmed above the place where this shard stands: its state is "
                "older than what the clock's owner has seen of it"
            )
        window = self._first if since is None else max(since, self._first)
        while True:
            if self._final.get(window, ordinal + 1) <= ordinal:
                window += 1
            elif window in self._refused:
                window = self._refused[window]
            else:
                return window

    def met(self, ordinal: int, since: int | None = None) -> int | None:
        """Find the first window whose records may still come in a log that lags behind the clock.

        Unlike `floor`, this depends on the log alone, not on how much of the clock log was read: a
        refused window is over once a trigger after its refusal is closed.

        Args:
            ordinal, since: the same as for `floor`.

        Returns:
            The window; None if it is not known yet.
        """
        if self._first is None or ordinal <= self._least:
            return since
        window = self._first if since is None else max(since, self._first)
        while True:
            if self._final.get(window, ordinal + 1) <= ordinal:
                window += 1
            elif self._before.get(window, ordinal) < ordinal:
                window = self._refused[window]
            else:
                return window


def fold(records: Iterable[ClockRecord], horizons: dict[str, int]) -> dict[str, Timeline]:
    """Fold records into timelines.

    Args:
        records: clock log, from its beginning.
        horizons: triggers per window, by pipeline.

    Raises:
        RewoundError: a trigger is missing among the records.
    """
    timelines = {name: Timeline(horizon) for name, horizon in horizons.items()}
    for record in records:
        advance(timelines, record)
    return timelines


def advance(timelines: dict[str, Timeline], record: ClockRecord) -> None:
    """Apply one clock record to the pipeline that it belongs to; snapshots change nothing.

    Raises:
        RewoundError: the log has a gap.
        EngineError: it contradicts a snapshot.
    """
    if isinstance(record, Snapshot):
        for name, timeline in timelines.items():
            if timeline.standing() != record.pipelines.get(name, PipelineStanding()):
                raise EngineError(
                    f"the clock log of pipeline {name!r} contradicts its snapshot: records of it "
                    "are missing; restore the topic"
                )
        return
    owner = getattr(record, "pipeline", None)
    if owner in timelines:
        timelines[owner].apply(record)


def resumed(snapshot: Snapshot, horizons: dict[str, int]) -> dict[str, Timeline]:
    """Timelines of all pipelines at a snapshot."""
    blank = PipelineStanding()
    return {
        name: Timeline.at(snapshot.pipelines.get(name, blank), horizon)
        for name, horizon in horizons.items()
    }


def copied(timelines: dict[str, Timeline]) -> dict[str, Timeline]:
    """Copy timelines, so that the copies advance independently."""
    return {name: Timeline.at(one.standing(), one.horizon) for name, one in timelines.items()}

"""The end of a window at a stage: later records of it are dropped, and its rows are deleted.

All three stages share this module. A stage knows how to delete its own rows; this module decides
when, and how many at a time.
"""

from __future__ import annotations

from collections.abc import Callable

from ...topics.records import Marker
from ..clock.timeline import NEVER, Over
from ..state.store import StateReader
from .step import Step

GARBAGE = 2_000  # expired rows deleted in one step
_IDLE = 10  # times as many in a step that does nothing else

Delete = Callable[[StateReader, int, Step, int], bool]
"""Adds deletions of rows below a floor of windows, up to a limit, to a step; True if any."""


class Expiry:
    """Windows of one pipeline that are over at one stage.

    A window is over after its last release, or when the clock has refused it. Only *committed*
    releases count: a step may fail and be repeated, and if it had deleted a row already, the row's
    unit would get a second bound.

    If units have a purse for many windows, they also pay for records of a refused window that
    precede the refusal in the log. That must not depend on how far ahead the clock log was read, so
    a refused window is then over only when none of its records can come any more.

    Args:
        delete: deletes rows of windows below a floor; called with reader, floor, step and limit.
        purse_of: returns the first window that shares a purse with a window; None: there is no
            purse, and a refused window is over at once.

    Attributes:
        floor: window below which all windows are over; None: not known yet.
    """

    def __init__(self, delete: Delete, purse_of: Callable[[int], int] | None = None) -> None:
        self._delete = delete
        self._purse_of = purse_of
        self.reopen()

    def reopen(self) -> None:
        """Forget which windows are over: the step that ended them may not be committed."""
        self.floor: int | None = None
        self._seen: tuple[int, int] | None = None
        self._left = False  # rows may be left below the floor
        self._moved = False  # the floor has moved in the step that is being computed

    def past(self, window: int) -> bool:
        """Whether ``window`` is over, so that its records are dropped."""
        return self.floor is not None and window < self.floor

    def advance(self, floor: int) -> None:
        """Note that windows below ``floor`` are over."""
        if floor != self.floor:
            self.floor = floor
            self._left = self._moved = True

    def consult(self, over: Over, marker: Marker, pipeline: str) -> None:
        """Advance to the floor given by marker and clock (``over``); called before each step.

        Nothing of a refused window will ever be released, so it is over at once, however far this
        stage is.
        """
        closed = marker.closed.get(pipeline, 0)
        if (closed, over.version) == self._seen:
            return
        self._seen = closed, over.version
        floor = over.floor(closed, self.floor)
        if floor is not None and self._purse_of is not None and floor < NEVER:
            # Once all windows that share a purse are over, nothing depends on it any more.
            floor = max(self._purse_of(floor), over.met(closed, self.floor) or 0)
        if floor is not None:
            self.advance(floor)

    def sweep(self, reader: StateReader, step: Step, limit: int | None = None) -> bool:
        """Add deletions of expired rows to a step; return whether there were any.

        Args:
            limit: most rows to delete; None: `GARBAGE`.
        """
        if not self._left or self.floor is None:
            return False
        found = self._delete(reader, self.floor, step, GARBAGE if limit is None else limit)
        # The step that ends a window may write rows of it, so sweep again once it is committed.
        self._left, self._moved = found or self._moved, False
        return found

    def swept(self, reader: StateReader, marker: Marker, step: Step | None) -> Step | None:
        """Add deletions to a step, or make one of deletions alone; None: nothing to do."""
        if step is not None:
            self.sweep(reader, step)
            return step
        alone = Step(marker)
        return alone if self.sweep(reader, alone, _IDLE * GARBAGE) else None

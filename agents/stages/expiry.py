"""The end of a window at a stage: what still comes for it is dropped, and its rows are deleted.

All three stages share it. A stage says how its own rows are deleted; this module decides when, and
how many at a time.
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
"""Put deletions of up to a number of rows of windows below another into a step; True if any."""


class Expiry:
    """Windows of one pipeline that are over at one stage.

    A window is over when it has been released to the end, or when the clock has refused it. Only
    *committed* releases count: a step may fail and be repeated, and had it deleted a row already,
    the row's unit would get a second bound.

    Where units have a purse for many windows, records of a refused one are paid for as well, as far
    as the log has them. How much of it was refused by then must not depend on how far ahead the
    clock log was read; so such a window is over once none of its records can come any more.

    Args:
        delete: deletes rows of windows below a floor; given reader, floor, step and limit.
        purse_of: the first window of those that a unit has one purse for, of a window; None: there
            is no purse, and a refused window is over at once.

    Attributes:
        floor: every window below it is over; None: nothing is known yet.
    """

    def __init__(self, delete: Delete, purse_of: Callable[[int], int] | None = None) -> None:
        self._delete = delete
        self._purse_of = purse_of
        self.reopen()

    def reopen(self) -> None:
        """Forget which windows are over: the step that said so may not have been committed."""
        self.floor: int | None = None
        self._seen: tuple[int, int] | None = None
        self._left = False  # rows may be left below the floor
        self._moved = False  # the floor has moved in the step that is being computed

    def past(self, window: int) -> bool:
        """Whether ``window`` is over; records that still come for it are dropped."""
        return self.floor is not None and window < self.floor

    def advance(self, floor: int) -> None:
        """Say that windows below ``floor`` are over."""
        if floor != self.floor:
            self.floor = floor
            self._left = self._moved = True

    def consult(self, over: Over, marker: Marker, pipeline: str) -> None:
        """Advance to what marker and clock (windows ``over``) say; called before each step.

        Nothing of a refused window will ever be released, so it is over at once, wherever this
        stage stands.
        """
        closed = marker.closed.get(pipeline, 0)
        if (closed, over.version) == self._seen:
            return
        self._seen = closed, over.version
        floor = over.floor(closed, self.floor)
        if floor is not None and self._purse_of is not None and floor < NEVER:
            # Where all that shares a purse is over, nothing depends on it any more.
            floor = max(self._purse_of(floor), over.met(closed, self.floor) or 0)
        if floor is not None:
            self.advance(floor)

    def sweep(self, reader: StateReader, step: Step, limit: int | None = None) -> bool:
        """Put deletions of expired rows into a step; return whether there were any.

        Args:
            limit: rows to delete at most; None: `GARBAGE`.
        """
        if not self._left or self.floor is None:
            return False
        found = self._delete(reader, self.floor, step, GARBAGE if limit is None else limit)
        # The step that ends a window may write rows of it: look again once it is committed.
        self._left, self._moved = found or self._moved, False
        return found

    def swept(self, reader: StateReader, marker: Marker, step: Step | None) -> Step | None:
        """Add deletions to a step, or make one of them alone; None if nothing is to be done."""
        if step is not None:
            self.sweep(reader, step)
            return step
        alone = Step(marker)
        return alone if self.sweep(reader, alone, _IDLE * GARBAGE) else None

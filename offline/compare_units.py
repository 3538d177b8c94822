"""Comparison of a units log with the decoded raw log: lost, doubled and changed events.

The division of a step's events into frames is arbitrary, as is the order of different units. The
sequence of each unit per upstream partition, window and micro-batch is not.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from ..mechanisms.columns import I64
from ..topics.frames import Barrier, EventsFrame, EventSlice, decode
from ..topics.records import Trigger
from .compare import ReplayOutcome

Place = tuple[int, int, int]  # upstream partition, window, micro-batch


class Routed:
    """The content of one units partition, independent of how it was framed."""

    def __init__(self, keys: dict[bytes, int]) -> None:
        self._keys = keys
        self._parts: dict[Place, list[I64]] = defaultdict(list)
        self.barriers: dict[int, list[Trigger]] = defaultdict(list)
        self._closed: set[Place] = set()
        self.misplaced = 0
        self.pending = 0  # events held

    def take(self, frame: bytes) -> Place | None:
        """Add a frame in log order; return the place that it closes, if any."""
        taken = decode(frame)
        if isinstance(taken, EventsFrame):
            self._events(taken)
        elif isinstance(taken, Barrier):
            trigger = taken.trigger
            self.barriers[taken.origin].append(trigger)
            place = taken.origin, trigger.window, trigger.index
            self._closed.add(place)
            return place
        return None

    def _events(self, events: EventsFrame) -> None:
        one = events.slice
        place = events.origin, one.window, one.batch
        if place in self._closed:
            self.misplaced += len(one.unit)  # after its barrier, so it would never count
            return
        self._parts[place].append(self._table(one))
        self.pending += len(one.unit)

    def _table(self, one: EventSlice) -> I64:
        """(n, 4 + c) exact content of each event."""
        keys = self._keys
        numbers = np.array([keys.setdefault(k, len(keys)) for k in one.keys.tolist()], np.int64)
        unit = np.ascontiguousarray(one.unit).view(np.int64).reshape(-1, 2)
        columns = [unit, numbers[one.key][:, None], one.sign[:, None].astype(np.int64), one.value]
        return np.concatenate(columns, axis=1)

    @property
    def places(self) -> set[Place]:
        """Places with uncompared events."""
        return set(self._parts)

    def events(self, place: Place) -> I64 | None:
        """Remove and return all events of one place, in order."""
        tables = self._parts.pop(place, None)
        if tables is None:
            return None
        found = np.concatenate(tables)
        self.pending -= len(found)
        return found

    def complete(self, place: Place) -> bool:
        """Whether the micro-batch has been closed by its barrier."""
        return place in self._closed


class Comparison:
    """Comparison of one units partition with the records that the first stage sends to it.

    A micro-batch is compared and dropped as soon as both sides have closed it.
    """

    def __init__(self, where: str, outcome: ReplayOutcome) -> None:
        keys: dict[bytes, int] = {}
        self._where = where
        self._outcome = outcome
        self._expected, self._found = Routed(keys), Routed(keys)

    def sent(self, frame: bytes) -> None:
        """Take the next recomputed frame of the first stage."""
        self._settle(self._expected.take(frame), self._found)

    def found(self, frame: bytes) -> None:
        """Take the next frame of the log."""
        self._settle(self._found.take(frame), self._expected)

    @property
    def ahead(self) -> int:
        """Number of events by which the log is ahead of the recomputation."""
        return self._found.pending - self._expected.pending

    def _settle(self, place: Place | None, other: Routed) -> None:
        if place is not None and other.complete(place):
            self._compare(place)

    def _compare(self, place: Place) -> None:
        origin, window, batch = place
        text = f"{self._where}: from partition {origin}, window {window}, micro-batch {batch}"
        wanted, had = self._expected.events(place), self._found.events(place)
        if wanted is None:
            if had is not None:
                self._outcome.found("differing", text, len(had))
            return
        want = _ranked(wanted)
        have = set() if had is None else _ranked(had)
        self._outcome.routed += len(want & have)
        more = len(have) - len(want)
        if more > 0:
            self._outcome.found("doubled", text, more)
        elif more < 0 and self._found.complete(place):
            self._outcome.found("lost", text, -more)
        elif have - want:
            self._outcome.found("differing", text)

    def finish(self) -> None:
        """Compare the remaining events."""
        where, outcome = self._where, self._outcome
        if self._found.misplaced:
            outcome.found(
                "differing", f"{where}: events after their barrier", self._found.misplaced
            )
        for origin, barriers in self._found.barriers.items():
            if barriers != self._expected.barriers[origin][: len(barriers)]:
                outcome.found("differing", f"{where}: barriers from partition {origin}")
        for place in sorted(self._expected.places | self._found.places):
            self._compare(place)


def _ranked(events: I64) -> set[bytes]:
    """Each event with its position among its unit's events, as one row of bytes."""
    order = np.lexsort((events[:, 1], events[:, 0]))  # stable: keeps the order within a unit
    ordered = events[order]
    new = np.ones(len(ordered), bool)
    new[1:] = (ordered[1:, :2] != ordered[:-1, :2]).any(axis=1)
    number = np.arange(len(ordered))
    rank = number - np.maximum.accumulate(np.where(new, number, 0))
    table = np.ascontiguousarray(np.column_stack([rank, ordered]))
    blob, width = table.tobytes(), table.shape[1] * table.itemsize
    return {blob[i : i + width] for i in range(0, len(blob), width)}

"""The view stage: reads a release topic, writes the release topics of its views.

Only complete releases are used, each once, in the order of triggers. So what a view releases is a
function of the committed records of its source's topic and of the view's settings, and nothing here
touches raw data, noise or the ledger.

Records of a release that is not complete are in memory alone. The marker has, for each view, the
offset of the oldest of them, where it begins to read again (`Marker.upstream`), and the state says
which release was the last one; so a view that is added later begins with the first release that
the topic still has. A release of many rows is published in several transactions; the state says how
many rows are out, and the last one has the manifest, and what later windows look back at.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from ....errors import EngineError
from ....topics.records import Marker
from ...deployment.model import ReleaseView
from ...state.store import StateReader
from ..step import Out, Step
from .computation import Arithmetic
from .history import Lookback, Numbers, Reached, overlap, reach, reached
from .pieces import Complete, InOrder
from .records import records

RELEASED = 50_000  # rows of one transaction


class _Computed(NamedTuple):
    """A release: its records, values by key for the history, and that history."""

    out: list[Out]
    numbers: Mapping[bytes, Numbers]
    history: Lookback


class _Tail:
    """One view, and how far it has read.

    Attributes:
        begin: offset below which it has used everything.
        waiting: complete releases that are not published yet.
    """

    def __init__(self, view: ReleaseView) -> None:
        self.view = view
        self.computation = Arithmetic(view)
        self.overlap = overlap(view)
        self.begin = 0
        self.waiting: deque[Complete] = deque()
        self.releases = InOrder(view.source.name, view.source.codec)
        self.computed: _Computed | None = None  # the first that waits

    def open(self, reader: StateReader, begin: int) -> None:
        """Take up committed state.

        Raises:
            EngineError: the view had other settings.
        """
        told = reached(self.view, reader)
        if told is not None and told.digest != self.view.digest:
            raise EngineError(
                f"view {self.view.name!r} has released with other settings: give the changed one "
                "another name, and leave the old one out or as it was"
            )
        self.begin = begin
        self.waiting.clear()
        self.computed = None
        done = None if told is None else told.done
        self.releases = InOrder(self.view.source.name, self.view.source.codec, done)

    def place(self, position: int) -> int:
        """The offset below which everything is used, where records below ``position`` were read."""
        open_ = [one.first for one in self.waiting]
        open_ += [] if self.releases.first is None else [self.releases.first]
        return max(self.begin, min(open_, default=position))


class ViewStage:
    """The views of the pipelines of one release topic.

    Args:
        begin: offset of the first record that the topic still has.

    Attributes:
        position: the next record to take; releases in memory put it ahead of the marker.
    """

    watermark: Mapping[str, int] = {}

    def __init__(self, views: Sequence[ReleaseView], begin: int = 0) -> None:
        self._tails = [_Tail(view) for view in views]
        self._begin = begin
        self.position = -1

    def open(self, reader: StateReader, marker: Marker) -> None:
        """Take up committed state; what was in memory alone comes again from the log."""
        for tail in self._tails:
            told = marker.upstream.get(tail.view.name, [0])[0]
            tail.open(reader, max(told, self._begin))
        self.position = min(tail.begin for tail in self._tails)

    def step(
        self, reader: StateReader, marker: Marker, records: Sequence[Any], fetched: int
    ) -> Step | None:
        """Take records until a release is complete, and publish it.

        Raises:
            EngineError: a record of the release topic is damaged.
        """
        taken = iter(records)
        while (tail := self._waiting()) is None:
            record = next(taken, None)
            if record is None:
                self.position = max(self.position, fetched)
                return None
            if record.offset >= self.position:
                self._take(record)
        return self._publish(tail, reader, marker)

    def _waiting(self) -> _Tail | None:
        return next((tail for tail in self._tails if tail.waiting), None)

    def _take(self, record: Any) -> None:
        self.position = record.offset + 1
        for tail in self._tails:
            if record.offset >= tail.begin and (one := tail.releases.take(record)) is not None:
                tail.waiting.append(one)

    def _publish(self, tail: _Tail, reader: StateReader, marker: Marker) -> Step:
        """Publish the next rows of a release; with the last ones its manifest."""
        complete, view = tail.waiting[0], tail.view
        told = reached(view, reader) or Reached(view.digest)
        step = Step(self._marker(marker), more=True)
        if tail.computed is None:
            number = view.source.windows.window(complete.order[1])
            history = Lookback(view, reader, number, told.windows, tail.overlap)
            rows, numbers = tail.computation.rows(complete.released, history)
            tail.computed = _Computed(records(view, complete.of, rows), numbers, history)
        out, numbers, history = tail.computed
        end = told.out + RELEASED
        step.out += out[told.out : end]
        if end < len(out):
            reach(view, replace(told, out=end), step.rows)
            return step
        windows = history.remember(numbers, complete.released.final, step.rows)
        reach(view, Reached(view.digest, complete.order, tuple(windows)), step.rows)
        tail.waiting.popleft()
        tail.computed = None
        step.marker = self._marker(marker)
        return step

    def _marker(self, marker: Marker) -> Marker:
        places = {tail.view.name: [tail.place(self.position)] for tail in self._tails}
        applied = max(marker.applied, self.position)
        return Marker(marker.genesis, applied, 0, {**marker.upstream, **places})

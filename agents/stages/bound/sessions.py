"""Sessions at a bound shard: records join them, and each trigger closes those that are over.

A trigger's window and scheduled time decide which sessions are over, so the content of a release is
a function of the logs, wherever a worker was stopped. A trigger closes the sessions whose last
event lies in its window and before its scheduled time minus lateness: lateness is at least the gap,
so all records that could continue them have come. The last trigger of a window closes all its
sessions.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....formats.events.expressions.valued import ValueFields
from ....formats.events.fields import NumericField
from ....formats.events.types import typed
from ....formats.events.views import Numbers, on_grid
from ....mechanisms.columns import I64
from ....mechanisms.keys import Keys
from ....topics.config.inputs.sessions import EVENTS, LENGTH
from ....topics.frames import EventsFrame, EventSlice
from ....topics.records import Trigger
from ...deployment.model import Pipeline, Sessions
from ...state.layout import DIGEST, UNIT_WIDTH, after, sessions_of, sortable
from ...state.rows.columns import RowColumns, pick
from ...state.store import StateReader
from ..step import Step
from .codec import distinct
from .open_sessions import ClosedSessions, close, settled, take

ROWS = 20_000  # units examined in one step


class SessionsOver(NamedTuple):
    """Sessions that are over, as records for the contribution bound.

    Attributes:
        slice: the sessions, in an order that does not depend on how steps were cut.
        whole: whether they are the last of their trigger.
    """

    slice: EventSlice
    whole: bool


class OpenSessions:
    """Open sessions of one pipeline at one shard.

    Args:
        pipeline: one that has sessions.
    """

    def __init__(self, pipeline: Pipeline, sessions: Sessions) -> None:
        self._pipeline, self._sessions = pipeline, sessions
        self._looked: tuple[int, bytes] = 0, b""  # trigger, and the last unit examined for it

    def reopen(self) -> None:
        """Forget how far a trigger's sessions were examined: the last step may not be committed."""
        self._looked = 0, b""

    def take(
        self, reader: StateReader, frames: list[EventsFrame], upstream: Sequence[int], closed: int,
        step: Step,
    ) -> None:  # fmt: skip
        """Add records to sessions, in log order; changed rows and counts go into ``step``.

        Args:
            upstream: last barrier of each upstream.
            closed: last closed trigger.
        """
        p = self._pipeline
        for origin, one in frames:
            prefix = sessions_of(p.number) + sortable(p.windows.epoch(one.window))
            keys, unit = distinct(one.unit, prefix)
            rows = step.units.read(reader, keys)
            time, beyond = one.value[:, 0], np.full(len(unit), upstream[origin], np.int64)
            rows, left = take(
                rows, unit, one.keys, one.key, time, self._sessions.gap, beyond, closed
            )
            step.units.put(RowColumns(keys, rows))
            step.counts[p.name, "seen"] += left  # count them as seen by the bound but not accepted

    def close(self, reader: StateReader, trigger: Trigger, step: Step) -> SessionsOver:
        """Take out sessions that are over at a trigger; what stays open goes into ``step``.

        Args:
            reader: committed state, which ``step`` has not changed yet.
            trigger: trigger whose micro-batch is closed.
        """
        windows = self._pipeline.windows
        prefix = sessions_of(self._pipeline.number) + sortable(windows.epoch(trigger.window))
        end = windows.end(trigger.window)
        edge = end if trigger.final else min(trigger.scheduled - windows.lateness, end)
        ordinal, begin = self._looked
        begin = begin if ordinal == trigger.ordinal else prefix
        while True:
            found = list(islice(reader.scan(begin, after(prefix)), ROWS))
            keys, rows = Keys.of(key for key, _ in found), Keys.of(row for _, row in found)
            rows = settled(rows, self._sessions.gap, trigger.ordinal - 1)
            over = close(rows, windows.start(trigger.window), edge)
            whole = len(found) < ROWS
            if whole or len(over.unit):  # each step makes progress, however often a worker ends
                break
            begin = found[-1][0] + b"\0"
        if not whole:
            self._looked = trigger.ordinal, found[-1][0] + b"\0"
        changed = np.unique(over.unit)
        step.units.put(RowColumns(pick(keys, changed), over.rows.take(changed)))
        return SessionsOver(self._counted(trigger, keys, over), whole)

    def _counted(self, trigger: Trigger, keys: Keys, over: ClosedSessions) -> EventSlice:
        """Convert sessions to the columns that the mechanism counts."""
        value, kept = values_of(self._pipeline, over.first, over.last, over.events)
        digest = keys.packed().reshape(len(keys), UNIT_WIDTH)[:, -DIGEST:]
        return EventSlice(
            trigger.window, trigger.index, digest[over.unit[kept]], over.keys, over.key[kept],
            value, np.ones(len(kept), np.int8),
        )  # fmt: skip


def values_of(
    pipeline: Pipeline, first: I64, last: I64, events: I64
) -> tuple[I64, NDArray[np.intp]]:
    """Value columns of sessions, on their grids.

    Args:
        pipeline: one that has sessions.
        first, last: (s,) times of the first and the last record, microseconds since 1970.
        events: (s,) numbers of records.

    Returns:
        (m, c) values, and (m,) indices of the sessions that the mechanism counts.
    """
    assert pipeline.sessions is not None
    fields, mechanism, size = pipeline.sessions.fields, pipeline.mechanism, len(events)
    numbers = {LENGTH: (last - first) / 1e6, EVENTS: events.astype(np.float64)}
    if mechanism.traits.inputs:
        given = {name: numbers[(fields.inputs or {})[name]] for name in mechanism.traits.inputs}
        made = mechanism.encode(given)
        kept = np.flatnonzero(made.keep)
        return made.value[kept], kept
    read = ValueFields(size, lambda path, role: typed(numbers[path].tolist(), role))

    def column(one: NumericField) -> Numbers:
        counted = None if one.where is None else one.where.fulfilled(read)
        return None if one.field is None else numbers[one.field], counted

    return on_grid(fields, size, [column(one) for one in fields.columns]), np.arange(size)

"""The reach of a replay whose clock log begins with a snapshot.

Records of a window may have come before the snapshot and spent part of the bound of its epoch. So
only epochs without earlier records are recomputed: each pipeline starts with the first such epoch,
or with the first such period where units have a cap. Its triggers are renumbered from there, and
those of earlier windows only limit how far the raw log may be used. Where windows overlap, earlier
carried rows affect further windows, which are recomputed but not compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from ..agents.clock.timeline import Timeline
from ..agents.deployment.model import Deployment, Pipeline
from ..agents.stages.step import LogFrame
from ..errors import EngineError
from ..mechanisms.factorization.hopping import earlier
from ..topics.frames import Barrier, EventsFrame, decode, encode_barrier
from ..topics.records import (
    Beat,
    ClockRecord,
    PipelineStanding,
    Retired,
    Skipped,
    Snapshot,
    Start,
    Trigger,
)
from .replay_logs import Timed, frame, timed

Kept = Snapshot | None
NEVER = 1 << 62
"""Stands for the first window to recompute where there is none."""


class Reach:
    """The windows that can be recomputed, and the logs adjusted for that.

    Args:
        place: the snapshot's offset in the clock topic; 0 without one.
        snapshot: snapshot at the beginning of the clock log; None if the log is whole.
        triggers: triggers of the log, in order.
    """

    def __init__(
        self, deployment: Deployment, place: int, snapshot: Kept, triggers: Iterable[Trigger]
    ) -> None:
        self.place = place
        self._snapshot = snapshot
        self._first = {p.name: _first(p, snapshot) for p in deployment.pipelines}
        self._carried = {p.name: carried(p) for p in deployment.pipelines}
        self._number: dict[tuple[str, int], int] = {}
        self._triggers: dict[str, list[Trigger]] = {p.name: [] for p in deployment.pipelines}
        for one in triggers:
            mine = self._triggers.get(one.pipeline)
            if mine is None or self._early(one.pipeline, one.window):
                continue
            self._number[one.pipeline, one.ordinal] = len(mine) + 1
            mine.append(self._numbered(one))

    @property
    def partial(self) -> bool:
        """Whether the clock log begins with a snapshot."""
        return self._snapshot is not None

    def begin(self, topic: str, partition: int, whole: int) -> int:
        """The first raw offset that is used; ``whole`` is the whole log's."""
        ends = [] if self._snapshot is None else self._snapshot.offsets.get(topic, [])
        return ends[partition] if partition < len(ends) else whole

    def units_begin(self, pipeline: str, partition: int) -> int:
        """The offset of a units topic below which no record is of a recomputed window."""
        places = [] if self._snapshot is None else self._snapshot.units.get(pipeline, [])
        return places[partition] if partition < len(places) else 0

    def first(self, pipeline: str) -> int | None:
        """The first window that can be compared; None: all of them."""
        first = self._first[pipeline]
        return None if first is None else first + self._carried[pipeline]

    def renumbered(self, deployment: Deployment) -> Deployment:
        """State for each pipeline, in new numbers, after which trigger added partitions count."""

        def one(p: Pipeline) -> Pipeline:
            known = [old for name, old in self._number if name == p.name]
            joined = (sum(old <= last for old in known) for last in p.joined)
            return replace(p, joined=tuple(joined)) if self.partial else p

        inputs = (replace(i, pipelines=tuple(map(one, i.pipelines))) for i in deployment.inputs)
        return replace(deployment, inputs=tuple(inputs))

    def triggers(self, pipeline: str) -> list[Trigger]:
        """Triggers of the recomputed windows, renumbered.

        Raises `EngineError` if there are none, since all windows had begun before the snapshot.
        """
        found, first = self._triggers[pipeline], self._first[pipeline]
        if first == NEVER:
            raise EngineError(
                f"pipeline {pipeline!r}: the clock log begins with a snapshot, and the cap for "
                "each unit has no period: what a unit had spent before follows only from all "
                "records since the pipeline began. Replay the other pipelines by name. A pipeline "
                "like this can be replayed if engine.keep_clock and the retention of raw topics "
                "cover its whole life, or if the period of its cap is at most keep_clock"
            )
        if first is not None and not found and not self._over(pipeline, first):
            raise EngineError(
                f"pipeline {pipeline!r}: the clock log begins with a snapshot, and no epoch that "
                "began after it (no period, where units have a cap) has been released: replay "
                "later, or raise engine.keep_clock"
            )
        return found

    def standing(self) -> tuple[int, Snapshot] | None:
        """The engine's initial snapshot: nothing was released, and later windows follow."""
        if self._snapshot is None:
            return None
        lines = {}
        for name, first in self._first.items():
            before = self._snapshot.pipelines.get(name, PipelineStanding())
            if first is not None:
                line = Timeline(0)
                line.apply(Start(name, first, 0))
                for window in before.closed:
                    if window >= first:
                        line.apply(Skipped(name, 0, window, 0))
                if before.end is not None:
                    line.apply(Retired(name, before.end, 0))
                lines[name] = line.standing()
        return self.place, msgspec.structs.replace(self._snapshot, pipelines=lines)

    def clock(self, message: Any) -> Timed:
        """A record of the clock topic, adjusted for recomputation."""
        one = timed(message)
        return one if self._snapshot is None else Timed(one.offset, self._record(one.record))

    def units(self, pipeline: str) -> Any:
        """Function from messages of a units topic to records; None for records not recomputed."""
        if self._first[pipeline] is None:
            return frame

        def made(message: Any) -> LogFrame | None:
            one = frame(message)
            taken = decode(one.value)
            if isinstance(taken, EventsFrame):
                return None if self._early(pipeline, taken.slice.window) else one
            if isinstance(taken, Barrier):
                if self._early(pipeline, taken.trigger.window):
                    return None
                trigger = self._numbered(taken.trigger)
                return LogFrame(one.offset, encode_barrier(taken._replace(trigger=trigger)))
            return one

        return made

    def _record(self, record: ClockRecord) -> ClockRecord:
        name = getattr(record, "pipeline", None)
        if isinstance(record, Snapshot) or (name is not None and name not in self._first):
            return Beat(record.time, record.offsets if isinstance(record, Trigger) else {})
        if isinstance(record, Trigger):
            if self._early(record.pipeline, record.window):
                return Beat(record.time, record.offsets)
            return self._numbered(record)
        if isinstance(record, Skipped):
            first = self._first[record.pipeline]
            if first is not None and record.window < first:
                if record.end <= first:
                    return Beat(record.time, {})
                return msgspec.structs.replace(record, window=first, until=record.end)
        return record

    def _over(self, pipeline: str, first: int) -> bool:
        """Whether a pipeline was retired before the first window that could be recomputed."""
        found = None if self._snapshot is None else self._snapshot.pipelines.get(pipeline)
        return found is not None and found.end is not None and first >= found.end

    def _early(self, pipeline: str, window: int) -> bool:
        first = self._first[pipeline]
        return first is not None and window < first

    def _numbered(self, trigger: Trigger) -> Trigger:
        number = self._number.get((trigger.pipeline, trigger.ordinal), trigger.ordinal)
        return msgspec.structs.replace(trigger, ordinal=number)


def _first(pipeline: Pipeline, snapshot: Kept) -> int | None:
    """The first window of the first epoch, or period, without records before a snapshot."""
    standing = None if snapshot is None else snapshot.pipelines.get(pipeline.name)
    if snapshot is None or standing is None or standing.first is None:
        return None
    if pipeline.windows.arrival:
        after = max([standing.floor, *(window for window, _ in standing.done), *standing.closed])
    else:
        after = max(
            pipeline.windows.window(snapshot.time + pipeline.max_future_skew), standing.floor - 1
        )
    share = pipeline.windows.per_epoch
    if pipeline.lifetime is not None:  # purses hold what was spent since their period began
        if pipeline.lifetime.cap.epochs is None:
            return NEVER
        share *= pipeline.lifetime.cap.epochs
    return -(-(after + 1) // share) * share


def carried(pipeline: Pipeline) -> int:
    """Number of windows after a first one that rows carried into it may still affect.

    If a window holds hops of K earlier epochs, a row is dropped 2K epochs after its last record and
    holds the noise of K more epochs. After that, rows are as if nothing had come before.
    """
    windows = pipeline.windows
    epochs = 3 * earlier(windows.hops, windows.per_epoch) + 1
    return epochs * windows.per_epoch * pipeline.traits.carries


def named_offsets(reached: Mapping[str, Sequence[int]]) -> dict[tuple[bytes, bytes], int]:
    """Offsets of partitions by their names in dead letters."""
    return {
        (topic.encode(), str(number).encode()): offset
        for topic, offsets in reached.items()
        for number, offset in enumerate(offsets)
    }


def offsets_of(reach: Reach, raw: Mapping[tuple[str, int], int]) -> dict[tuple[bytes, bytes], int]:
    """First used offset of each raw partition, by its name in dead letters."""
    return {
        (topic.encode(), str(number).encode()): reach.begin(topic, number, begin)
        for (topic, number), begin in raw.items()
    }

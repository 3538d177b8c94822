"""The ingest stage reads a raw topic and the clock log, and writes a units or a cells topic.

It holds the gate: a record waits until a clock record has passed it, and a clock record waits until
every release that it depends on has been read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ....mechanisms.noise import derive
from ....topics.names import Names
from ....topics.records import Marker, Trigger
from ...clock.log import ClockLog, Entry
from ...clock.timeline import Timeline
from ...deployment.model import Input, Pipeline
from ...state.store import StateReader
from ..step import Sent, Step
from .beside import Beside
from .schemas import KnownSchemas
from .slicer import Slicer

EVENTS = 40_000  # raw records of one step
UNSAID = 2_000  # clock records that a shard may pass without committing its place
ENTRIES = 2_000  # clock records examined at once


class IngestStage:
    """The ingest stage of one raw partition; it waits for the clock, and for feedback.

    Args:
        beside: other sources; entries wait until the feedback that they need is read.
        most: most raw records of one step; None: `EVENTS`, or the number of frames of an input of
            frames.

    Attributes:
        position: next raw offset to take.
        watermark: time of the last clock entry that was used, also without a step, per pipeline.
    """

    def __init__(
        self,
        source: Input,
        partition: int,
        names: Names,
        secret: bytes,
        clock: ClockLog,
        beside: Beside,
        most: int | None = None,
    ) -> None:
        self._most = EVENTS if most is None else most
        self._clock = clock
        self._feedback = beside.feedback
        self._pipelines = [p.name for p in source.pipelines]
        self._raw = source.topic, partition
        self._delays = {p.name: p.delay for p in source.pipelines if p.name in beside.feedback}
        key = derive(secret, "hashing")
        asked = KnownSchemas(beside.schemas, source.topic, partition)
        self._schemas = asked if source.fields.framed else None
        self._slicer = Slicer(source, partition, names, key, beside)
        self._sent = Sent(dict(_frames(p, names) for p in source.pipelines))
        self._timelines: dict[str, Timeline] = {}
        self._skip = 0
        self.position = 0
        self.watermark: Mapping[str, int] = {}

    def open(self, reader: StateReader, marker: Marker) -> None:
        """Begin at the marker."""
        self._slicer.reopen()
        if self._schemas is not None:
            self._schemas.reopen()
        # Rebuild timelines from the log alone, without the effects of an uncommitted step.
        self._skip = self._clock.opening(marker.clock, self._pipelines, self._raw)
        self._timelines = self._clock.timelines(self._skip)
        self.position = marker.applied

    def step(
        self, reader: StateReader, marker: Marker, records: Sequence[Any], fetched: int
    ) -> Step | None:
        """Use the records that the clock allows; None if there are none.

        Raises:
            EngineError: the clock log has a gap, or names another configuration.
        """
        if len(records) > self._most:
            records = records[: self._most]
            fetched = records[-1].offset + 1
        if self._schemas is not None:
            records, fetched = self._schemas.ready(reader, list(records), fetched)
        while True:
            before = self._skip
            step = self._step(reader, marker, records, fetched)
            # Entries are taken in parts; a part may change nothing although a later one does.
            if step is not None or self._skip == before:
                return self._sent.number(marker, self._dated(marker, step))

    def _dated(self, marker: Marker, step: Step | None) -> Step | None:
        """Note in a step's marker the last clock entry that it has passed."""
        if step is not None:
            clock, passed = step.marker.clock, marker.passed
            if clock != marker.clock:
                passed = self._clock.passed(clock) or 0
            step.marker = replace(step.marker, passed=passed)
        return step

    def _step(
        self, reader: StateReader, marker: Marker, records: Sequence[Any], fetched: int
    ) -> Step | None:
        entries = self._gated(self._clock.since(self._skip, ENTRIES))
        start = Marker(marker.genesis, marker.applied, self._skip, marker.upstream, marker.closed)
        if (attributes := self._slicer.attributes) is not None and entries:
            entries = entries[: attributes.ready(reader, entries)]
            if not entries and attributes.ahead:  # a part of what the next clock record covers
                step = Step(start)
                self._slicer.state(reader, None, step)
                return step
        known = None if self._schemas is None else self._schemas.known
        step = self._slicer.step(
            reader, start, self._timelines, records, max(fetched, marker.applied), entries, known
        )
        if self._schemas is not None:
            applied = step.marker.applied
            step.rows |= self._schemas.rows([r for r in records if r.offset < applied])
        self._skip = step.marker.clock
        self._slicer.sweep(reader, step)
        self.position = step.marker.applied
        self.watermark = step.watermark or self.watermark
        changed = step.rows or len(step.units) > 0
        moved = step.marker.applied != marker.applied or step.out or changed
        # Most beats only move other partitions. A transaction for each would be most of a quiet
        # cluster's load, so the place is kept in memory and committed with the next step, or after
        # `UNSAID` records, because the clock log cannot be trimmed beyond a committed place.
        return step if moved or self._skip - marker.clock >= UNSAID else None

    @property
    def clock_position(self) -> int:
        """The next clock entry to handle; ahead of the marker if nothing had to be committed."""
        return self._skip

    def _gated(self, entries: list[Entry]) -> list[Entry]:
        """Entries up to the first trigger whose feedback is still missing.

        An earlier step may have handled that trigger already, so open windows are checked too.
        Re-partitioned pipelines wait as well: a frame sent too early would precede, in the units
        log, the barrier that its own feedback depends on, a deadlock.
        """
        for name in self._delays:
            for window, done in self._timelines[name].done.items():
                if not self._complete(name, window, done):
                    return []
        for place, (_, record) in enumerate(entries):
            if (
                isinstance(record, Trigger)
                and not record.final
                and record.pipeline in self._delays
                and not self._complete(record.pipeline, record.window, record.index)
            ):
                return entries[: place + 1]
        return entries

    def _complete(self, pipeline: str, window: int, done: int) -> bool:
        """Whether this worker has read all feedback that the next micro-batch depends on."""
        return self._feedback[pipeline].complete(window, done - self._delays[pipeline])


def _frames(pipeline: Pipeline, names: Names) -> tuple[str, tuple[str, int]]:
    """The topic that gets a pipeline's frames, with the pipeline's name and the partitions."""
    name = pipeline.name
    if pipeline.direct:
        return names.cells(name), (name, pipeline.cells_partitions)
    return names.units(name), (name, pipeline.units_partitions)

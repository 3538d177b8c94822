"""The ingest stage: reads a raw topic and the clock log, writes a units or a cells topic.

The gate stands here. A record waits until a clock record has passed it. A clock record waits until
every release that it depends on has been read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....mechanisms.noise import derive
from ....topics.names import Names
from ....topics.records import Marker, Trigger
from ...clock.log import ClockLog, Entry
from ...clock.timeline import Timeline
from ...deployment.model import Input
from ...state.store import StateReader
from ..feedback import Feedback, lookup
from ..step import Step
from .attributes import AttributeLog
from .schemas import KnownSchemas, NoSchemas, SchemaSource
from .slicer import Slicer

EVENTS = 40_000  # raw records of one step
UNSAID = 2_000  # offsets of the clock log that a shard may pass without committing its place
ENTRIES = 2_000  # clock records looked at in one go


class IngestStage:
    """The ingest stage of one raw partition; it waits for the clock, and for feedback.

    Args:
        feedback: feedback by pipeline; entries wait until what they need has been read.
        most: raw records of one step; None: `EVENTS`, or as many frames as an input of frames has.
        schemas: answers what a schema's id stands for, where values carry one.
        stated: reads the topic that states attributes of units.

    Attributes:
        position: the next raw offset to take.
    """

    def __init__(
        self,
        source: Input,
        partition: int,
        names: Names,
        secret: bytes,
        clock: ClockLog,
        feedback: Mapping[str, Feedback],
        most: int | None = None,
        schemas: SchemaSource | None = None,
        stated: AttributeLog | None = None,
    ) -> None:
        self._most = EVENTS if most is None else most
        self._clock = clock
        self._feedback = feedback
        self._pipelines = [p.name for p in source.pipelines]
        self._raw = source.topic, partition
        self._delays = {p.name: p.delay for p in source.pipelines if p.name in feedback}
        key = derive(secret, "hashing")
        asked = KnownSchemas(schemas or NoSchemas(), source.topic, partition)
        self._schemas = asked if source.fields.framed else None
        beside = stated, schemas
        self._slicer = Slicer(source, partition, names, key, lookup(feedback), *beside)
        self._timelines: dict[str, Timeline] = {}
        self._skip = 0
        self.position = 0

    def open(self, reader: StateReader, marker: Marker) -> None:
        """Stand where the marker stands."""
        self._slicer.reopen()
        if self._schemas is not None:
            self._schemas.reopen()
        # Rebuilt from the log alone: what an uncommitted step made of them must not survive it.
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
            # Entries are taken some at a time. These may move nothing while later ones do.
            if step is not None or self._skip == before:
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
        changed = step.rows or len(step.units) > 0
        moved = step.marker.applied != marker.applied or step.out or changed
        # Most beats move other partitions only. A transaction for each of them would be most of
        # a quiet cluster's load, so they are kept in memory and committed with the next step, or
        # now and then: the clock log is kept for a shard that does not say how far it is.
        return step if moved or self._skip - marker.clock >= UNSAID else None

    @property
    def clock_position(self) -> int:
        """The next clock entry to handle; ahead of the marker where nothing had to be committed."""
        return self._skip

    def _gated(self, entries: list[Entry]) -> list[Entry]:
        """Entries up to the first trigger whose feedback is still missing.

        An earlier step may have handled that trigger already, so open windows are checked too.
        Re-partitioned pipelines wait as well: a frame sent too early would stand in the units log
        before the barrier that its own feedback waits for, and nothing would ever move again.
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
        """Whether this worker has read every release that the next micro-batch depends on."""
        return self._feedback[pipeline].complete(window, done - self._delays[pipeline])

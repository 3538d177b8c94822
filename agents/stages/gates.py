"""Stages as shards run them: pure steps over an input log, a store and what the worker knows.

The same objects run in a worker, where a shard feeds them from Kafka, and in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...mechanisms.keys import Keys
from ...mechanisms.noise import derive
from ...topics.events.frames import FRAMES_PER_STEP, expand
from ...topics.frames import Events, decode
from ...topics.names import Names
from ...topics.records import Marker, Trigger
from ..clock.log import ClockLog, Entry
from ..clock.timeline import Timeline
from ..deployment.model import Input, Pipeline
from ..state.store import Reader
from .aggregate.stage import Aggregate, Frame
from .bound.frames import UnitsStage
from .feedback import Feedback
from .ingest.stage import Ingest
from .step import Step

EVENTS = 20_000  # raw records of one step
FRAMES = 48  # frames of one step
ENTRIES = 2_000  # clock records looked at in one go
GARBAGE = 2_000  # expired rows deleted in one step


class Stage(Protocol):
    """What a shard runs.

    ``position`` is the input offset that the stage wants next; it may be ahead of the
    committed marker where state is only held in memory.
    """

    @property
    def position(self) -> int: ...

    def open(self, reader: Reader, marker: Marker) -> None: ...

    def step(
        self, reader: Reader, marker: Marker, records: Sequence[Any], fetched: int
    ) -> Step | None: ...


class IngestShard:
    """The first stage with its clock, and the gate of adaptive mechanisms."""

    def __init__(
        self,
        source: Input,
        partition: int,
        names: Names,
        secret: bytes,
        clock: ClockLog,
        feedback: Mapping[str, Feedback],
        most: int | None = None,
    ) -> None:
        self._frames = source.frames
        self._most = FRAMES_PER_STEP if source.frames else EVENTS if most is None else most
        self._clock = clock
        self._feedback = feedback
        self._delays = {p.name: p.delay for p in source.pipelines if p.name in feedback}
        self._ingest = Ingest(
            source, partition, names, derive(secret, "hashing"), _statuses(feedback)
        )
        self._timelines: dict[str, Timeline] = {}
        self._skip = 0
        self.position = 0

    def open(self, reader: Reader, marker: Marker) -> None:
        """Stand where the marker stands."""
        self._ingest.reopen()
        self._timelines = self._clock.timelines(marker.clock)
        self._skip = marker.clock
        self.position = marker.applied

    def step(
        self, reader: Reader, marker: Marker, records: Sequence[Any], fetched: int
    ) -> Step | None:
        """Use what the clock allows; None if that is nothing."""
        if len(records) > self._most:
            records = records[: self._most]
            fetched = records[-1].offset + 1
        if self._frames:
            records = expand(records)
        while True:
            before = self._skip
            step = self._step(reader, marker, records, fetched)
            # Entries are taken some at a time: that these move nothing says nothing of the rest.
            if step is not None or self._skip == before:
                return step

    def _step(
        self, reader: Reader, marker: Marker, records: Sequence[Any], fetched: int
    ) -> Step | None:
        entries = self._gated(self._clock.since(self._skip, ENTRIES))
        start = Marker(marker.genesis, marker.applied, self._skip, marker.upstream, marker.closed)
        step = self._ingest.step(
            reader, start, self._timelines, records, max(fetched, marker.applied), entries
        )
        self._skip = step.marker.clock
        self._ingest.forget(reader, step, GARBAGE)
        self.position = step.marker.applied
        if step.marker.applied == marker.applied and not step.out and not step.rows:
            return None
        return step

    @property
    def clock_position(self) -> int:
        """The next clock entry to handle; ahead of the marker where nothing had to be committed."""
        return self._skip

    def _gated(self, entries: list[Entry]) -> list[Entry]:
        """Entries up to the first trigger whose feedback is still missing.

        That trigger may have been handled by an earlier step, so open windows are looked at too.
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
        """Whether what the next micro-batch needs to know has been released and read."""
        return self._feedback[pipeline].complete(window, done - self._delays[pipeline])


class UnitsShard:
    """The bound stage of a re-partitioned pipeline, waiting for feedback where it needs it."""

    def __init__(
        self,
        pipeline: Pipeline,
        partition: int,
        names: Names,
        upstreams: int,
        clock: ClockLog,
        feedback: Mapping[str, Feedback],
    ) -> None:
        self._pipeline = pipeline
        self._tidy = Tidy(pipeline.name, clock)
        self._feedback = feedback.get(pipeline.name)
        self._stage = UnitsStage(pipeline, partition, names, upstreams, _statuses(feedback))
        self.position = 0

    def open(self, reader: Reader, marker: Marker) -> None:
        """Stand where the marker stands."""
        self._stage.reopen()
        self._tidy.reopen()
        self.position = marker.applied

    def step(
        self, reader: Reader, marker: Marker, records: Sequence[Any], fetched: int
    ) -> Step | None:
        """Absorb the next frames whose feedback this worker has read."""
        taken = self._usable(records[:FRAMES])
        if len(taken) < len(records):
            fetched = taken[-1].offset + 1 if taken else marker.applied
        self._tidy.look(marker, self._stage)
        step = self._stage.step(reader, marker, taken, fetched)
        if step is not None:
            self.position = step.marker.applied
        return self._tidy.sweep(reader, marker, self._stage, step)

    def _usable(self, frames: Sequence[Any]) -> Sequence[Any]:
        if self._feedback is None:
            return frames
        for place, frame in enumerate(frames):
            taken = decode(frame.value)
            if isinstance(taken, Events):
                needed = taken.slice.batch - 1 - self._pipeline.delay
                if not self._feedback.complete(taken.slice.window, needed):
                    return frames[:place]
        return frames


class AggregateShard:
    """The aggregate stage of one cells partition."""

    def __init__(
        self,
        pipeline: Pipeline,
        partition: int,
        names: Names,
        secret: bytes,
        upstreams: int,
        clock: ClockLog,
    ) -> None:
        self._stage = Aggregate(pipeline, partition, names, derive(secret, "noise"), upstreams)
        self._tidy = Tidy(pipeline.name, clock)

    @property
    def position(self) -> int:
        """The next frame to take."""
        return self._stage.position

    def open(self, reader: Reader, marker: Marker) -> None:
        """Take up committed state."""
        self._stage.open(reader, marker)
        self._tidy.reopen()

    def step(
        self, reader: Reader, marker: Marker, records: Sequence[Any], fetched: int
    ) -> Step | None:
        """Take frames until something has to be committed."""
        self._tidy.look(marker, self._stage)
        step = self._stage.step(reader, marker, records, fetched)
        return self._tidy.sweep(reader, marker, self._stage, step)


class Sweepable(Protocol):
    """A stage that holds rows by window."""

    def over(self, floor: int) -> None: ...

    def forget(self, reader: Reader, step: Step, limit: int) -> bool: ...


class Tidy:
    """Tells a stage which windows are over: released to the end, or refused by the clock.

    What was released follows from the committed marker, so nothing is deleted that a repeated
    step may need. A refused window is over at once: nothing of it will ever be released.
    """

    def __init__(self, pipeline: str, clock: ClockLog) -> None:
        self._pipeline = pipeline
        self._clock = clock
        self.reopen()

    def reopen(self) -> None:
        """Begin with the marker again."""
        self._seen: tuple[int, int] | None = None
        self._floor: int | None = None

    def look(self, marker: Marker, stage: Sweepable) -> None:
        """Before a step: see whether more windows are over."""
        over = self._clock.over(self._pipeline)
        closed = marker.closed.get(self._pipeline, 0)
        if (closed, over.version) == self._seen:
            return
        self._seen = closed, over.version
        self._floor = over.floor(closed, self._floor)
        if self._floor is not None:
            stage.over(self._floor)

    def sweep(
        self, reader: Reader, marker: Marker, stage: Sweepable, step: Step | None
    ) -> Step | None:
        """After a step: delete some rows with it, or alone if there is nothing else to do."""
        if step is not None:
            stage.forget(reader, step, GARBAGE)
            return step
        alone = Step(marker)
        return alone if stage.forget(reader, alone, 10 * GARBAGE) else None


def bound_upstreams(pipeline: Pipeline, source: Input) -> int:
    """How many bound shards send barriers to each aggregate shard."""
    return source.partitions if pipeline.direct else pipeline.units_partitions


def _statuses(feedback: Mapping[str, Feedback]) -> Any:
    def lookup(pipeline: str, window: int, keys: Keys, as_of: int) -> NDArray[np.int32]:
        return feedback[pipeline].statuses(window, keys, as_of)

    return lookup


__all__ = ["AggregateShard", "Frame", "IngestShard", "Stage", "UnitsShard", "bound_upstreams"]

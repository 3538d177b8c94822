"""The bound stage of a re-partitioned pipeline reads a units topic and writes a cells topic.

A direct pipeline has neither a units topic nor this stage: its ingest stage bounds on its own
partition, with the same `Bounder`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

import numpy as np

from ....errors import EngineError
from ....mechanisms.keys import concat
from ....topics.frames import Barrier, EventsFrame, EventSlice, decode
from ....topics.names import Names
from ....topics.records import Marker, Trigger
from ...clock.log import ClockLog
from ...deployment.model import Pipeline
from ...state.store import StateReader
from ..expiry import Expiry
from ..feedback import Feedback, lookup
from ..step import LogFrame, Received, Sent, Step, missing_barrier, route_units
from .bounder import Bounder
from .sessions import OpenSessions

FRAMES = 48  # frames of one step, unless they are large
LARGE_BYTES = 16 << 20  # most bytes of frames of one step
FRAME_BYTES = 4 << 20  # of frames of one step that takes more than `FRAMES`, since they are small
MOST_FRAMES = 4096
TOGETHER = 40_000  # events whose sums are merged before they are sent
TOGETHER_BYTES = 4 << 20  # of the keys of these events


class BoundStage:
    """The bound stage of one units partition; the bound is applied in the order of its log.

    Args:
        upstreams: number of ingest shards that send events and barriers here.
        clock: clock log, for refused windows.
        feedback: feedback by pipeline; frames wait until the feedback that they need is read.
        raw: raw topic; a trigger that covers more of its partitions than there are upstreams is not
            for this process.

    Attributes:
        position: offset of the next frame to take.
    """

    watermark: Mapping[str, int] = {}

    def __init__(
        self,
        pipeline: Pipeline,
        partition: int,
        names: Names,
        upstreams: int,
        clock: ClockLog,
        feedback: Mapping[str, Feedback],
        raw: str = "",
    ) -> None:
        self._pipeline = pipeline
        self._partition = partition
        # Upstreams that were added later send their first barrier after the trigger named here.
        self._begun = list(pipeline.joined) or [0] * upstreams
        self._raw = raw
        self._clock = clock
        self._feedback = feedback.get(pipeline.name)
        self._bounder = Bounder(pipeline, names, partition, lookup(feedback))
        self._sent = Sent({names.cells(pipeline.name): (pipeline.name, pipeline.cells_partitions)})
        given = pipeline.sessions
        self._sessions = None if given is None else OpenSessions(pipeline, given)
        capped = pipeline.lifetime is not None
        self._expiry = Expiry(self._bounder.forget, self._bounder.purse_of if capped else None)
        self.position = 0

    def open(self, reader: StateReader, marker: Marker) -> None:
        """Begin at the marker."""
        self._expiry.reopen()
        if self._sessions is not None:
            self._sessions.reopen()
        self.position = marker.applied

    def step(
        self, reader: StateReader, marker: Marker, records: Sequence[LogFrame], fetched: int
    ) -> Step | None:
        """Absorb the next frames whose feedback this worker has read.

        Args:
            marker: last committed marker.
            records: frames from ``position`` on, in offset order.
            fetched: offset before which ``records`` is complete.

        Raises:
            RewoundError: a frame is missing or came twice.
            EngineError: a unit is on the wrong partition.
        """
        taken = self._usable(offered(records))
        if len(taken) < len(records):
            fetched = taken[-1].offset + 1 if taken else marker.applied
        self._expiry.consult(self._clock.over(self._pipeline.name), marker, self._pipeline.name)
        step = None
        if taken or fetched > marker.applied:
            step = self._absorb(reader, marker, taken, max(fetched, marker.applied))
            self.position = step.marker.applied
        return self._sent.number(marker, self._expiry.swept(reader, marker, step))

    def _usable(self, frames: Sequence[LogFrame]) -> Sequence[LogFrame]:
        """Frames before the first one whose bound depends on a release that is not read yet."""
        if self._feedback is None:
            return frames
        for place, frame in enumerate(frames):
            taken = decode(frame.value)
            if isinstance(taken, EventsFrame):
                window, batch = taken.slice.window, taken.slice.batch
            elif isinstance(taken, Barrier) and self._sessions is not None:
                # Sessions are bounded when a trigger closes them, even if no records came before
                # it.
                window, batch = taken.trigger.window, taken.trigger.index
            else:
                continue
            if not self._feedback.complete(window, batch - 1 - self._pipeline.delay):
                return frames[:place]
        return frames

    def _absorb(
        self, reader: StateReader, marker: Marker, frames: Sequence[LogFrame], applied: int
    ) -> Step:
        name = self._pipeline.name
        upstream = list(marker.upstream.get(name, []))
        upstream += self._begun[len(upstream) :]
        closed = marker.closed.get(name, 0)
        received = Received(name, marker, len(upstream))
        step, held = Step(marker), Held()
        for place, frame in enumerate(frames):
            taken = decode(frame.value)
            number = received.check(taken.origin, frame)
            if isinstance(taken, EventsFrame):
                self._check(taken)
                if not self._expiry.past(taken.slice.window):
                    held.take(taken)
            elif isinstance(taken, Barrier):
                last = self._last(taken, upstream, closed)
                if last or self._sessions is not None:  # sums go before the barrier that ends them
                    self._bound(reader, held, upstream, closed, step)
                if last and not self._closed(reader, taken.trigger, step, place > 0):
                    applied, step.more = frame.offset, True
                    break
                upstream[taken.origin] = taken.trigger.ordinal
                if last:
                    self._bounder.barrier(reader, taken.trigger, step)
                    closed = taken.trigger.ordinal
            received.take(taken.origin, number)
            if held.large:
                self._bound(reader, held, upstream, closed, step)
        self._bound(reader, held, upstream, closed, step)
        step.marker = Marker(
            marker.genesis, applied, 0, {name: upstream}, {name: closed}, received=received.last
        )
        return step

    def _bound(
        self, reader: StateReader, held: Held, upstream: Sequence[int], closed: int, step: Step
    ) -> None:
        """Bound the held frames, or add them to sessions; then clear them."""
        if self._sessions is not None:
            self._sessions.take(reader, held.frames, upstream, closed, step)
        else:
            slices = runs([one.slice for one in held.frames])
            self._bounder.absorb(reader, slices, step, self._expiry.floor)
        held.clear()

    def _closed(self, reader: StateReader, trigger: Trigger, step: Step, begun: bool) -> bool:
        """Bound the sessions that are over at a trigger; False if the step must end before it.

        Args:
            begun: whether the step has taken frames; if so it ends, since sessions are read from
                committed state.
        """
        if self._sessions is None:
            return True
        if begun:
            return False
        over = self._sessions.close(reader, trigger, step)
        if len(over.slice.unit):
            self._bounder.absorb(reader, [over.slice], step, self._expiry.floor)
        return over.whole

    def _last(self, barrier: Barrier, upstream: Sequence[int], closed: int) -> bool:
        """Whether a barrier is the last of all upstreams, and thus closes its micro-batch.

        Raises:
            RewoundError: another barrier of its upstream was due.
            EngineError: there are upstreams that this shard does not know.
        """
        trigger = barrier.trigger
        if len(trigger.offsets.get(self._raw, [])) > len(upstream):
            # Closing without them would release before their records have come.
            raise EngineError(
                f"partitions of topic {self._raw} count that were added after this worker has "
                "started: start it again"
            )
        if trigger.ordinal != (due := upstream[barrier.origin] + 1):
            raise missing_barrier(self._pipeline.name, due, trigger.ordinal)
        others = (one for origin, one in enumerate(upstream) if origin != barrier.origin)
        return min([trigger.ordinal, *others]) > closed

    def _check(self, events: EventsFrame) -> None:
        """Refuse units of other partitions: a unit that moved would get a second bound."""
        homes = route_units(events.slice.unit, self._pipeline.units_partitions)
        if (homes != self._partition).any():
            raise EngineError(
                f"a unit of pipeline {self._pipeline.name!r} is on the wrong units partition: "
                "partitions were added after genesis; start a new deployment"
            )


def offered(frames: Sequence[LogFrame]) -> Sequence[LogFrame]:
    """Choose the frames of one step, from frames in offset order; small ones go together.

    Each step writes a frame to each cells partition, so a step with few events would write frames
    with few sums. How steps are cut changes no release.
    """
    size, taken = 0, min(len(frames), MOST_FRAMES)
    for place, frame in enumerate(frames[:taken]):
        size += len(frame.value)
        if size > (FRAME_BYTES if place >= FRAMES else LARGE_BYTES) and place:
            taken = place
            break
    return frames[:taken]


class Held:
    """Frames that are bound together, in log order."""

    def __init__(self) -> None:
        self.frames: list[EventsFrame] = []
        self._events = self._bytes = 0

    def take(self, frame: EventsFrame) -> None:
        """Add the next frame."""
        self.frames.append(frame)
        self._events += len(frame.slice.unit)
        self._bytes += len(frame.slice.keys.data)

    @property
    def large(self) -> bool:
        """Whether they hold enough for their sums to be merged and sent."""
        return self._bytes >= TOGETHER_BYTES or self._events >= TOGETHER

    def clear(self) -> None:
        """Drop all frames."""
        self.frames = []
        self._events = self._bytes = 0


def runs(slices: Iterable[EventSlice]) -> Iterator[EventSlice]:
    """Join consecutive slices of one window and micro-batch, in log order.

    Many ingest shards send frames with few events. Bounding each frame separately would cost more
    than its events do, and only the order of events matters.
    """
    for _, some in groupby(slices, key=lambda one: (one.window, one.batch)):
        parts = list(some)
        yield parts[0] if len(parts) == 1 else _joined(parts)


def _joined(parts: Sequence[EventSlice]) -> EventSlice:
    keys, row = concat([one.keys for one in parts]).unique()
    begins = np.cumsum([0, *(len(one.keys) for one in parts[:-1])])
    key = np.concatenate([one.key + begin for one, begin in zip(parts, begins, strict=True)])
    return parts[0]._replace(
        unit=np.concatenate([one.unit for one in parts]),
        keys=keys,
        key=row[key],
        value=np.concatenate([one.value for one in parts]),
        sign=np.concatenate([one.sign for one in parts]),
    )

"""The aggregate stage reads a cells topic and writes a release topic.

Exact sums wait until every upstream shard has sent its barrier. A release then takes steps of three
kinds, each in its own transaction:

1. **close**: the exact content of the micro-batch, the nonce of its noise and the release in
   progress are committed together; the content never changes after that;
2. **compute**: the mechanism runs on closed state, and the state holds its rows. A small
   micro-batch is closed and computed in one step, a large one is computed in chunks;
3. **publish**: at a public time, the held rows go out in transactions whose number and size depend
   on the released rows alone. Only these steps wait for that time, and they carry nothing else.

So every visible value was computed from committed content under a committed nonce: see `nonces`.
The marker never passes a frame whose sums are not in the state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from ....errors import EngineError
from ....formats.events.decode import utc
from ....mechanisms.keys import Keys
from ....mechanisms.noise import Nonces
from ....mechanisms.pairs import homes
from ....topics.frames import Barrier, CellsFrame, decode
from ....topics.names import Names
from ....topics.records import Marker, Trigger
from ...clock.log import ClockLog
from ...deployment.model import Pipeline
from ...state.layout import (
    CHAIN,
    DUE,
    MANIFEST,
    NONCE,
    OPEN,
    PAIR,
    ROW,
    SHOWN,
    STATUS,
    below,
    shown_of,
)
from ...state.store import KeyLimit, StateReader
from ..expiry import Expiry
from ..feedback import finished
from ..step import LogFrame, Out, Received, Step, missing_barrier, route
from .chain import lengthen
from .computation import Chosen, Computation
from .held_release import Pending, held, hold, kept_manifest, public_time, published
from .nonces import close, load
from .partial_sums import PartialSums
from .release_records import Writer
from .secrets import Secrets

RELEASED = 50_000  # rows of one transaction on the release topic
RELEASED_BYTES = 8 << 20  # bytes of keys of these rows


class AggregateStage:
    """The aggregate stage of one cells partition.

    Args:
        upstreams: number of shards that send partial sums and barriers here.
        clock: the clock log, for windows that it has refused.

    Attributes:
        position: offset of the next frame to take; ahead of the marker by the sums in memory.
    """

    watermark: Mapping[str, int] = {}

    def __init__(
        self,
        pipeline: Pipeline,
        partition: int,
        names: Names,
        secrets: Secrets,
        upstreams: int,
        clock: ClockLog,
    ) -> None:
        self._pipeline = pipeline
        self._partition = partition
        self._names = names
        self._upstreams = upstreams
        self._clock = clock
        self._opening = secrets.opening
        self._sealing = secrets.sealing
        self._nonce = self._opening(pipeline.name, partition)
        self._computation = Computation(pipeline, partition, names, secrets.of(pipeline.name))
        self._sums = PartialSums(pipeline.traits)
        self._expiry = Expiry(self._forget)
        self._upstream = [0] * upstreams
        self._received = Received(pipeline.name, Marker("", 0), upstreams)
        self.position = -1

    def open(self, reader: StateReader, marker: Marker) -> None:
        """Begin from committed state; sums that were only in memory are read again from the log."""
        self._nonce = self._opening(self._pipeline.name, self._partition)
        self._sums.open(reader)
        self._expiry.reopen()
        self._upstream = list(marker.upstream.get(self._pipeline.name, [0] * self._upstreams))
        self._received = Received(self._pipeline.name, marker, self._upstreams)
        self.position = marker.applied

    def step(
        self, reader: StateReader, marker: Marker, records: Sequence[LogFrame], fetched: int
    ) -> Step | None:
        """Take frames until something must be committed, and move ``position`` past them.

        Raises:
            RewoundError: a frame is missing or came twice.
            EngineError: a key is on the wrong partition.
        """
        self._expiry.consult(self._clock.over(self._pipeline.name), marker, self._pipeline.name)
        step = self._advance(reader, marker, records, fetched)
        if step is not None and step.not_before:
            return step  # a publication carries only what depends on released rows
        return self._expiry.swept(reader, marker, step)

    def _advance(
        self, reader: StateReader, marker: Marker, frames: Sequence[LogFrame], fetched: int
    ) -> Step | None:
        # Finish a release in progress first. The state holds at most one, and its content is
        # closed: a frame taken now could only belong to a later release.
        pending = Pending.load(reader)
        if pending is not None:
            proceed = self._publish if pending.computed else self._compute_chunk
            proceed = self._settle if pending.settling else proceed
            return proceed(reader, marker, pending)
        for frame in frames:
            if frame.offset < self.position:
                continue
            self.position = frame.offset + 1
            taken = decode(frame.value)
            number = self._received.check(taken.origin, frame)
            trigger = self._take(taken, marker)
            self._received.take(taken.origin, number)
            if trigger is not None:
                return self._close(reader, marker, trigger)
            if self._sums.full:
                return self._spill(marker)
        self.position = max(self.position, fetched)
        return None

    # -- input --------------------------------------------------------------------------------

    def _take(self, frame: object, marker: Marker) -> Trigger | None:
        """Take one frame; return the trigger that it closes, if any."""
        if isinstance(frame, CellsFrame):
            pairs = self._pipeline.traits.pairs
            self._check(homes(frame.part) if pairs else frame.part.key)
            # A window may be refused while sums of it are still in transit.
            if not self._expiry.past(frame.window):
                self._sums.add((frame.window, frame.batch), frame.part)
            return None
        if not isinstance(frame, Barrier):
            raise EngineError("an events frame in the cells topic: the topics are mixed up")
        return self._barrier(frame, marker)

    def _check(self, keys: Keys) -> None:
        """Refuse keys of other partitions: repartitioning would split a key's sum."""
        if (route(keys, self._pipeline.cells_partitions) != self._partition).any():
            raise EngineError(
                f"a key of pipeline {self._pipeline.name!r} is on the wrong cells partition: "
                "partitions were added after genesis; start a new deployment"
            )

    def _barrier(self, barrier: Barrier, marker: Marker) -> Trigger | None:
        trigger = barrier.trigger
        if trigger.ordinal != (due := self._upstream[barrier.origin] + 1):
            raise missing_barrier(self._pipeline.name, due, trigger.ordinal)
        self._upstream[barrier.origin] = trigger.ordinal
        self._sums.add_totals(trigger.ordinal, barrier.totals)
        closed = marker.closed.get(self._pipeline.name, 0)
        return trigger if min(self._upstream) > closed else None

    def _marker(self, marker: Marker, done: Trigger | None = None) -> Marker:
        name, released = self._pipeline.name, marker.released
        closed = marker.closed.get(name, 0)
        if done is not None:
            closed, released = done.ordinal, max(released, done.scheduled // 1000)
        return Marker(
            marker.genesis, self.position, 0, {name: list(self._upstream)}, {name: closed},
            received=self._received.last, released=released,
        )  # fmt: skip

    def _spill(self, marker: Marker) -> Step:
        """Write the sums in memory as sorted runs."""
        step = Step(self._marker(marker))
        self._sums.spill(step.rows)
        return step

    # -- a release: close, compute, publish ---------------------------------------------------

    def _close(self, reader: StateReader, marker: Marker, trigger: Trigger) -> Step:
        """Close a complete micro-batch, and compute its release in this step or begin to."""
        step = Step(self._marker(marker), more=True)
        nonces = close(reader, trigger, self._nonce(trigger), step.rows)
        if self._pipeline.traits.carries:
            lengthen(reader, trigger.window, step.rows)
        chosen = self._computation.whole(reader, trigger, self._sums, nonces)
        # This step's marker passes every frame taken so far, so their frames are not read again.
        # Sums of later micro-batches must therefore be stored with this step.
        if chosen is None:
            self._sums.spill(step.rows)
            Pending(trigger, settling=self._pipeline.traits.pairs).store(step.rows)
            return step
        self._sums.spill(step.rows, leave=(trigger.window, trigger.index))
        self._compute(reader, Pending(trigger), chosen, nonces, step)
        return step

    def _settle(self, reader: StateReader, marker: Marker, pending: Pending) -> Step:
        """Count the next new pairs of a large micro-batch, before its release is computed."""
        step = Step(marker, more=True)
        end = self._computation.settle(reader, pending.trigger, pending.done, self._sums, step)
        Pending(pending.trigger, done=end, settling=end is not None).store(step.rows)
        return step

    def _compute_chunk(self, reader: StateReader, marker: Marker, pending: Pending) -> Step:
        """Compute the next chunk of a large micro-batch, in key order, and hold its rows."""
        trigger, step = pending.trigger, Step(marker, more=True)
        nonces = load(reader, trigger.window)
        chosen = self._computation.chunk(reader, trigger, pending.done, self._sums, nonces)
        self._compute(reader, pending, chosen, nonces, step)
        return step

    def _compute(
        self, reader: StateReader, pending: Pending, chosen: Chosen, nonces: Nonces, step: Step
    ) -> None:
        """Run the mechanism and hold its rows, and the manifest with the last of them."""
        trigger = pending.trigger
        releases = self._computation.run(reader, trigger, chosen, nonces, step)
        hold(releases, step.rows)
        rows = pending.rows + len(releases.key)
        if chosen.end is not None:
            Pending(trigger, done=chosen.end, rows=rows).store(step.rows)
            return
        self._sums.drop((trigger.window, trigger.index), trigger.ordinal, step.rows)
        writer, nonce = self._writer(trigger), nonces[-1][1]
        manifest = writer.manifest(releases.public, nonce, rows, releases.counted)
        step.rows[MANIFEST] = manifest.value
        Pending(trigger, computed=True).store(step.rows)

    def _publish(self, reader: StateReader, marker: Marker, pending: Pending) -> Step:
        """Publish the next rows of a computed release, and the manifest with the last of them."""
        trigger, step = pending.trigger, Step(marker, more=True)
        delay, shards = self._pipeline.publish_delay, self._pipeline.cells_partitions
        step.not_before = public_time(trigger, delay, self._partition, shards)
        writer, shown = self._writer(trigger), self._shown(trigger)
        part = held(reader, pending.done, KeyLimit(RELEASED, RELEASED_BYTES), shown)
        rows = list(writer.rows(part.releases))
        chains = writer.chained(pending.chains, rows)
        step.out += [*rows, *writer.latest(rows, part.gone)]
        step.counts[self._pipeline.name, "released"] += len(rows)
        published(part, step.rows, shown)
        if part.end is not None:
            Pending(trigger, computed=True, done=part.end, chains=chains).store(step.rows)
            return step
        manifest = writer.sealed(kept_manifest(reader), chains)
        self._finish(marker, trigger, manifest, step)
        step.rows |= {OPEN: None, MANIFEST: None}
        return step

    def _finish(self, marker: Marker, trigger: Trigger, manifest: Out, step: Step) -> None:
        """End a release with its manifest."""
        step.out.append(manifest)
        # Only now does the marker close the trigger. A shard that dies earlier continues with the
        # held rows, which expiry cannot delete, since it counts closed triggers.
        if self._pipeline.traits.feedback:
            topic = self._names.selected(self._pipeline.name)
            step.out.append(finished(topic, trigger, self._partition))
        step.marker = self._marker(marker, trigger)
        step.counts[self._pipeline.name, "manifests"] += 1
        if trigger.final and self._partition == 0:  # one shard reports for the window
            step.tells.append(self._over(trigger))

    def _over(self, trigger: Trigger) -> str:
        """Describe the end of a window: a function of the schedule alone."""
        windows = self._pipeline.windows
        start, end = utc(windows.opens(trigger.window)), utc(windows.end(trigger.window))
        return (
            f"pipeline {self._pipeline.name}: window {start} to {end} is released, the last of "
            f"{trigger.index} releases, by shard 0 of {self._pipeline.cells_partitions}"
        )

    def _shown(self, trigger: Trigger) -> bytes | None:
        """Prefix of what the latest topic shows of a window; None if a release never ends a key."""
        kept = self._pipeline.latest_topic and self._pipeline.traits.keys.replaces
        return shown_of(trigger.window) if kept else None

    def _writer(self, trigger: Trigger) -> Writer:
        return Writer(self._pipeline, trigger, self._partition, self._sealing)

    # -- what is over -------------------------------------------------------------------------

    def _forget(self, reader: StateReader, floor: int, step: Step, limit: int) -> bool:
        """Delete up to ``limit`` rows of windows before ``floor``; return whether there were any.

        Some were never released, because the budget did not pay for them.
        """
        found = self._sums.forget(floor, step.rows)
        floor -= self._pipeline.traits.carries  # the next window begins with this one's rows
        for tag in (ROW, STATUS, NONCE, SHOWN, DUE, PAIR, CHAIN):
            for key, _ in islice(reader.scan(*below(tag, floor)), max(limit - found, 0)):
                (step.local if tag == DUE else step.rows).setdefault(key, None)
                found += 1
        step.more = step.more or found >= limit
        return found > 0

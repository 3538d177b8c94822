"""The aggregate stage: hold exact sums per micro-batch, close at barriers, release.

Partial sums are linear, so they are kept as they came (in memory, spilled as sorted runs when
they grow) and merged only when their micro-batch is closed. The cells log is their durable copy
until then: the marker never passes a frame that is not in the state.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from ....errors import EngineError
from ....mechanisms.contract import I64, Closed, Part, Releases, empty_part, merge
from ....mechanisms.keys import Keys
from ....mechanisms.noise import KeyedNoise
from ....topics.frames import Barrier, Cells, decode
from ....topics.names import Names
from ....topics.records import Marker, Trigger
from ...deployment.model import Pipeline
from ...state.store import Changes, Reader, scan_prefix
from ..bound.stage import TOTAL, route, sortable
from ..feedback import STATUS, changed_statuses, finished
from ..step import Out, Step
from .due_keys import Wanted
from .held_release import MANIFEST, OPEN, Pending, held, hold, kept_manifest, published
from .key_rows import DUE, ROW, RowTable, due_entries, due_keys
from .release_records import Writer
from .sorted_runs import Runs

SPILL = 400_000  # rows of partial sums held in memory
CHUNK = 50_000  # keys read in one step
RELEASED = 50_000  # rows of one transaction on the release topic
_EVERY = 1 << 62
SHARED = b""  # the row that belongs to a whole shard


class Frame(NamedTuple):
    """One record of the cells topic."""

    offset: int
    value: bytes


class Aggregate:
    """The aggregate stage of one cells partition.

    Args:
        upstreams: bound shards that send barriers here.
        secret: the noise key.
    """

    def __init__(
        self, pipeline: Pipeline, partition: int, names: Names, secret: bytes, upstreams: int
    ) -> None:
        self.pipeline = pipeline
        self.partition = partition
        self._names = names
        self._secret = secret
        self._upstreams = upstreams
        self._mechanism = pipeline.mechanism
        # Where rows depend on each other, a part of them under the noise of the whole would be
        # another content: only a release that is row by row may be computed in chunks.
        self._indivisible = self._mechanism.load == "all" or self._mechanism.routing == "single"
        self._table = RowTable(pipeline.mechanism)
        self._wanted = Wanted(pipeline, partition)
        self._buffer: dict[tuple[int, int], list[Part]] = defaultdict(list)
        self._buffered = 0
        self._totals: dict[int, I64] = {}
        self._runs = Runs()
        self._upstream = [0] * upstreams
        self._floor: int | None = None
        self._garbage = False
        self.position = -1

    def open(self, reader: Reader, marker: Marker) -> None:
        """Take up committed state; what was only in memory comes again from the log."""
        self._runs = Runs.load(reader)
        self._buffer.clear()
        self._buffered = 0
        self._floor, self._garbage = None, False
        self._upstream = list(marker.upstream.get(self.pipeline.name, [0] * self._upstreams))
        self._totals = {
            int.from_bytes(key[1:9], "big"): np.frombuffer(value, np.int64)
            for key, value in scan_prefix(reader, TOTAL)
        }
        self.position = marker.applied

    def step(
        self, reader: Reader, marker: Marker, frames: Sequence[Frame], fetched: int
    ) -> Step | None:
        """Take frames until there is something to commit; None if there is not.

        ``position`` says how far the frames have been taken.
        """
        pending = Pending.load(reader)
        if pending is not None:
            proceed = self._publish_held if pending.computed else self._release
            return proceed(reader, marker, pending)
        for frame in frames:
            if frame.offset < self.position:
                continue
            self.position = frame.offset + 1
            trigger = self._take(decode(frame.value), marker)
            if trigger is not None:
                return self._close(reader, marker, trigger)
            if self._buffered > SPILL:
                return self._commit(marker)
        self.position = max(self.position, fetched)
        return None

    def _take(self, frame: object, marker: Marker) -> Trigger | None:
        if isinstance(frame, Cells):
            self._check(frame.part.key)
            if self._floor is not None and frame.window < self._floor:
                return None  # on its way when its window was refused
            self._buffer[frame.window, frame.batch].append(frame.part)
            self._buffered += len(frame.part.key)
            return None
        if not isinstance(frame, Barrier):
            raise EngineError("an events frame in the cells topic: the topics are mixed up")
        return self._barrier(frame, marker)

    def _check(self, keys: Keys) -> None:
        """Every key must belong here: added partitions would split a key's sum."""
        if (route(keys, self.pipeline.cells_partitions) != self.partition).any():
            raise EngineError(
                f"a key of pipeline {self.pipeline.name!r} is on the wrong cells partition: "
                "partitions were added after genesis; start a new deployment"
            )

    def _barrier(self, barrier: Barrier, marker: Marker) -> Trigger | None:
        trigger = barrier.trigger
        if trigger.ordinal != self._upstream[barrier.origin] + 1:
            raise EngineError(f"pipeline {self.pipeline.name!r}: a barrier is missing")
        self._upstream[barrier.origin] = trigger.ordinal
        if len(barrier.totals):
            before = self._totals.get(trigger.ordinal, np.zeros_like(barrier.totals))
            self._totals[trigger.ordinal] = before + barrier.totals
        closed = marker.closed.get(self.pipeline.name, 0)
        return trigger if min(self._upstream) > closed else None

    def _marker(self, marker: Marker, closed: int | None = None) -> Marker:
        name = self.pipeline.name
        done = marker.closed.get(name, 0) if closed is None else closed
        return Marker(marker.genesis, self.position, 0, {name: list(self._upstream)}, {name: done})

    def _commit(self, marker: Marker) -> Step:
        """Write what is in memory as sorted runs."""
        step = Step(self._marker(marker))
        self._spill(step.rows)
        return step

    def _spill(self, rows: Changes, leave: tuple[int, int] | None = None) -> None:
        for place in [p for p in self._buffer if p != leave]:
            part = merge(self._buffer.pop(place))
            self._buffered -= len(part.key)
            rows.update(self._runs.add(place, part))
        self._buffered = sum(len(p.key) for ps in self._buffer.values() for p in ps)
        for ordinal, totals in self._totals.items():
            rows[TOTAL + ordinal.to_bytes(8, "big")] = totals.tobytes()

    def _close(self, reader: Reader, marker: Marker, trigger: Trigger) -> Step:
        place = (trigger.window, trigger.index)
        read = sum(len(p.key) for p in self._buffer.get(place, ()))
        small = read <= CHUNK and not self._runs.rows(place)
        if small or self._indivisible:
            step = self._whole(reader, marker, trigger)
            if step is not None:
                return step
        step = self._commit(marker)
        Pending(trigger).store(step.rows)
        step.more = True
        return step

    def _parts(self, reader: Reader, place: tuple[int, int]) -> list[Part]:
        empty = empty_part(self._mechanism.columns, self._mechanism.totals)
        return [empty, *self._buffer.get(place, ()), *self._runs.parts(reader, place)]

    def _whole(self, reader: Reader, marker: Marker, trigger: Trigger) -> Step | None:
        """Compute everything in one step; None if too many rows are due for that."""
        place = (trigger.window, trigger.index)
        part = merge(self._parts(reader, place))
        most = _EVERY if self._indivisible else CHUNK
        wanted = self._wanted.keys(reader, trigger, part.key, most)
        if wanted is None:
            return None
        step = Step(self._marker(marker))
        self._spill(step.rows, leave=place)
        part = part._replace(totals=self._totals_of(trigger))
        releases = self._compute(reader, trigger, wanted, part, step)
        self._forget_batch(trigger, step)
        manifest = self._writer(trigger).manifest(releases.public)
        if len(releases.key) <= RELEASED:
            self._publish(trigger, releases, step)
            self._finish(marker, trigger, manifest, step)
        else:
            self._computed(trigger, releases, manifest, step)
        return step

    def _release(self, reader: Reader, marker: Marker, pending: Pending) -> Step:
        """Compute the next chunk of a large micro-batch, in key order; its rows are held."""
        trigger, begun = pending.trigger, pending.done
        place = (trigger.window, trigger.index)
        due = self._wanted.due(reader, trigger, begun, CHUNK)
        seeds = self._wanted.seeds(trigger, begun)
        ends = [self._runs.end(place, begun, CHUNK)]
        ends += [source[CHUNK - 1] for source in (due, seeds) if len(source) > CHUNK]
        end = min((e for e in ends if e is not None), default=None)
        empty = empty_part(self._mechanism.columns, self._mechanism.totals)
        part = merge([empty, *self._runs.range(reader, place, begun, end)])
        keys = {k for k in (*due, *seeds) if end is None or k <= end} | set(part.key.tolist())
        totals = self._totals_of(trigger)
        if begun is not None and len(totals):
            # Every chunk reads the shared row; the first one has added the totals to it. Another
            # content under the same noise labels would let their difference be read off.
            keys.add(SHARED)
            totals = np.zeros_like(totals)
        step = Step(marker)
        wanted, part = Keys.of(sorted(keys)), part._replace(totals=totals)
        releases = self._compute(reader, trigger, wanted, part, step)
        if end is None:
            self._forget_batch(trigger, step)
            manifest = self._writer(trigger).manifest(releases.public)
            self._computed(trigger, releases, manifest, step)
        else:
            hold(releases, step.rows)
            Pending(trigger, done=end).store(step.rows)
        step.more = True
        return step

    def _computed(self, trigger: Trigger, releases: Releases, manifest: Out, step: Step) -> None:
        """The last rows of a release that is published later, and its manifest."""
        hold(releases, step.rows)
        step.rows[MANIFEST] = manifest.value
        Pending(trigger, computed=True).store(step.rows)
        step.more = True

    def _publish_held(self, reader: Reader, marker: Marker, pending: Pending) -> Step:
        """Publish the next rows of a release that has been computed; the last with its manifest."""
        trigger, step = pending.trigger, Step(marker)
        releases, more = held(reader, pending.done, RELEASED)
        self._publish(trigger, releases, step)
        published(releases, step.rows)
        step.more = True
        if more:
            Pending(trigger, computed=True, done=releases.key[-1]).store(step.rows)
            return step
        manifest = self._writer(trigger).kept_manifest(kept_manifest(reader))
        self._finish(marker, trigger, manifest, step)
        step.rows |= {OPEN: None, MANIFEST: None}
        return step

    def _totals_of(self, trigger: Trigger) -> I64:
        return self._totals.get(trigger.ordinal, np.zeros(self._mechanism.totals, np.int64))

    def _compute(
        self, reader: Reader, trigger: Trigger, wanted: Keys, part: Part, step: Step
    ) -> Releases:
        """Run the mechanism on closed state; changed rows and feedback go into the step."""
        rows = self._table.load(reader, trigger.window, wanted)
        rows, seeded = self._wanted.seeded(trigger, rows)
        self._table.store(trigger.window, seeded, step)
        closed = Closed(self._wanted.live(trigger, rows, part), part, trigger.index)
        changed, releases = self._mechanism.release(closed, self._noise(trigger))
        self._table.store(trigger.window, changed, step)
        if self._mechanism.feedback:
            topic, shard = self._names.selected(self.pipeline.name), self.partition
            step.out += changed_statuses(topic, reader, trigger, shard, releases, step.rows)
        passed = due_keys(reader, trigger.window, trigger.index, None, 10 * CHUNK)
        gone = set(wanted.tolist())
        step.local |= due_entries(trigger.window, trigger.index, [k for k in passed if k in gone])
        return releases

    def _publish(self, trigger: Trigger, releases: Releases, step: Step) -> None:
        """Put released rows into a step; nothing of it may be visible before its public time."""
        step.out += list(self._writer(trigger).rows(releases))
        step.counts[self.pipeline.name, "released"] += len(releases.key)
        step.not_before = trigger.time + self.pipeline.publish_delay

    def _writer(self, trigger: Trigger) -> Writer:
        return Writer(self.pipeline, trigger, self.partition)

    def _noise(self, trigger: Trigger) -> KeyedNoise:
        return noise_of(self.pipeline, trigger, self._secret)

    def _forget_batch(self, trigger: Trigger, step: Step) -> None:
        """The end of a micro-batch's own state: all of it is in rows now."""
        place = (trigger.window, trigger.index)
        step.rows.update(self._runs.drop(place))
        self._buffer.pop(place, None)
        self._buffered = sum(len(p.key) for ps in self._buffer.values() for p in ps)
        if self._totals.pop(trigger.ordinal, None) is not None:
            step.rows[TOTAL + trigger.ordinal.to_bytes(8, "big")] = None

    def _finish(self, marker: Marker, trigger: Trigger, manifest: Out, step: Step) -> None:
        """The manifest closes a release."""
        step.out.append(manifest)
        if self._mechanism.feedback:
            topic = self._names.selected(self.pipeline.name)
            step.out.append(finished(topic, trigger, self.partition))
        step.marker = self._marker(marker, trigger.ordinal)
        step.counts[self.pipeline.name, "manifests"] += 1

    def over(self, floor: int) -> None:
        """Windows below ``floor`` are over: what comes for them is dropped, their rows go."""
        if floor != self._floor:
            self._floor = floor
            self._garbage = True

    def forget(self, reader: Reader, step: Step, limit: int) -> bool:
        """Delete up to ``limit`` rows of windows that are over; True if there were any.

        Some may never have been released: the budget did not pay for them.
        """
        if not self._garbage or self._floor is None:
            return False
        found = 0
        for place in self._runs.below(self._floor):
            step.rows.update(self._runs.drop(place))
            found += 1
        for place in [p for p in self._buffer if p[0] < self._floor]:
            del self._buffer[place]
        self._buffered = sum(len(p.key) for ps in self._buffer.values() for p in ps)
        for tag in (ROW, STATUS, DUE):
            scan = reader.scan(tag + sortable(-(1 << 62)), tag + sortable(self._floor))
            for key, _ in islice(scan, limit - found):
                (step.local if tag == DUE else step.rows).setdefault(key, None)
                found += 1
        step.more = step.more or found >= limit
        self._garbage = found > 0
        return found > 0


def noise_of(pipeline: Pipeline, trigger: Trigger, secret: bytes) -> KeyedNoise:
    """The noise of one release: bound to the charge that paid for it."""
    return KeyedNoise(
        secret,
        charge=bytes.fromhex(trigger.charge),
        mechanism=pipeline.config["mechanism"]["kind"],
        config=pipeline.config_hash.encode(),
        pipeline=pipeline.name,
        window=str(trigger.window),
    )

"""The aggregate stage: hold exact sums per micro-batch, close at barriers, release.

Partial sums are linear, so they are kept as they came (in memory, spilled as sorted runs when
they grow) and merged only when their micro-batch is closed. The cells log is their durable copy
until then: the marker never passes a frame that is not in the state.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from hushstream.mechanisms.contract import (
    I64,
    Closed,
    Part,
    Rows,
    empty_part,
    merge,
)
from hushstream.mechanisms.errors import EngineError
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.noise import KeyedNoise
from hushstream.topics.frames import Barrier, Cells, decode
from hushstream.topics.names import Names
from hushstream.topics.records import Marker, Trigger, encode

from .bound import TOTAL, route, sortable
from .feedback import STATUS, changed_statuses, finished
from .model import Pipeline
from .release import Writer
from .rows import DUE, ROW, RowTable, due_entries, due_keys
from .runs import Runs
from .step import Step
from .store import Changes, Reader, scan_prefix

OPEN = b"o"  # the trigger of a release in progress
SPILL = 400_000  # rows of partial sums held in memory
CHUNK = 50_000  # keys of one release transaction
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
        self._number = pipeline.number.to_bytes(2, "big")
        self._table = RowTable(pipeline.mechanism)
        self._buffer: dict[tuple[int, int], list[Part]] = defaultdict(list)
        self._buffered = 0
        self._totals: dict[int, I64] = {}
        self._runs = Runs()
        self._upstream = [0] * upstreams
        self._floor: int | None = None
        self.position = -1

    def open(self, reader: Reader, marker: Marker) -> None:
        """Take up committed state; what was only in memory comes again from the log."""
        self._runs = Runs.load(reader)
        self._buffer.clear()
        self._buffered = 0
        self._floor = None
        self._upstream = marker.upstream.get(self.pipeline.name, [0] * self._upstreams)
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
        pending = self._pending(reader)
        if pending is not None:
            return self._release(reader, marker, pending)
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
        held = sum(len(p.key) for p in self._buffer.get(place, ()))
        small = held <= CHUNK and not self._runs.rows(place)
        if small or self._indivisible:
            step = self._whole(reader, marker, trigger)
            if step is not None:
                return step
        step = self._commit(marker)
        step.rows[OPEN] = _pending_row(trigger, None)
        step.more = True
        return step

    def _parts(self, reader: Reader, place: tuple[int, int]) -> list[Part]:
        empty = empty_part(self._mechanism.columns, self._mechanism.totals)
        return [empty, *self._buffer.get(place, ()), *self._runs.parts(reader, place)]

    def _whole(self, reader: Reader, marker: Marker, trigger: Trigger) -> Step | None:
        """Release everything in one step; None if too many rows are due for that."""
        place = (trigger.window, trigger.index)
        part = merge(self._parts(reader, place))
        wanted = self._wanted(reader, trigger, part.key)
        if wanted is None:
            return None
        step = Step(self._marker(marker, trigger.ordinal))
        self._spill(step.rows, leave=place)
        part = part._replace(totals=self._totals_of(trigger))
        public = self._emit(reader, trigger, wanted, part, step)
        self._finish(reader, trigger, public, step)
        return step

    def _release(
        self, reader: Reader, marker: Marker, pending: tuple[Trigger, bytes | None]
    ) -> Step:
        """The next chunk of a release that is committed in chunks, in key order."""
        trigger, begun = pending
        place = (trigger.window, trigger.index)
        due, seeds = self._due(reader, trigger, begun, CHUNK), self._seeds(trigger, begun)
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
        public = self._emit(reader, trigger, wanted, part, step)
        if end is None:
            step.marker = self._marker(marker, trigger.ordinal)
            step.rows[OPEN] = None
            self._finish(reader, trigger, public, step)
        else:
            step.rows[OPEN] = _pending_row(trigger, end)
        step.more = True
        return step

    def _wanted(self, reader: Reader, trigger: Trigger, touched: Keys) -> Keys | None:
        """Keys whose rows the release reads, in canonical order; None if they are too many."""
        if self._mechanism.load == "all":
            stored = scan_prefix(reader, ROW + sortable(trigger.window))
            wanted = {key[9:] for key, _ in stored}
        else:
            most = _EVERY if self._indivisible else CHUNK
            wanted = set(self._due(reader, trigger, None, most))
            if len(wanted) > most:
                return None
        wanted.update(touched.tolist(), self._seeds(trigger, None))
        return Keys.of(sorted(wanted))

    def _due(self, reader: Reader, trigger: Trigger, begun: bytes | None, most: int) -> list[bytes]:
        every = due_keys(reader, trigger.window, -1, begun, most + 1)
        now = due_keys(reader, trigger.window, trigger.index, begun, most + 1)
        return sorted({*every, *now})

    def _seeds(self, trigger: Trigger, begun: bytes | None) -> list[bytes]:
        """Public keys of this shard that have no row yet."""
        if trigger.index != 1 or self.pipeline.public_keys is None:
            return []
        keys = Keys.of(sorted(self.pipeline.public_keys))
        mine = keys.take(
            np.flatnonzero(route(keys, self.pipeline.cells_partitions) == self.partition)
        )
        return [k for k in mine if begun is None or k > begun]

    def _totals_of(self, trigger: Trigger) -> I64:
        return self._totals.get(trigger.ordinal, np.zeros(self._mechanism.totals, np.int64))

    def _emit(
        self, reader: Reader, trigger: Trigger, wanted: Keys, part: Part, step: Step
    ) -> dict[str, I64]:
        """Run the mechanism on closed state; rows and records go into the step."""
        rows = self._table.load(reader, trigger.window, wanted)
        rows = self._live(trigger, self._seeded(trigger, rows, step), part)
        closed = Closed(rows, part, trigger.index)
        changed, releases = self._mechanism.release(closed, self._noise(trigger))
        self._table.store(trigger.window, changed, step)
        step.out += list(Writer(self.pipeline, trigger, self.partition).rows(releases))
        step.counts[self.pipeline.name, "released"] += len(releases.key)
        step.not_before = trigger.time + self.pipeline.publish_delay
        if self._mechanism.feedback:
            topic, shard = self._names.selected(self.pipeline.name), self.partition
            step.out += changed_statuses(topic, reader, trigger, shard, releases, step.rows)
        passed = due_keys(reader, trigger.window, trigger.index, None, 10 * CHUNK)
        gone = set(wanted.tolist())
        step.local |= due_entries(trigger.window, trigger.index, [k for k in passed if k in gone])
        return releases.public

    def _live(self, trigger: Trigger, rows: Rows, part: Part) -> Rows:
        """Without rows that only a stale index entry brought here."""
        if self._mechanism.load == "all":
            return rows
        touched = set(part.key.tolist())
        due = np.isin(rows.due, (-1, trigger.index))
        keep = np.flatnonzero(due | np.fromiter((k in touched for k in rows.key), bool, len(due)))
        return Rows(rows.key.take(keep), rows.cell[keep], rows.due[keep])

    def _seeded(self, trigger: Trigger, rows: Rows, step: Step) -> Rows:
        """Public keys get their row at the first trigger, due at every one."""
        seeds = set(self._seeds(trigger, None))
        if not seeds:
            return rows
        public = np.fromiter((k in seeds for k in rows.key), bool, len(rows.key))
        rows = rows._replace(due=np.where(public, -1, rows.due).astype(np.int32))
        mine = np.flatnonzero(public)
        self._table.store(
            trigger.window, Rows(rows.key.take(mine), rows.cell[mine], rows.due[mine]), step
        )
        return rows

    def _noise(self, trigger: Trigger) -> KeyedNoise:
        return noise_of(self.pipeline, trigger, self._secret)

    def _finish(self, reader: Reader, trigger: Trigger, public: dict[str, I64], step: Step) -> None:
        """The manifest, and the end of the micro-batch's own state."""
        place = (trigger.window, trigger.index)
        step.out.append(Writer(self.pipeline, trigger, self.partition).manifest(public))
        if self._mechanism.feedback:
            topic = self._names.selected(self.pipeline.name)
            step.out.append(finished(topic, trigger, self.partition))
        step.rows.update(self._runs.drop(place))
        self._buffer.pop(place, None)
        self._buffered = sum(len(p.key) for ps in self._buffer.values() for p in ps)
        if self._totals.pop(trigger.ordinal, None) is not None:
            step.rows[TOTAL + trigger.ordinal.to_bytes(8, "big")] = None
        step.counts[self.pipeline.name, "manifests"] += 1
        if trigger.final:
            self._floor = trigger.window  # rows of this one go once it is committed

    def _pending(self, reader: Reader) -> tuple[Trigger, bytes | None] | None:
        (row,) = reader.get_many([OPEN])
        return None if row is None else _read_pending(row)

    def forget(self, reader: Reader, step: Step, limit: int) -> None:
        """Delete up to ``limit`` rows of windows that are over."""
        if self._floor is None:
            return
        left = limit
        for tag in (ROW, STATUS, DUE):
            for key, _ in reader.scan(tag + sortable(-(1 << 62)), tag + sortable(self._floor)):
                if left == 0:
                    step.more = True
                    return
                (step.local if tag == DUE else step.rows).setdefault(key, None)
                left -= 1
        self._floor = None


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


def _pending_row(trigger: Trigger, after: bytes | None) -> bytes:
    body = encode(trigger)
    flag = b"\0" if after is None else b"\1" + after
    return len(body).to_bytes(4, "big") + body + flag


def _read_pending(row: bytes) -> tuple[Trigger, bytes | None]:
    size = int.from_bytes(row[:4], "big")
    trigger = msgspec.json.decode(row[4 : 4 + size], type=Trigger)
    rest = row[4 + size :]
    return trigger, None if rest == b"\0" else rest[1:]

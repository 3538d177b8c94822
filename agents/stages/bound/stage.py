"""The bound stage: apply each unit's contribution bound, send exact partial sums by key."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....errors import EngineError
from ....mechanisms.contract import Batch, Mechanism, Part, Units, pair_hash
from ....mechanisms.keys import Keys
from ....topics.frames import Barrier, Slice, encode_barrier, encode_cells, take_part
from ....topics.names import Names
from ....topics.records import Trigger
from ...deployment.model import Pipeline
from ...state.store import Changes, Overlay, Reader
from ..step import Out, Step

UNIT, TOTAL = b"u", b"t"

Statuses = Callable[[str, int, Keys, int], NDArray[np.int32]]  # pipeline, window, keys, as of


class UnitCodec:
    """Unit rows as bytes: what is left, then (hash, used per lane) of each pair."""

    def __init__(self, mechanism: Mechanism) -> None:
        bound = int(mechanism.init_units(1).left[0])
        self._fresh = mechanism.init_units
        self._left = np.dtype("<u2" if bound < 1 << 16 else "<u4" if bound < 1 << 32 else "<i8")
        # One lane without totals counts records, at most the bound. Others keep more beside it:
        # how many records were seen at all, or the round that a unit was last counted in.
        small = bound < 256 and mechanism.lanes == 1 and not mechanism.totals
        self._used = np.dtype("u1" if small else "<u2")
        self._pair = np.dtype([("pair", "<u4"), ("used", self._used, (mechanism.lanes,))])

    def decode(self, rows: Sequence[bytes | None]) -> Units:
        """Units from their stored rows; None is a unit never seen."""
        fresh = self._fresh(1)
        blank = self._row(fresh, 0)
        filled = [blank if row is None else row for row in rows]
        head, step = self._left.itemsize, self._pair.itemsize
        widths = np.fromiter(map(len, filled), np.int64, len(filled))
        ends = widths.cumsum()
        blob = np.frombuffer(b"".join(filled), np.uint8)
        heads = (ends - widths)[:, None] + np.arange(head)
        left = blob[heads].reshape(-1).view(self._left).astype(np.int64)
        body = np.ones(len(blob), bool)
        body[heads.reshape(-1)] = False
        pairs = np.ascontiguousarray(blob[body]).view(self._pair)
        start = np.concatenate([np.zeros(1, np.int64), ((widths - head) // step).cumsum()])
        return Units(left, start, pairs["pair"].copy(), pairs["used"].astype(np.uint16))

    def encode(self, units: Units) -> list[bytes]:
        """Stored rows of all units.

        Raises:
            EngineError: a count does not fit; cut off, it would give its unit a second bound.
        """
        if int(units.used.max(initial=0)) > np.iinfo(self._used).max:
            raise EngineError("a unit's count does not fit into its stored row")
        pairs = np.empty(len(units.pair), self._pair)
        pairs["pair"] = units.pair
        pairs["used"] = units.used
        head, step = self._left.itemsize, self._pair.itemsize
        begins = units.start * step + np.arange(len(units.start)) * head
        blob = np.empty(int(begins[-1]), np.uint8)
        body = np.ones(len(blob), bool)
        heads = begins[:-1, None] + np.arange(head)
        body[heads] = False
        blob[heads] = units.left.astype(self._left).view(np.uint8).reshape(-1, head)
        blob[body] = pairs.view(np.uint8)
        return _pieces(blob.tobytes(), begins.tolist())

    def _row(self, units: Units, row: int) -> bytes:
        return self.encode(units)[row]


class Bound:
    """The bound of one pipeline at one shard; pure given its reader and statuses."""

    def __init__(
        self, pipeline: Pipeline, names: Names, origin: int, statuses: Statuses | None
    ) -> None:
        self.pipeline = pipeline
        self._names = names
        self._origin = origin
        self._statuses = statuses
        self._codec = UnitCodec(pipeline.mechanism)
        self._prefix = UNIT + pipeline.number.to_bytes(2, "big")
        self._cells = names.cells(pipeline.name)
        # There a record is in one sum of every level.
        self._counted = pipeline.config["mechanism"]["kind"] != "privhp"

    def absorb(self, reader: Reader, events: Iterable[Slice], step: Step) -> None:
        """Bound a run of slices in log order; frames and rows go into ``step``."""
        for one in events:
            part = self._absorb(reader, one, step.rows)
            self._send(one.window, one.batch, part, step)
            step.counts[self.pipeline.name, "seen"] += len(one.unit)
            if self._counted:
                step.counts[self.pipeline.name, "accepted"] += int(part.sums[:, 0].sum())

    def _absorb(self, reader: Reader, one: Slice, changes: Changes) -> Part:
        epoch = sortable(self.pipeline.windows.epoch(one.window))
        keys, unit = distinct(one.unit, self._prefix + epoch)
        units = self._codec.decode(Overlay(reader, changes).get_many(keys))
        batch = Batch(
            one.keys,
            one.key,
            unit,
            one.value,
            one.sign,
            self._status(one),
            self.pipeline.windows.ordinal(one.window),
        )
        units, part = self.pipeline.mechanism.absorb(units, batch)
        changes.update(zip(keys, self._codec.encode(units), strict=True))
        if self.pipeline.mechanism.totals:
            self._count(reader, one, part, changes)
        return part

    def _status(self, one: Slice) -> NDArray[np.int32]:
        if not self.pipeline.mechanism.feedback or self._statuses is None:
            return np.zeros(len(one.keys), np.int32)
        as_of = one.batch - 1 - self.pipeline.delay
        return self._statuses(self.pipeline.name, one.window, one.keys, as_of)

    def _count(self, reader: Reader, one: Slice, part: Part, changes: Changes) -> None:
        row = self._total_key(one.window, one.batch)
        (stored,) = Overlay(reader, changes).get_many([row])
        before = np.frombuffer(stored, np.int64) if stored else np.zeros_like(part.totals)
        changes[row] = (before + part.totals).tobytes()

    def _total_key(self, window: int, batch: int) -> bytes:
        number = self.pipeline.number.to_bytes(2, "big")
        return TOTAL + number + sortable(window) + batch.to_bytes(4, "big")

    def _send(self, window: int, batch: int, part: Part, step: Step) -> None:
        part = part._replace(totals=np.zeros_like(part.totals))  # they ride on the barrier
        home = route(part.key, self.pipeline.cells_partitions)
        for partition in np.unique(home).tolist():
            mine = take_part(part, np.flatnonzero(home == partition))
            for frame in encode_cells(self._origin, window, batch, mine):
                step.out.append(Out(self._cells, partition, None, frame))

    def barrier(self, reader: Reader, trigger: Trigger, step: Step) -> None:
        """Tell every aggregate shard that this micro-batch is complete here."""
        totals = np.zeros(self.pipeline.mechanism.totals, np.int64)
        row = self._total_key(trigger.window, trigger.index)
        (stored,) = Overlay(reader, step.rows).get_many([row])
        if stored:
            totals = np.frombuffer(stored, np.int64)
            step.rows[row] = None
        frame = encode_barrier(Barrier(self._origin, trigger, totals))
        for partition in range(self.pipeline.cells_partitions):
            step.out.append(Out(self._cells, partition, None, frame))

    def forget(self, reader: Reader, floor: int, step: Step, limit: int) -> bool:
        """Delete up to ``limit`` unit rows of epochs before window ``floor``; True if any."""
        totals = TOTAL + self._prefix[len(UNIT) :]
        ranges = [
            (self._prefix, self._prefix + sortable(self.pipeline.windows.epoch(floor))),
            (totals, totals + sortable(floor)),  # left by windows that were refused
        ]
        found = 0
        for begin, end in ranges:
            for key, _ in islice(reader.scan(begin, end), limit - found):
                step.rows.setdefault(key, None)
                found += 1
        step.more = step.more or found == limit
        return found > 0


def sortable(number: int) -> bytes:
    """A signed integer as eight bytes whose order is the order of the integers."""
    return (number + (1 << 63)).to_bytes(8, "big")


def unsortable(data: bytes) -> int:
    """The integer behind `sortable`."""
    return int.from_bytes(data, "big") - (1 << 63)


def route(keys: Keys, partitions: int) -> NDArray[np.intp]:
    """The cells partition of each key: a stable public hash."""
    return (pair_hash(keys, 0) % np.uint32(partitions)).astype(np.intp)


def route_units(digests: NDArray[np.uint8], partitions: int) -> NDArray[np.intp]:
    """The units partition of each keyed digest."""
    head = np.ascontiguousarray(digests[:, :4]).view(">u4").reshape(-1)
    return (head % np.uint32(partitions)).astype(np.intp)


def distinct(digests: NDArray[np.uint8], prefix: bytes) -> tuple[list[bytes], NDArray[np.intp]]:
    """State keys of the distinct digests in order, and the place of each row among them."""
    words = np.ascontiguousarray(digests).view(">u8").astype(np.uint64).reshape(-1, 2)
    order = np.argsort(words[:, 0])
    head, tail = words[order].T
    alike = head[1:] == head[:-1]
    if (alike & (tail[1:] != tail[:-1])).any():  # half a digest in common, which is no accident
        order = np.lexsort((words[:, 1], words[:, 0]))
        head, tail = words[order].T
        alike = (head[1:] == head[:-1]) & (tail[1:] == tail[:-1])
    new = np.ones(len(order), bool)
    new[1:] = ~alike
    place = np.empty(len(order), np.intp)
    place[order] = new.cumsum() - 1
    width = len(prefix) + 16
    rows = np.empty((int(place.max(initial=-1)) + 1, width), np.uint8)
    rows[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
    rows[:, len(prefix) :] = digests[order[new]]
    return _pieces(rows.tobytes(), range(0, rows.size + 1, width)), place


def _pieces(blob: bytes, ends: Sequence[int]) -> list[bytes]:
    return [blob[a:b] for a, b in itertools.pairwise(ends)]


def split_by(home: NDArray[np.intp], partitions: int) -> Iterator[tuple[int, NDArray[Any]]]:
    """Rows of each partition that has any."""
    for partition in range(partitions):
        rows = np.flatnonzero(home == partition)
        if len(rows):
            yield partition, rows

"""Exact sums of open micro-batches: in memory, and spilled as sorted runs as they grow.

Partial sums are linear, so they are kept as received and merged only when their micro-batch closes.
Until then, the cells log is their durable copy.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from ....errors import EngineError
from ....mechanisms.columns import I64, Part, merge
from ....mechanisms.contract import Traits
from ....mechanisms.keys import Keys
from ....mechanisms.sums import LARGEST
from ....topics.frames import CellsFrame, decode, encode_cells, take_part
from ...state.layout import RUN, TOTAL, run_chunk, run_of, run_prefix, trigger_of, trigger_total
from ...state.store import Changes, KeyLimit, StateReader, scan_prefix

SPILL = 400_000  # rows of partial sums held in memory
SPILL_BYTES = 8 << 20  # of the keys of these rows, plus `PART_BYTES` for each frame
PART_BYTES = 2048  # overhead of one frame's objects: a frame may hold a single short key

Place = tuple[int, int]  # window, micro-batch


class Chunk(NamedTuple):
    """One frame of a run: a closed range of keys."""

    row: bytes
    first: bytes
    last: bytes
    rows: int
    size: int  # bytes


class SortedRuns:
    """Index of the stored runs; the frames themselves stay in the store."""

    def __init__(self) -> None:
        self._chunks: dict[Place, list[Chunk]] = defaultdict(list)
        self._next = 0

    @classmethod
    def load(cls, reader: StateReader) -> SortedRuns:
        """Index the stored runs."""
        runs = cls()
        for row, value in scan_prefix(reader, RUN):
            window, batch, run = run_of(row)
            runs._chunks[window, batch].append(_chunk(row, value))
            runs._next = max(runs._next, run + 1)
        return runs

    def add(self, place: Place, part: Part) -> Changes:
        """Make the rows of a new run of a merged part: one for each chunk."""
        rows: Changes = {}
        prefix = run_prefix(*place, self._next)
        self._next += 1
        for number, frame in enumerate(encode_cells(0, *place, part)):
            row = run_chunk(prefix, number)
            rows[row] = frame
            self._chunks[place].append(_chunk(row, frame))
        return rows

    def drop(self, place: Place) -> Changes:
        """Delete all runs of a micro-batch; return the changes for the step."""
        return {chunk.row: None for chunk in self._chunks.pop(place, [])}

    def below(self, floor: int) -> list[Place]:
        """List stored micro-batches of windows before ``floor``."""
        return [place for place, chunks in self._chunks.items() if chunks and place[0] < floor]

    def rows(self, place: Place) -> int:
        """Count the rows stored for a micro-batch; a key of several runs counts several times."""
        return sum(chunk.rows for chunk in self._chunks.get(place, ()))

    def parts(self, reader: StateReader, place: Place) -> list[Part]:
        """Read all stored partial sums of a micro-batch."""
        return [_read(reader, chunk) for chunk in self._chunks.get(place, ())]

    def end(self, place: Place, begun: bytes | None, limit: KeyLimit) -> bytes | None:
        """Find the last key of a range of about ``limit`` rows; None if the range reaches the end.

        Args:
            begun: the last key of the range before; None for the first range.
            limit: most rows, and most bytes of chunks; one more part of each run may be read.
        """
        ahead = [c for c in self._chunks.get(place, ()) if begun is None or c.last > begun]
        # Ranges end at the end of a chunk, so most chunks are read once. The first such end is
        # taken whatever the size, so that each range advances.
        best: bytes | None = None
        size = 0
        for chunk in sorted(ahead, key=attrgetter("last")):
            inside = sum(c.rows for c in ahead if c.first <= chunk.last)
            size += chunk.size
            if best is not None and (inside > limit.keys or size > limit.size):
                return best
            best = chunk.last
        return None

    def range(
        self, reader: StateReader, place: Place, begun: bytes | None, end: bytes | None
    ) -> Iterator[Part]:
        """Yield partial sums of the keys in (begun, end]."""
        for chunk in self._chunks.get(place, ()):
            if (begun is None or chunk.last > begun) and (end is None or chunk.first <= end):
                part = _read(reader, chunk)
                first = 0 if begun is None else _above(part.key, begun)
                last = len(part.key) if end is None else _above(part.key, end)
                yield part if last - first == len(part.key) else _between(part, first, last)


def _above(keys: Keys, key: bytes) -> int:
    """Find the first of these sorted keys that is greater than ``key``."""
    return bisect_right(range(len(keys)), key, key=keys.__getitem__)


def _between(part: Part, first: int, last: int) -> Part:
    return take_part(part, np.arange(first, last))


def _read(reader: StateReader, chunk: Chunk) -> Part:
    (value,) = reader.get_many([chunk.row])
    if value is None:
        raise EngineError("a stored run has disappeared: delete the data folder and restart")
    return _part(value)


def _part(frame: bytes) -> Part:
    decoded = decode(frame)
    if not isinstance(decoded, CellsFrame):
        raise EngineError("a stored run is not a frame of partial sums")
    return decoded.part


def _chunk(row: bytes, frame: bytes) -> Chunk:
    keys = _part(frame).key
    return Chunk(row, keys[0], keys[-1], len(keys), len(frame))


class PartialSums:
    """Partial sums that one aggregate shard has received and not released yet."""

    def __init__(self, traits: Traits) -> None:
        self._traits = traits
        self._buffer: dict[Place, list[Part]] = defaultdict(list)
        self._rows = self._bytes = 0
        self._totals: dict[int, I64] = {}
        self._runs = SortedRuns()

    def open(self, reader: StateReader) -> None:
        """Index the stored runs; sums that were only in memory are read again from the log."""
        self._runs = SortedRuns.load(reader)
        self._buffer.clear()
        self._rows = self._bytes = 0
        self._totals = {
            trigger_of(key): np.frombuffer(value, np.int64)
            for key, value in scan_prefix(reader, TOTAL)
        }

    def add(self, place: Place, part: Part) -> None:
        """Add the sums of one frame.

        Args:
            place: window and micro-batch.
            part: decoded part; its totals are 0, since barriers carry them.
        """
        self._buffer[place].append(_own(part))
        self._rows += len(part.key)
        self._bytes += _size(part) + PART_BYTES

    def add_totals(self, ordinal: int, totals: I64) -> None:
        """Add the (t,) shard-wide totals of one barrier to those of its trigger; t may be 0."""
        if len(totals):
            self._totals[ordinal] = self._totals.get(ordinal, np.zeros_like(totals)) + totals

    @property
    def full(self) -> bool:
        """Whether more than `SPILL` rows or `SPILL_BYTES` are in memory."""
        return self._rows > SPILL or self._bytes > SPILL_BYTES

    def spill(self, rows: Changes, leave: Place | None = None) -> None:
        """Move all sums from memory into ``rows``, except those of the micro-batch ``leave``."""
        # Merge first: a run is read by ranges of keys, so each key must occur once.
        for place in [p for p in self._buffer if p != leave]:
            for part in uncut(self._buffer.pop(place)):
                rows.update(self._runs.add(place, part))
        self._recount()
        for ordinal, totals in self._totals.items():
            rows[trigger_total(ordinal)] = totals.tobytes()

    def write(self, place: Place, part: Part) -> Changes:
        """Add merged sums to a micro-batch as a run of their own."""
        return self._runs.add(place, part)

    def small(self, place: Place, most: KeyLimit) -> bool:
        """Whether a micro-batch is all in memory and within ``most`` rows and bytes of keys."""
        held = self._buffer.get(place, ())
        rows, size = sum(len(p.key) for p in held), sum(map(_size, held))
        return rows <= most.keys and size <= most.size and not self._runs.rows(place)

    def whole(self, reader: StateReader, place: Place) -> Part:
        """Merge all sums of a micro-batch; its totals are 0."""
        parts = [*self._buffer.get(place, ()), *self._runs.parts(reader, place)]
        return merge([self._empty, *parts])

    def chunk(
        self, reader: StateReader, place: Place, begun: bytes | None, end: bytes | None
    ) -> Part:
        """Merge spilled sums of the keys in (begun, end]; their totals are 0."""
        return merge([self._empty, *self._runs.range(reader, place, begun, end)])

    def end(self, place: Place, begun: bytes | None, limit: KeyLimit) -> bytes | None:
        """Find the last key of about ``limit`` rows above ``begun``; None: these are the last.

        Args:
            begun: the last key of the range before; None for the first range.
            limit: most rows and bytes.
        """
        return self._runs.end(place, begun, limit)

    def totals(self, ordinal: int) -> I64:
        """Look up the (t,) totals of one trigger by its ordinal."""
        return self._totals.get(ordinal, np.zeros(self._traits.totals, np.int64))

    def drop(self, place: Place, ordinal: int, rows: Changes) -> None:
        """Delete a micro-batch whose sums are all in key rows."""
        rows.update(self._runs.drop(place))
        self._buffer.pop(place, None)
        self._recount()
        if self._totals.pop(ordinal, None) is not None:
            rows[trigger_total(ordinal)] = None

    def forget(self, floor: int, rows: Changes) -> int:
        """Delete the remains of windows before ``floor``; return the number of micro-batches."""
        places = self._runs.below(floor)
        for place in places:
            rows.update(self._runs.drop(place))
        for place in [p for p in self._buffer if p[0] < floor]:
            del self._buffer[place]
        self._recount()
        return len(places)

    @property
    def _empty(self) -> Part:
        return self._traits.part()

    def _recount(self) -> None:
        held = [part for parts in self._buffer.values() for part in parts]
        self._rows = sum(len(part.key) for part in held)
        self._bytes = sum(map(_size, held)) + PART_BYTES * len(held)


def uncut(parts: list[Part]) -> Iterator[Part]:
    """Merge parts into the fewest parts that hold the sums exactly.

    Sums saturate when a micro-batch is closed (`mechanisms.sums`). If they saturated here as well,
    the result would depend on when memory was full.
    """
    merged = merge(parts)
    if len(parts) == 1 or not (np.abs(merged.sums) == LARGEST).any():
        yield merged
        return
    half = len(parts) // 2
    yield from uncut(parts[:half])
    yield from uncut(parts[half:])


def _own(part: Part) -> Part:
    """The same part in arrays of its own; views would keep the frame that it was decoded from."""
    key = part.key
    keys = Keys(key.packed().copy(), key.offsets - key.offsets[0])
    return part._replace(key=keys, lane=part.lane.copy())


def _size(part: Part) -> int:
    """Bytes of the keys."""
    return int(part.key.offsets[-1] - part.key.offsets[0])

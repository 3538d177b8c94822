"""Sorted runs: partial sums of micro-batches that are not closed yet and outgrew the memory."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from ....errors import EngineError
from ....mechanisms.columns import Part
from ....mechanisms.keys import Keys
from ....topics.frames import CellsFrame, decode, encode_cells, take_part
from ...state.layout import RUN, run_chunk, run_of, run_prefix
from ...state.store import Changes, KeyLimit, StateReader, scan_prefix

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
        """Index the runs that are stored."""
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
        """Delete all runs of a micro-batch; returns the changes for the step."""
        return {chunk.row: None for chunk in self._chunks.pop(place, [])}

    def below(self, floor: int) -> list[Place]:
        """List micro-batches of windows before ``floor`` of which something is stored."""
        return [place for place, chunks in self._chunks.items() if chunks and place[0] < floor]

    def rows(self, place: Place) -> int:
        """Count the rows stored for a micro-batch; a key of several runs counts several times."""
        return sum(chunk.rows for chunk in self._chunks.get(place, ()))

    def parts(self, reader: StateReader, place: Place) -> list[Part]:
        """Read all stored partial sums of a micro-batch."""
        return [_read(reader, chunk) for chunk in self._chunks.get(place, ())]

    def end(self, place: Place, begun: bytes | None, limit: KeyLimit) -> bytes | None:
        """Find the last key of a range that reads about ``limit`` rows; None if it reaches the end.

        Args:
            begun: the last key of the range before; None for the first range.
            limit: largest number of rows, and of bytes of chunks; one more part of each run may be
                read.
        """
        ahead = [c for c in self._chunks.get(place, ()) if begun is None or c.last > begun]
        # Ranges end at the end of a chunk, so most chunks are read once. The first such end is
        # taken whatever its size: a range must get on.
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
    """The first of these keys, which are in order, that is greater than ``key``."""
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
        raise EngineError("a stored run is not a frame of cells")
    return decoded.part


def _chunk(row: bytes, frame: bytes) -> Chunk:
    keys = _part(frame).key
    return Chunk(row, keys[0], keys[-1], len(keys), len(frame))

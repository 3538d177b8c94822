"""Sorts rows of units on their way into an empty table, so that each block is written once.

A restore reads rows in the order of writing, which is unrelated to their digests. Merging each list
into the table would rewrite the table again and again. Instead, rows are divided by the first byte
of their digests, in memory or in a file, and then written part by part: each part is a contiguous
range of the table.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from os import pread
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....errors import DamagedError
from ....mechanisms.keys import Keys, concat
from ..layout import DIGEST, UNIT_WIDTH
from ..rocks_errors import explained
from ..rows.columns import RowColumns, by_epoch, taken
from .packed import Digests, NewRows

PARTS = 256  # one for each first byte of a digest
BITS = 8  # bits of that byte

I64 = NDArray[np.int64]


class _Segment(NamedTuple):
    """Rows in the file: digests, (n+1,) ends of values, and the values.

    Attributes:
        at: offset in the file.
        firsts: (PARTS+1,) first row of each part.
    """

    at: int
    firsts: I64


@dataclass
class Gathered:
    """Rows of one epoch.

    Attributes:
        rows, size: number and bytes of the rows, including replaced ones.
    """

    rows: int = 0
    size: int = 0
    waiting: list[RowColumns] = field(default_factory=list)
    kept: int = 0  # bytes in memory
    segments: list[_Segment] = field(default_factory=list)

    @property
    def bits(self) -> int:
        """Number of first bits that the digests of a part share."""
        return BITS if self.segments else 0


class UnitIntake:
    """Rows by epoch, in order of arrival.

    Args:
        folder: folder of the table; the file in it is unnamed, so it vanishes with the process.
        room: most bytes in memory.
    """

    def __init__(self, folder: Path, room: int) -> None:
        self._folder, self._room = folder, room
        self._file: IO[bytes] | None = None
        self._end = self._kept = 0
        self.epochs: dict[bytes, Gathered] = {}

    def add(self, rows: RowColumns) -> None:
        """Take rows in order; the last row of a key counts, and an empty row deletes.

        Raises:
            EngineError: the disk is full.
        """
        for prefix, places in by_epoch(rows.keys):
            matrix, values = rows.keys.packed().reshape(len(rows.keys), UNIT_WIDTH), rows.values
            matrix = matrix[:, -DIGEST:]
            if len(places) < len(rows.keys):
                matrix, values = matrix[places], taken(values, places)
            one = self.epochs.setdefault(prefix, Gathered())
            size = matrix.size + int(values.offsets[-1] - values.offsets[0])
            one.waiting.append(RowColumns(Keys.fixed(matrix), values))
            one.rows, one.size, one.kept = one.rows + len(matrix), one.size + size, one.kept + size
            self._kept += size
        while self._kept > self._room:
            self._spill(max(self.epochs.values(), key=lambda one: one.kept))

    def _spill(self, one: Gathered) -> None:
        """Write an epoch's rows in memory to the file, by parts."""
        rows = _joined(one.waiting)
        matrix = rows.keys.packed().reshape(-1, DIGEST)
        order = np.argsort(matrix[:, 0], kind="stable")  # the last row of a unit counts
        values = taken(rows.values, order)
        firsts = np.zeros(PARTS + 1, np.int64)
        np.cumsum(np.bincount(matrix[:, 0], minlength=PARTS), out=firsts[1:])
        written = (matrix[order].data, values.offsets.data, values.packed().data)
        one.segments.append(_Segment(self._end, firsts))
        with explained(self._folder, "written"):
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115
            self._file.seek(self._end)
            for part in written:
                self._file.write(part)
            self._file.flush()
        self._end += sum(part.nbytes for part in written)
        self._kept, one.kept = self._kept - one.kept, 0
        one.waiting.clear()

    def parts(self, prefix: bytes) -> Iterator[NewRows]:
        """Yield the rows of an epoch, each unit once, in disjoint ascending ranges of digests.

        An epoch that is all in memory is one part.
        """
        one = self.epochs[prefix]
        if not one.segments:
            yield _newest(_joined(one.waiting))
            return
        if one.waiting:
            self._spill(one)
        for part in range(PARTS):
            yield _newest(_joined([self._read(segment, part) for segment in one.segments]))

    def _read(self, segment: _Segment, part: int) -> RowColumns:
        first, last, n = (int(segment.firsts[k]) for k in (part, part + 1, -1))
        begun = segment.at + DIGEST * n
        ends = np.frombuffer(self._bytes(begun + 8 * first, 8 * (last - first + 1)), np.int64)
        keys = self._bytes(segment.at + DIGEST * first, DIGEST * (last - first))
        begun += 8 * (n + 1)
        data = self._bytes(begun + int(ends[0]), int(ends[-1] - ends[0]))
        matrix = np.frombuffer(keys, np.uint8).reshape(-1, DIGEST)
        return RowColumns(Keys.fixed(matrix), Keys(np.frombuffer(data, np.uint8), ends - ends[0]))

    def _bytes(self, at: int, size: int) -> bytes:
        assert self._file is not None
        with explained(self._folder, "read"):
            found = pread(self._file.fileno(), size, at)
        if len(found) < size:
            raise DamagedError(f"rows of a restore are gone from {self._folder}")
        return found

    def close(self) -> None:
        """Forget everything."""
        self.epochs.clear()
        if self._file is not None:
            self._file.close()


def _joined(rows: list[RowColumns]) -> RowColumns:
    return RowColumns(concat(one.keys for one in rows), concat(one.values for one in rows))


def _newest(rows: RowColumns) -> NewRows:
    """Keep the last row of each unit."""
    digests = Digests.of(rows.keys.packed().reshape(-1, DIGEST))
    order = np.argsort(digests.heads)
    heads, tails = digests.heads[order], digests.tails[order]
    if bool((heads[1:] == heads[:-1]).any()):
        order = np.lexsort((digests.tails, digests.heads))
        heads, tails = digests.heads[order], digests.tails[order]
        last = np.append((heads[1:] != heads[:-1]) | (tails[1:] != tails[:-1]), True)
        order, heads, tails = order[last], heads[last], tails[last]
    return NewRows.ordered(Digests(heads, tails), taken(rows.values, order))

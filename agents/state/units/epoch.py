"""The rows of units of one pipeline and epoch: in memory, in blocks on disk, or both.

The first bits of digests divide the rows into ranges. A range in memory is packed, and a row that
keeps its size is overwritten in place. All other new rows are *fresh*: they go to a separate table,
which is merged into the ranges when it has grown. For a range that is not in memory, only the
blocks with wanted rows are read, and its fresh rows wait for the next `save`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, log2
from os import urandom

import numpy as np
from numpy.typing import NDArray

from ....errors import DamagedError
from ....mechanisms.keys import Keys
from ..layout import DIGEST
from ..rows.columns import RowColumns, put_in
from ..rows.table import HeldTable
from .filter import ANY, filter_bytes, filter_of, possible
from .packed import Digests, NewRows, PackedRows, read_blocks
from .ranges import OBJECTS, Range, UnitBlocks, Words

I64 = NDArray[np.int64]

CROWDED = 1 << 16  # average rows of a range above which all ranges are halved
CROWDED_BYTES = 1 << 23  # average bytes of a range above which all ranges are halved
_MOST_BITS = 16
_LISTED = 2_000  # rows listed at once for a scan
_ALL = slice(None)
_MARK = 8  # bytes of the mark that precedes a block
_BESIDE = 8  # most bytes per row of a range in memory, besides digest and row


class UnitEpoch:
    """Rows of units whose keys have one prefix.

    Args:
        prefix: key without the digest.
        blocks: blocks on disk.
        bits, ranges: ranges on disk, and the bits that number them.
    """

    __slots__ = (
        "_bits",
        "_blocks",
        "_filled",
        "_filters",
        "_prefix",
        "_room",
        "fresh",
        "ranges",
        "stale",
    )

    def __init__(
        self, prefix: bytes, blocks: UnitBlocks, bits: int = 0, ranges: Sequence[Range] = ()
    ) -> None:
        self._prefix, self._blocks, self._bits = prefix, blocks, bits
        self.ranges = list(ranges) or [Range(PackedRows.none())]
        self.fresh = HeldTable(DIGEST)
        self.stale: list[Words] = []  # old blocks of ranges that were halved in memory
        self._room = self._filters = 0  # bytes allowed for ranges, and for filters
        self._filled: tuple[int, int] | None = None  # bytes that both take, while `fill` goes on

    @classmethod
    def empty(cls, prefix: bytes, blocks: UnitBlocks, bits: int) -> UnitEpoch:
        """Make an epoch without rows, with ranges by the first ``bits`` bits."""
        ranges = [Range(PackedRows.none(bits)) for _ in range(1 << bits)]
        return cls(prefix, blocks, bits, ranges)

    @property
    def memory(self) -> int:
        """Bytes of memory of the ranges in memory."""
        return sum(one.memory for one in self.ranges)

    @property
    def filters(self) -> int:
        """Bytes of memory of the filters of the other ranges."""
        return sum(one.filter for one in self.ranges)

    @property
    def waiting(self) -> int:
        """Bytes of memory of fresh rows."""
        return self.fresh.memory if len(self.fresh) else 0

    @property
    def number(self) -> int:
        """Number of rows, without fresh ones."""
        return sum(one.number for one in self.ranges)

    @property
    def changed(self) -> bool:
        """Whether rows have changed since the last save."""
        return len(self.fresh) > 0 or any(one.dirty for one in self.ranges)

    def look(self, asked: Digests, room: int, filters: int) -> Keys:
        """Read rows, in the order of their digests; an empty row means none.

        Args:
            room: bytes of memory allowed for ranges.
            filters: bytes of memory allowed for filters.
        """
        values, known = self.fresh.look(Keys.fixed(asked.bytes()))
        rows = np.flatnonzero(~known)
        if len(rows) == 0:
            return values
        self._room, self._filters = room, filters
        found = self._packed(asked, asked.order[~known[asked.order]])
        # Fresh rows found nothing in the ranges, so the rows of the others are contiguous.
        ends = np.append(found.offsets[rows], found.offsets[-1])
        return put_in(values, rows, Keys(found.data, ends))

    def _packed(self, asked: Digests, wanted: I64) -> Keys:
        """Read the wanted ones of the asked rows, given by sorted indices."""
        m = len(asked.heads)
        place, size = np.full(m, -1, np.int64), np.zeros(m, np.int64)
        sources = list[tuple[PackedRows, I64]]()
        for number, low, high in self._spans(asked.heads[wanted]):
            packed, rows = self._source(self.ranges[number], asked, wanted[low:high])
            if packed is not None:
                packed.find(asked, rows, place, size)
                sources.append((packed, rows))
        ends = np.zeros(m + 1, np.int64)
        np.cumsum(size, out=ends[1:])
        out = np.empty(int(ends[-1]), np.uint8)
        for packed, rows in sources:
            packed.gather(rows, place, ends, out)
        return Keys(out, ends)

    def _source(self, part: Range, asked: Digests, rows: I64) -> tuple[PackedRows | None, I64]:
        """Load the rows in which to look up digests, and list the digests that may be there."""
        if part.packed is None and part.known is None:
            self._admit(part)
        if part.packed is not None or part.known is None:
            return part.packed, rows
        rows = rows[possible(part.known, asked.take(rows))]
        if len(rows) == 0:
            return None, rows
        heads, marks = asked.heads[rows], np.zeros(len(part.ids) + 1, np.int64)
        # Include the block before the first that begins with this head, since it may end with it.
        np.add.at(marks, np.maximum(np.searchsorted(part.firsts, heads, "left") - 1, 0), 1)
        np.add.at(marks, np.searchsorted(part.firsts, heads, "right"), -1)
        return self._read(part, np.cumsum(marks[:-1]) > 0), rows

    def _read(self, part: Range, some: slice | NDArray[np.bool_] = _ALL) -> PackedRows:
        blocks = self._blocks.read(part.ids[some].tolist())
        if [one[:_MARK] for one in blocks] != _bytes_of(part.marks[some]):
            raise DamagedError("a block of units is not the one that was written: it is damaged")
        return read_blocks([one[_MARK:] for one in blocks], self._bits)

    def _admit(self, part: Range) -> None:
        """Take a range into memory if there is room; otherwise make its filter."""
        packed = self._read(part)
        if self.memory + packed.memory + OBJECTS <= self._room:
            part.packed = packed
        else:
            part.known = self._filter(packed, self.filters)

    def _filter(self, packed: PackedRows, used: int) -> Words:
        fits = used + filter_bytes(len(packed)) <= self._filters
        return filter_of(packed.digests) if fits else ANY

    def _spans(self, heads: Words) -> Iterator[tuple[int, int, int]]:
        """Yield the number of each range with the span of its sorted heads."""
        edges = np.arange(1, len(self.ranges), dtype=np.uint64) << np.uint64(64 - self._bits)
        cuts = [0, *np.searchsorted(heads, edges).tolist(), len(heads)]
        for number in range(len(self.ranges)):
            if cuts[number + 1] > cuts[number]:
                yield number, cuts[number], cuts[number + 1]

    def put(self, asked: Digests, values: Keys) -> None:
        """Write rows of distinct digests; an empty row deletes."""
        keys = Keys.fixed(asked.bytes())
        if self.number == 0:
            self.fresh.put(RowColumns(keys, values))
            return
        done, wanted = np.zeros(len(keys), np.bool_), asked.order
        if len(self.fresh):  # a row is in only one of the two, or an old one could hide a newer
            wanted = wanted[~self.fresh.known(keys)[wanted]]
        for number, low, high in self._spans(asked.heads[wanted]):
            part, rows = self.ranges[number], wanted[low:high]
            if part.packed is not None and part.packed.replace(asked, rows, values, done):
                part.dirty = True
        if not done.all():
            left = np.flatnonzero(~done)
            self.fresh.put(RowColumns(keys.take(left), values.take(left)))

    def fold(self) -> None:
        """Merge fresh rows into the ranges in memory."""
        if len(self.fresh):
            new, kept = self._ordered(), list[NewRows]()
            for number, low, high in self._spans(new.digests.heads):
                part, some = self.ranges[number], new.part(low, high)
                if part.packed is None:
                    kept.append(some)
                else:
                    part.packed, part.dirty = part.packed.merged(some), True
            self.fresh.clear()
            for some in kept:
                self.fresh.put(some.columns())
        if self._crowded() and all(one.packed is not None for one in self.ranges):
            self.stale += [one.ids for one in self.ranges]
            halves = [half for one in self.ranges for half in _halved(one)]
            self.ranges = [Range(half, dirty=True) for half in halves]
            self._bits += 1

    def fill(self, new: NewRows, room: int, filters: int) -> None:
        """Write all rows of so far empty ranges, as blocks.

        An epoch may be filled part by part, with nothing else in between.

        Args:
            room: bytes of memory for ranges; ranges that do not fit stay on disk only.
            filters: bytes of memory for filters of those.
        """
        self._filters = filters
        used, hints = self._filled or (self.memory, self.filters)
        for number, low, high in self._spans(new.digests.heads):
            packed = PackedRows.none(self._bits).merged(new.part(low, high))
            used -= self.ranges[number].memory
            part = self.ranges[number] = self._written(packed)
            if used + part.memory > room:
                part.packed, part.known = None, self._filter(packed, hints)
            used, hints = used + part.memory, hints + part.filter
        self._filled = used, hints

    def _ordered(self) -> NewRows:
        rows = self.fresh.rows()
        return NewRows(Digests.of(rows.keys.packed().reshape(-1, DIGEST)), rows.values)

    def _crowded(self) -> bool:
        number = len(self.ranges)
        rows, size = sum(one.number for one in self.ranges), sum(one.whole for one in self.ranges)
        over = rows > CROWDED * number or size > CROWDED_BYTES * number
        return over and self._bits < _MOST_BITS

    def saved(self, room: int, filters: int) -> UnitEpoch:
        """Write all changed ranges as blocks; return the epoch to use once the index names them.

        Args:
            room: bytes of memory for its ranges; ranges that do not fit stay on disk only.
            filters: bytes of memory for filters of those.
        """
        self.fold()
        self._filters = filters
        split, used, hints = self._crowded(), 0, 0
        new, made = self._ordered(), list[Range]()
        spans = {number: (low, high) for number, low, high in self._spans(new.digests.heads)}
        for number, part in enumerate(self.ranges):
            some = new.part(*spans.get(number, (0, 0)))
            changed = split or part.dirty or len(some) > 0
            if not changed and (part.packed is None or used + part.memory <= room):
                if hints + part.filter > filters:
                    part.known = ANY
                made.append(part)
                used, hints = used + part.memory, hints + part.filter
                continue
            packed = self._read(part) if part.packed is None else part.packed
            packed = packed.merged(some) if len(some) else packed
            for one in packed.halves() if split else (packed,):
                made.append(self._written(one) if changed else part.copied())
                if used + one.memory + OBJECTS <= room:
                    made[-1].packed = one
                    used += made[-1].memory
                else:
                    made[-1].packed, made[-1].known = None, self._filter(one, hints)
                    hints += made[-1].filter
        return UnitEpoch(self._prefix, self._blocks, self._bits + split, made)

    def _written(self, packed: PackedRows) -> Range:
        blocks, firsts = packed.blocks()
        marks: Words = np.arange(len(blocks), dtype=np.uint64)
        marks += np.frombuffer(urandom(8), np.uint64)
        written = self._blocks.write(map(bytes.__add__, _bytes_of(marks), blocks))
        ids = np.array(written, np.uint64)
        return Range(packed, ids, firsts, marks, len(packed), packed.memory)

    def left(self, after: UnitEpoch) -> set[int]:
        """List blocks that no longer count after `saved`."""
        before = [*self.stale, *(one.ids for one in self.ranges)]
        kept = {number for one in after.ranges for number in one.ids.tolist()}
        return {number for ids in before for number in ids.tolist()} - kept

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield rows with start <= key < end, in key order."""
        self.fold()
        new = self._ordered()
        spans = {number: (low, high) for number, low, high in self._spans(new.digests.heads)}
        digest = start[len(self._prefix) :] if start > self._prefix else b""
        head = int.from_bytes(digest[:8].ljust(8, b"\0"), "big")
        ranges = self.ranges  # fixed, even if rows are written meanwhile
        for number in range(head >> (64 - self._bits), len(ranges)):
            part, some = ranges[number], new.part(*spans.get(number, (0, 0)))
            packed = self._read(part) if part.packed is None else part.packed
            packed = packed.merged(some) if len(some) else packed
            first = int(np.searchsorted(packed.digests.heads, np.uint64(head)))
            for key, row in _listed(self._prefix, packed, first):
                if key >= end:
                    return
                if key >= start:
                    yield key, row

    def index(self) -> bytes | None:
        """Describe the epoch for `read_index`; None if it has no rows."""
        if all(len(one.ids) == 0 for one in self.ranges):
            return None
        parts = [np.array([_VERSION, self._bits], np.uint64)]
        for one in self.ranges:
            head = np.array([one.rows, one.size, len(one.ids)], np.uint64)
            parts += [head, one.ids, one.firsts, one.marks]
        return np.concatenate(parts).astype("<u8").tobytes()


def bits_of(rows: int, size: int) -> int:
    """Compute the bits of ranges for rows of ``size`` bytes with digests: none is halved."""
    crowd = max(rows / CROWDED, (size + _BESIDE * rows) / CROWDED_BYTES)
    return min(max(ceil(log2(crowd)), 0), _MOST_BITS) if crowd > 0 else 0


_VERSION = 1


def read_index(prefix: bytes, data: bytes, blocks: UnitBlocks) -> UnitEpoch | None:
    """Make the epoch described by an index; None if the index is damaged."""
    if len(data) % 8 or len(data) < 16:
        return None
    words = np.frombuffer(data, "<u8").astype(np.uint64)
    bits, at, ranges = int(words[1]), 2, list[Range]()
    if words[0] != _VERSION or bits > _MOST_BITS:
        return None
    for _ in range(1 << bits):
        if at + 3 > len(words) or at + 3 + 3 * int(words[at + 2]) > len(words):
            return None
        rows, size, number = (int(one) for one in words[at : at + 3])
        at += 3
        ids, firsts, marks = words[at : at + 3 * number].reshape(3, number)
        empty = PackedRows.none(bits) if number == 0 else None
        ranges.append(Range(empty, ids, firsts, marks, rows, size))
        at += 3 * number
    return UnitEpoch(prefix, blocks, bits, ranges) if at == len(words) else None


def _bytes_of(marks: Words) -> list[bytes]:
    return [mark.to_bytes(_MARK, "big") for mark in marks.tolist()]


def _halved(part: Range) -> tuple[PackedRows, PackedRows]:
    assert part.packed is not None
    return part.packed.halves()


def _listed(prefix: bytes, packed: PackedRows, first: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield rows from ``first`` on, listing some at a time."""
    for begun in range(first, len(packed), _LISTED):
        rows = packed.listed(begun, min(begun + _LISTED, len(packed)))
        for digest, value in zip(rows.keys.tolist(), rows.values.tolist(), strict=True):
            yield prefix + digest, value

"""Exact sums of micro-batches that are still open: in memory, spilled as sorted runs as they grow.

Partial sums are linear, so they are kept as they came and merged only when their micro-batch is
closed. The cells log is their durable copy until then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from ....mechanisms.columns import I64, Part, merge
from ....mechanisms.contract import Traits
from ....mechanisms.sums import LARGEST
from ...state.layout import TOTAL, trigger_of, trigger_total
from ...state.store import Changes, KeyLimit, StateReader, scan_prefix
from .sorted_runs import Place, SortedRuns

SPILL = 400_000  # rows of partial sums held in memory
SPILL_BYTES = 8 << 20  # of the keys of these rows, and `PART_BYTES` for each frame of them
PART_BYTES = 2048  # that the objects of one frame take: a frame may hold a single short key


class PartialSums:
    """Partial sums that one aggregate shard has received and not released yet."""

    def __init__(self, traits: Traits) -> None:
        self._traits = traits
        self._buffer: dict[Place, list[Part]] = defaultdict(list)
        self._rows = self._bytes = 0
        self._totals: dict[int, I64] = {}
        self._runs = SortedRuns()

    def open(self, reader: StateReader) -> None:
        """Index the stored runs; sums that were only in memory come again from the log."""
        self._runs = SortedRuns.load(reader)
        self._buffer.clear()
        self._rows = self._bytes = 0
        self._totals = {
            trigger_of(key): np.frombuffer(value, np.int64)
            for key, value in scan_prefix(reader, TOTAL)
        }

    def add(self, place: Place, part: Part) -> None:
        """Take the sums of one frame.

        Args:
            place: window and micro-batch.
            part: the decoded part; its totals are 0, since barriers bring them.
        """
        self._buffer[place].append(part)
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
        # Merged, since a run is read by ranges of keys: each range must find its keys together.
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
        """Whether all of a micro-batch is in memory, in at most ``most`` rows and bytes of keys."""
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
        """Find the last key of about ``limit`` spilled rows above ``begun``; None if none are left.

        Args:
            begun: the last key of the range before; None for the first range.
            limit: largest number of rows and of bytes.
        """
        return self._runs.end(place, begun, limit)

    def totals(self, ordinal: int) -> I64:
        """Look up the (t,) totals of one trigger by its ordinal."""
        return self._totals.get(ordinal, np.zeros(self._traits.totals, np.int64))

    def drop(self, place: Place, ordinal: int, rows: Changes) -> None:
        """Delete a micro-batch whose sums are all in key rows now."""
        rows.update(self._runs.drop(place))
        self._buffer.pop(place, None)
        self._recount()
        if self._totals.pop(ordinal, None) is not None:
            rows[trigger_total(ordinal)] = None

    def forget(self, floor: int, rows: Changes) -> int:
        """Delete the rest of windows before ``floor``; return the number of their micro-batches."""
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
    """Merge parts into as few as hold their sums exactly.

    Sums are cut where a micro-batch is closed (`mechanisms.sums`). If they were cut here as well,
    the result would depend on when memory was full.
    """
    merged = merge(parts)
    if len(parts) == 1 or not (np.abs(merged.sums) == LARGEST).any():
        yield merged
        return
    half = len(parts) // 2
    yield from uncut(parts[:half])
    yield from uncut(parts[half:])


def _size(part: Part) -> int:
    """Bytes of the keys."""
    return int(part.key.offsets[-1] - part.key.offsets[0])

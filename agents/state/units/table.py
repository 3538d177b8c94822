"""The rows of units of one table, by pipeline and epoch: kept in memory, and saved in bulk."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from ....errors import DamagedError
from ....mechanisms.keys import Keys
from ..layout import DIGEST, INDEX, UNIT_WIDTH
from ..rows.columns import RowColumns, by_epoch, column_of, pick
from ..store import Changes
from .epoch import UnitEpoch, bits_of, read_index
from .intake import UnitIntake
from .packed import Digests
from .ranges import UnitBlocks
from .room import UnitRoom

FRESH_BYTES = 8 << 20  # of rows that wait for `save`, allowed for every table
REPLAYED = 64  # times `hold`: most rows written since the last `save`, which a restart reads again
IDLE_SECONDS = 120.0  # after which even a few changed rows are saved


class Saved(NamedTuple):
    """A state of the table whose blocks are on disk.

    Attributes:
        epochs: epochs of that state.
        changes: changes of the index, which make it count.
        gone: numbers of blocks that it no longer uses.
    """

    epochs: dict[bytes, UnitEpoch]
    changes: Changes
    gone: list[int]


class SavedUnits:
    """Rows of units by key.

    A quarter of the table's memory is for fresh rows, which wait for `save`. The rest is for cached
    ranges, and for filters of ranges that are not cached.

    Args:
        blocks: blocks on disk.
        room: memory shared with the other tables of this process.
        hold: factor of `REPLAYED`.
    """

    def __init__(self, blocks: UnitBlocks, room: UnitRoom, hold: int) -> None:
        self._blocks, self._room, self._hold = blocks, room, hold
        self.epochs: dict[bytes, UnitEpoch] = {}  # by key without the digest
        # Bytes of memory of all epochs, kept up to date, since each open window is one.
        self._ranges = self._filters = self._fresh = 0
        self._written = 0  # rows since the last save
        self._kept = 0  # fresh bytes left after the last merge
        self._saved = time.monotonic()
        self._last: tuple[Keys, Digests] | None = None

    def begin(self, index: Iterable[tuple[bytes, bytes]]) -> int:
        """Load the index; return the first unused block number.

        Raises:
            DamagedError: a row of the index is damaged.
        """
        free = 0
        for key, row in index:
            prefix = key[len(INDEX) :]
            epoch = read_index(prefix, row, self._blocks)
            if epoch is None:
                raise DamagedError("the index of the units' rows is damaged")
            self.epochs[prefix] = epoch
            free = max([free, *(int(one.ids.max()) + 1 for one in epoch.ranges if len(one.ids))])
        self._count()
        return free

    def _count(self) -> None:
        """Add up the memory of all epochs."""
        self._ranges = sum(one.memory for one in self.epochs.values())
        self._filters = sum(one.filters for one in self.epochs.values())
        self._fresh = sum(one.waiting for one in self.epochs.values())

    @contextmanager
    def _changing(self, epoch: UnitEpoch) -> Iterator[None]:
        """Keep the sums up to date while the body changes one epoch."""
        ranges, filters, fresh = epoch.memory, epoch.filters, epoch.waiting
        try:
            yield
        finally:
            self._ranges += epoch.memory - ranges
            self._filters += epoch.filters - filters
            self._fresh += epoch.waiting - fresh

    @property
    def memory(self) -> int:
        """Approximate bytes of memory in use."""
        return self._ranges + self._filters + self._fresh

    @property
    def rows(self) -> int:
        """Number of rows, without most new ones since the last save."""
        return sum(one.number for one in self.epochs.values())

    def get(self, keys: Keys) -> Keys:
        """Read rows, in the order of their keys; an empty row means none."""
        found: list[bytes | None] = []
        for prefix, places in by_epoch(keys):
            epoch = self.epochs.get(prefix)
            if epoch is None:
                continue
            room, filters = self._most - self._ranges, self._hints - self._filters
            asked = self._asked(pick(keys, places))
            with self._changing(epoch):
                values = epoch.look(asked, room + epoch.memory, filters + epoch.filters)
            if len(places) == len(keys):
                return values
            found = found or [None] * len(keys)
            for place, row in zip(places.tolist(), values.tolist(), strict=True):
                found[place] = row or None
        return column_of(found or [None] * len(keys))

    def put(self, rows: RowColumns) -> None:
        """Write rows of distinct keys; an empty row deletes."""
        self._written += len(rows.keys)
        for prefix, places in by_epoch(rows.keys):
            some = rows
            if len(places) < len(rows.keys):
                some = RowColumns(pick(rows.keys, places), rows.values.take(places))
            epoch = self.epochs.pop(prefix, None)
            if epoch is None:
                epoch = UnitEpoch(prefix, self._blocks)
                self._ranges += epoch.memory
            self.epochs[prefix] = epoch  # keeps the epochs in order of their last write
            with self._changing(epoch):
                epoch.put(self._asked(some.keys), some.values)

    def _asked(self, keys: Keys) -> Digests:
        """Digests of keys, cached: a step writes the keys that it has read, sorted once."""
        if self._last is None or self._last[0] is not keys:
            matrix = keys.packed().reshape(len(keys), UNIT_WIDTH)
            self._last = keys, Digests.of(np.ascontiguousarray(matrix[:, -DIGEST:]))
        return self._last[1]

    @property
    def _most(self) -> int:
        """Bytes for cached rows."""
        return 3 * self._room.share // 4 - self._filters

    @property
    def _hints(self) -> int:
        """Bytes for filters."""
        return self._room.share // 4

    @property
    def full(self) -> bool:
        """Whether it must be saved, for memory or to limit what a restart reads again."""
        if self._fresh - self._kept > max(self._room.share // 8, FRESH_BYTES):
            for epoch in self.epochs.values():
                epoch.fold()
            self._count()
            self._kept = self._fresh
        return (
            self._written > REPLAYED * self._hold
            or self._fresh > max(self._room.share // 4, FRESH_BYTES)
            or self._ranges > max(self._most, 0)
        )

    @property
    def due(self) -> bool:
        """Whether enough has changed, or long enough ago, to save it."""
        return self._written >= self.rows or time.monotonic() > self._saved + IDLE_SECONDS

    @property
    def changed(self) -> bool:
        """Whether rows were written since the last save."""
        return self._written > 0

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield rows with start <= key < end, in key order."""
        for prefix in sorted(self.epochs):
            if prefix < end and start < prefix + b"\xff" * (DIGEST + 1):
                with self._changing(epoch := self.epochs[prefix]):
                    epoch.fold()
                yield from epoch.scan(start, end)

    def save(self) -> Saved:
        """Write changes as blocks, which count after `commit`."""
        # A little less than allowed, so that a growing table is not full at once.
        after, changes, gone = dict[bytes, UnitEpoch](), Changes(), list[int]()
        room, filters = 7 * self._most // 8, self._hints
        for prefix, epoch in reversed(self.epochs.items()):
            fits = epoch.memory <= room and epoch.filters <= filters
            same = fits and not epoch.changed and not epoch.stale
            made = epoch if same else epoch.saved(max(room, 0), max(filters, 0))
            room, filters = room - made.memory, filters - made.filters
            gone += sorted(epoch.left(made))
            if epoch.changed or epoch.stale:
                changes[INDEX + prefix] = made.index()
            if made.number:
                after[prefix] = made
        return Saved(dict(reversed(after.items())), changes, gone)

    def take(self, intake: UnitIntake) -> Generator[None, None, Saved]:
        """Write the rows of an intake to an empty table, as blocks that count after `commit`.

        Yields:
            None, between parts of many rows.
        """
        after, changes = dict[bytes, UnitEpoch](), Changes()
        room, filters = 7 * self._most // 8, self._hints
        for prefix, one in intake.epochs.items():
            bits = max(bits_of(one.rows, one.size), one.bits)
            epoch = UnitEpoch.empty(prefix, self._blocks, bits)
            for part in intake.parts(prefix):
                epoch.fill(part, room, filters)
                if one.bits:
                    yield
            room, filters = room - epoch.memory, filters - epoch.filters
            if epoch.number:
                after[prefix], changes[INDEX + prefix] = epoch, epoch.index()
        return Saved(after, changes, [])

    def commit(self, saved: Saved) -> None:
        """Adopt a state whose index is on disk."""
        self.epochs = saved.epochs
        self._count()
        self._last = None
        self._written, self._kept, self._saved = 0, 0, time.monotonic()

    def clear(self) -> None:
        """Forget everything."""
        self.epochs.clear()
        self._count()

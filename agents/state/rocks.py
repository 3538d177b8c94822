"""State in RocksDB: one folder per shard, written after the Kafka transaction has committed."""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rocksdict import (
    AccessType,
    BlockBasedIndexType,
    BlockBasedOptions,
    BottommostLevelCompaction,
    Cache,
    Checkpoint,
    CompactOptions,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from ...errors import DamagedError
from ...mechanisms.keys import Keys
from .layout import INDEX, MARKER, POSITION, UNIT, UNIT_WIDTH, of_unit
from .rocks_errors import explained
from .rows.columns import NO_ROWS, RowColumns
from .store import Changes
from .units.block_files import BlockFiles
from .units.intake import UnitIntake
from .units.room import UnitRoom
from .units.table import FRESH_BYTES, Saved, SavedUnits

READ = 1_000  # keys of one lookup: each pins its block in memory
CLOSED_ROWS = 1_000_000  # rows of units up to which a table that closes soon is saved
QUICK_ROWS = 100_000  # rows of units that are saved within some hundredths of a second
PROGRESS = POSITION, MARKER  # rows that record a table's progress
_ASK: Any = object()  # not in memory
_PREFIX = UNIT_WIDTH - 16


class RocksStore:
    """State in a RocksDB folder; one writer per folder.

    With ``hold``, written rows stay in memory for a while, so a row that changes several times is
    written once. They go to disk together, with the marker and position of the last of them. So the
    disk always has the state after some step, and a restart reads the changelog from there. The
    rows that went to disk last are still read from memory.

    Rows of units are in blocks (`units.table`); other rows are stored singly.

    Args:
        path: folder, created if missing.
        cache: block cache, shared by all tables of a process.
        hold: number of other rows kept in memory; see `units.table` for rows of units. 0: each
            write goes to disk at once.
        room: memory for rows of units; None: they are read from disk.

    Raises:
        EngineError: another process has the folder open, or it cannot be opened.
        DamagedError: it is damaged.
    """

    def __init__(
        self,
        path: Path,
        cache: Cache | None,
        write_buffer_bytes: int,
        hold: int = 0,
        room: UnitRoom | None = None,
    ) -> None:
        self.path = path
        self._hold = hold
        self._held: Changes = {}  # rows that are not on disk yet
        self._recent: Changes = {}  # these, and the rows that went to disk last
        self._intake: UnitIntake | None = None
        self._told: Changes = {}  # progress of a table that is being filled
        self._room = room or UnitRoom(0)
        path.mkdir(parents=True, exist_ok=True)
        options = partial(_options, cache, write_buffer_bytes)
        with explained(path, "opened"):
            self._db = Rdict(str(path), options())
        self._quick = WriteOptions()
        self._quick.disable_wal = False
        self._open = True
        self._files = BlockFiles(path, self._db, partial(_options, None, write_buffer_bytes))
        self._units = SavedUnits(self._files, self._room, hold)
        try:
            self._files.free = self._units.begin(self._index())
        except BaseException:
            self._db.close()  # otherwise its folder stays locked
            raise
        if hold:
            self._room.enter()

    def _index(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield rows of the index, each read by name, since a scan might end early unnoticed."""
        position, names = self._read([POSITION, INDEX])
        if names is None and position is not None:
            raise DamagedError(f"the table in {self.path} lacks its index: it is damaged")
        names = names or b""
        keys = [INDEX + names[at : at + _PREFIX] for at in range(0, len(names), _PREFIX)]
        for key, row in zip(keys, self._read(keys), strict=True):
            yield key, row or b""  # an empty row counts as damage

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read the rows of ``keys``, in their order; None where a row is missing."""
        if not self._recent and not _of_units(keys):
            return self._read(keys)
        recent = self._recent.get
        found: list[Any] = [recent(key, _ASK) for key in keys]
        asked = [place for place, row in enumerate(found) if row is _ASK]
        others = [p for p in asked if not of_unit(keys[p])]
        for place, row in zip(others, self._read([keys[p] for p in others]), strict=True):
            found[place] = row
        if len(others) < len(asked):
            places = [place for place in asked if found[place] is _ASK]
            units = self._units.get(Keys.of(keys[p] for p in places))
            for place, value in zip(places, units.tolist(), strict=True):
                found[place] = value or None
        return found

    def get_columns(self, keys: Keys) -> Keys:
        """Read the rows of units, in the order of their keys; an empty one stands for none."""
        return self._units.get(keys)

    def _read(self, keys: Sequence[bytes]) -> list[bytes | None]:
        found: list[bytes | None] = []
        listed = keys if isinstance(keys, list) else list(keys)
        with explained(self.path, "read"):
            for begun in range(0, len(listed), READ):
                found += self._db.get(listed[begun : begun + READ])
        return found

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield rows with start ≤ key < end, in key order."""
        held = {key: row for key, row in self._held.items() if start <= key < end}
        rows = self._rows(start, end)
        if held:
            kept = ((key, row) for key, row in rows if key not in held)
            fresh = [(key, row) for key in sorted(held) if (row := held[key]) is not None]
            rows = heapq.merge(kept, fresh)
        if start < UNIT + b"\xff" and end > UNIT:
            rows = heapq.merge(rows, self._units.scan(start, end))
        yield from rows

    def _rows(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        options = ReadOptions()
        options.set_iterate_upper_bound(end)
        last = start
        with explained(self.path, "read"):
            for last, value in self._db.items(from_key=start, read_opt=options):
                yield last, value
            self._check_end(last, options)

    def _check_end(self, last: bytes, options: ReadOptions) -> None:
        """Check that a scan ended where its rows end.

        The library's own loop ends silently at a damaged block.
        """
        again = self._db.iter(options)
        try:
            again.seek(last)
            if again.valid() and again.key() == last:
                again.next()
            if again.valid():
                raise DamagedError(f"the table in {self.path} ends too early")
            again.status()
        finally:
            # An error keeps this frame alive. An iterator in it would keep the table open, and its
            # folder locked, after the table is closed.
            del again

    def write(self, changes: Mapping[bytes, bytes | None], units: RowColumns = NO_ROWS) -> None:
        """Apply a batch of changes atomically, ``units`` first; None deletes a row."""
        # Each row is held in only one of the two places, or an old value could hide a newer one.
        named = _of_units(changes)
        single = {key: changes[key] for key in named}
        columns = [one for one in (units, RowColumns.of(single)) if len(one.keys)]
        for one in columns:
            if self._intake is None:
                self._units.put(one)
            else:
                self._intake.add(one)
        others = {k: v for k, v in changes.items() if k not in single} if single else changes
        if self._intake is not None:
            self._told |= {key: others[key] for key in PROGRESS if key in others}
            others = {key: row for key, row in others.items() if key not in PROGRESS}
        if self._held:
            self._held.update(others)
        else:
            self._held = Changes(others)  # a copy of a dictionary costs a fraction of an update
        if self._hold:
            self._recent.update(others)
        if len(self._held) > self._hold or self._units.full:
            self.flush()

    def note(self, key: bytes, row: bytes | None) -> None:
        """Write a row directly, bypassing held rows; `write` must never get the same key."""
        self._put({key: row})

    @property
    def gathers(self) -> bool:
        """Whether the table is being filled, so that a batch may have several rows of one unit."""
        return self._intake is not None

    @property
    def empty(self) -> bool:
        """Whether there are no rows on disk."""
        with explained(self.path, "read"):
            rows = self._db.iter(ReadOptions())
            rows.seek(b"")
            found = rows.valid()
            rows.status()
            del rows  # it would keep the table open
        return not found

    def gather(self) -> None:
        """Begin to fill an empty table; `gathered` sorts rows of units into their blocks.

        Until then, no row may be read. If the process ends first, the table is not empty but has no
        progress.
        """
        self._intake = UnitIntake(self.path, max(self._room.share, FRESH_BYTES))
        self._quick.disable_wal = True

    def gathered(self) -> Iterator[None]:
        """Write the rows since `gather`; yield between parts of many rows."""
        assert self._intake is not None
        with contextlib.closing(self._intake) as intake:
            with self._files.writing():
                saved = yield from self._units.take(intake)
            self.flush()
            with explained(self.path, "written"):
                self._db.flush()  # all rows are on disk before the progress
            self._quick.disable_wal = False
            self._held.update(self._told)
            self._keep(saved)
        self._intake = None

    def settle(self) -> None:
        """Write held rows to RocksDB if enough have changed to justify rewriting blocks."""
        if not self._units.changed or self._units.due:
            self.flush()

    def flush(self) -> None:
        """Write held rows to RocksDB."""
        if not self._held and not self._units.changed:
            return
        saved = None
        if self._units.changed:
            with self._files.writing():
                saved = self._units.save()
        self._keep(saved)

    def _keep(self, saved: Saved | None) -> None:
        changes = Changes(self._held)
        if saved is not None:
            changes |= {**saved.changes, **self._files.dropped(saved.gone)}
        if saved is not None or POSITION in changes:
            changes[INDEX] = b"".join(self._units.epochs if saved is None else saved.epochs)
        self._put(changes)
        self._recent, self._held = (self._held, {}) if self._hold else ({}, {})
        if saved is not None:
            self._files.count()
            self._units.commit(saved)
            if saved.gone:
                self._files.reclaim(saved.gone)

    def _put(self, changes: Changes) -> None:
        batch = WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        for key, value in changes.items():
            if value is None:
                delete(key)
            else:
                put(key, value)
        with explained(self.path, "written"):
            self._db.write(batch, write_opt=self._quick)

    @property
    def known_bytes(self) -> int:
        """Approximate bytes of memory for rows of units."""
        return self._units.memory

    def size(self) -> int:
        """Measure the bytes on disk, without held rows."""
        return sum(f.stat().st_size for f in self.path.rglob("*") if f.is_file())

    def compact(self) -> None:
        """Rewrite everything into the last level, even files that could be moved unchanged."""
        self.flush()
        options = CompactOptions()
        options.set_bottommost_level_compaction(BottommostLevelCompaction.force())
        with explained(self.path, "written"):
            self._db.flush()
            self._db.compact_range(None, None, options)

    def copy(self, folder: Path) -> None:
        """Hard-link the table's files into a new folder on the same disk.

        Held rows of a large table stay in memory: writing them would delay a step.

        Raises:
            EngineError: the files cannot be linked.
        """
        if self._units.rows <= QUICK_ROWS:
            self.flush()
        else:
            self.settle()
        with explained(self.path, "copied"):
            Checkpoint(self._db).create_checkpoint(str(folder))

    def close(self, soon: bool = False) -> None:
        """Write the held rows, and release the folder.

        Args:
            soon: whether time is short: a large table then stays as last saved, as after a kill.
        """
        try:
            if not soon or self._units.rows <= CLOSED_ROWS:
                self.flush()
        except BaseException:
            self.abandon()  # a later error would hide the reason
            raise
        self._leave()
        with explained(self.path, "closed"):  # closing may still write
            self._db.close()

    def abandon(self) -> None:
        """Release the folder of a damaged table; held rows are lost."""
        self._held.clear()
        self._units.clear()
        self._leave()
        with contextlib.suppress(Exception):  # the damage is known already
            self._db.close()

    def _leave(self) -> None:
        if self._intake is not None:
            self._intake.close()
        if self._hold and self._open:
            self._room.leave()
        self._open = False


def _of_units(keys: Collection[bytes]) -> list[bytes]:
    """The keys of rows of units; their width alone rules out most others, without a call each."""
    return [key for key in keys if of_unit(key)] if UNIT_WIDTH in map(len, keys) else []


def _options(cache: Cache | None, write_buffer_bytes: int) -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(write_buffer_bytes)
    options.set_max_write_buffer_number(3)
    options.set_keep_log_file_num(2)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_bottommost_compression_type(DBCompressionType.zstd())
    table = BlockBasedOptions()
    table.set_block_size(16 * 1024)
    table.set_bloom_filter(10, False)
    # In parts: a filter as one block is larger than a shard of the cache from a million rows on,
    # and would be read from disk for every lookup.
    table.set_partition_filters(True)
    table.set_index_type(BlockBasedIndexType.two_level_index_search())
    table.set_pin_top_level_index_and_filter(True)
    if cache is not None:
        table.set_block_cache(cache)
        table.set_cache_index_and_filter_blocks(True)
    options.set_block_based_table_factory(table)
    return options


def read_rows(path: Path, keys: Sequence[bytes]) -> list[bytes | None]:
    """Read rows, None if missing, of a folder that another process may have open; takes no lock."""
    table = Rdict(str(path), _options(None, 1 << 20), access_type=AccessType.read_only())
    try:
        found: list[bytes | None] = table.get(list(keys))
        return found
    finally:
        table.close()

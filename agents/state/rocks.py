"""State in RocksDB: a folder for each shard, written after the Kafka transaction has committed."""

from __future__ import annotations

import contextlib
import heapq
import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rocksdict import (
    AccessType,
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

READ = 1_000  # keys of one lookup: each pins the block that it lies in
CLOSED_ROWS = 1_000_000  # of units, up to which a table is saved when it is closed soon
QUICK_ROWS = 100_000  # of units, which are saved within some hundredths of a second
PROGRESS = POSITION, MARKER  # rows that tell how far a table has come
_ASK: Any = object()  # not in memory
_PREFIX = UNIT_WIDTH - 16


class RocksStore:
    """State in a RocksDB folder; one writer per folder.

    With ``hold``, written rows stay in memory for a while, and a row that changes again meanwhile
    is written once. They go to disk together, with the marker and the position that came with the
    last of them: what is on disk is always the state of some earlier step, and a restart reads the
    changelog from there. What went to disk last is still read from memory.

    Rows of units are in blocks (`units.table`), all others by themselves.

    Args:
        path: the folder; made if it does not exist.
        cache: block cache, shared by all tables of a process.
        hold: rows that are no units' and kept in memory; see `units.table` for those of units. 0:
            each write goes to disk at once.
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
        self._held: Changes = {}  # not on disk yet
        self._recent: Changes = {}  # those, and what went to disk last
        self._intake: UnitIntake | None = None
        self._told: Changes = {}  # the progress of a table that is being filled
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
            self._db.close()  # else its folder stays locked
            raise
        if hold:
            self._room.enter()

    def _index(self) -> Iterator[tuple[bytes, bytes]]:
        """Rows of the index, each read by name: a scan that ends too early would not show it."""
        position, names = self._read([POSITION, INDEX])
        if names is None and position is not None:
            raise DamagedError(f"the table in {self.path} lacks its index: it is damaged")
        names = names or b""
        keys = [INDEX + names[at : at + _PREFIX] for at in range(0, len(names), _PREFIX)]
        for key, row in zip(keys, self._read(keys), strict=True):
            yield key, row or b""  # which is found damaged

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read the rows of ``keys``, in their order; None where a row is missing."""
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
        with explained(self.path, "read"):
            for begun in range(0, len(keys), READ):
                found += self._db.get(list(keys[begun : begun + READ]))
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

        The library's own loop also ends, without a word, where it meets a damaged block.
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
            # An error keeps this frame alive, and an iterator in it would keep the table open, and
            # so its folder locked, after the table has been closed.
            del again

    def write(self, changes: Mapping[bytes, bytes | None], units: RowColumns = NO_ROWS) -> None:
        """Apply a batch of changes atomically, ``units`` first; None deletes a row."""
        # Each row is held in one of the two places only, or an old value could hide a newer one.
        named = [key for key in changes if of_unit(key)]
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
        self._held.update(others)
        self._recent.update(others)
        if len(self._held) > self._hold or self._units.full:
            self.flush()

    def note(self, key: bytes, row: bytes | None) -> None:
        """Write a row at once, whatever is held; it must be none that `write` is given."""
        self._put({key: row})

    @property
    def gathers(self) -> bool:
        """Whether it is being filled, and a row of a unit may come more than once in a batch."""
        return self._intake is not None

    @property
    def empty(self) -> bool:
        """Whether there is no row on disk."""
        with explained(self.path, "read"):
            rows = self._db.iter(ReadOptions())
            rows.seek(b"")
            found = rows.valid()
            rows.status()
            del rows  # it would keep the table open
        return not found

    def gather(self) -> None:
        """Begin to fill an empty table: rows of units are put where they belong by `gathered`.

        Until then no row of the table may be read. If the process ends before, the table is not
        empty and tells no progress.
        """
        self._intake = UnitIntake(self.path, max(self._room.share, FRESH_BYTES))
        self._quick.disable_wal = True

    def gathered(self) -> Iterator[None]:
        """Write what came since `gather`; yield between two parts of many rows."""
        assert self._intake is not None
        with contextlib.closing(self._intake) as intake:
            with self._files.writing():
                saved = yield from self._units.take(intake)
            self.flush()
            with explained(self.path, "written"):
                self._db.flush()  # all rows are on disk before the table tells its progress
            self._quick.disable_wal = False
            self._held.update(self._told)
            self._keep(saved)
        self._intake = None

    def settle(self) -> None:
        """Hand the held rows to RocksDB if that is worth rewriting the blocks of units."""
        if not self._units.changed or self._units.due:
            self.flush()

    def flush(self) -> None:
        """Hand the held rows to RocksDB."""
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
        """Bytes of memory in use, about, for rows of units."""
        return self._units.memory

    def size(self) -> int:
        """Measure the bytes on disk; held rows are not among them."""
        return sum(f.stat().st_size for f in self.path.rglob("*") if f.is_file())

    def compact(self) -> None:
        """Rewrite everything into the last level, even a table that could be moved as it is."""
        self.flush()
        options = CompactOptions()
        options.set_bottommost_level_compaction(BottommostLevelCompaction.force())
        with explained(self.path, "written"):
            self._db.flush()
            self._db.compact_range(None, None, options)

    def copy(self, folder: Path) -> None:
        """Link the files of the table, as it is on disk, into a new folder on the same disk.

        What is held of a large table stays where it is: to write it would keep a step waiting.

        Raises:
            EngineError: they cannot be linked.
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
            soon: there is not long to stop: a large table stays as it was saved last, as after a
                kill.
        """
        try:
            if not soon or self._units.rows <= CLOSED_ROWS:
                self.flush()
        except BaseException:
            self.abandon()  # what its end says after that would hide the reason
            raise
        self._leave()
        with explained(self.path, "closed"):  # it may still write
            self._db.close()

    def abandon(self) -> None:
        """Release the folder of a damaged table; what is held is lost."""
        self._held.clear()
        self._units.clear()
        self._leave()
        with contextlib.suppress(Exception):  # it is damaged: whatever this says is known
            self._db.close()

    def _leave(self) -> None:
        if self._intake is not None:
            self._intake.close()
        if self._hold and self._open:
            self._room.leave()
        self._open = False


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
    if cache is not None:
        table.set_block_cache(cache)
        table.set_cache_index_and_filter_blocks(True)
    options.set_block_based_table_factory(table)
    return options


def read_rows(path: Path, keys: Sequence[bytes]) -> list[bytes | None]:
    """Read rows, None for none, of a folder that another process may have open, without a lock."""
    table = Rdict(str(path), _options(None, 1 << 20), access_type=AccessType.read_only())
    try:
        found: list[bytes | None] = table.get(list(keys))
        return found
    finally:
        table.close()


def discard(path: Path) -> None:
    """Delete a shard's local state; the changelog has it all."""
    shutil.rmtree(path, ignore_errors=True)


def set_aside(path: Path) -> Path:
    """Rename a shard's damaged folder; of those that were renamed before, none stays."""
    other = path.with_name(f"damaged-{path.name}")
    shutil.rmtree(other, ignore_errors=True)
    path.rename(other)
    return other

"""State in RocksDB: a folder for each shard, written after the Kafka transaction has committed."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rocksdict import (
    AccessType,
    BlockBasedOptions,
    BottommostLevelCompaction,
    Cache,
    CompactOptions,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from ...errors import DamagedError, EngineError, HushError
from ...mechanisms.keys import Keys
from .columns import NO_ROWS, Found, RowColumns, column_of, pick, put_in
from .known_units import KnownUnits, UnitRoom
from .layout import DIGEST, POSITION, UNIT_WIDTH, after, of_unit
from .row_table import HeldTable
from .unit_filter import UnitFilter

READ = 1_000  # keys of one lookup: each pins the block that it lies in
HELD_BYTES = 16 << 20  # of values of units in memory, above which they go to disk
_ASK: Any = object()  # not in memory
IN_USE = ("lock hold by current process", "While lock file")
REASONS = (
    "No space left on device",
    "File too large",
    "Disk quota exceeded",
    "Read-only file system",
    "Permission denied",
    "Too many open files",
)
DAMAGED = ("Corruption", "No such file or directory", "Input/output error")


class RocksStore:
    """State in a RocksDB folder; one writer per folder.

    With ``hold``, written rows stay in memory until there are that many, and a row that changes
    again meanwhile is written once. They go to disk in one batch, with the marker and the position
    that came with the last of them: what is on disk is always the state of some earlier step,
    and a restart reads the changelog from there. What went to disk last is still read from memory;
    of rows of units, as many as there is room for.

    Rows of units are held in columns, all others in dictionaries.

    Args:
        path: the folder; made if it does not exist.
        cache: block cache, shared by all tables of a process.
        hold: rows kept in memory; 0: each write goes to disk at once.
        room: memory for rows of units that are on disk; None keeps those that went there last.

    Raises:
        EngineError: another process has the folder open, or it cannot be opened.
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
        self._held: dict[bytes, bytes | None] = {}  # not on disk yet
        self._recent: dict[bytes, bytes | None] = {}  # those, and what went to disk last
        self._units = HeldTable(UNIT_WIDTH)  # not on disk yet
        self._room = room or UnitRoom(0)
        self._known = KnownUnits(self._room)  # on disk
        # Where no rows are held, single ones may be those of units: nothing is known of the disk.
        self._filter = UnitFilter(self._none_of if hold else lambda prefix: False)
        path.mkdir(parents=True, exist_ok=True)
        with _explained(path, "opened"):
            self._db = Rdict(str(path), _options(cache, write_buffer_bytes))
        self._quick = WriteOptions()
        self._quick.disable_wal = False
        self._open = True
        if hold:
            self._room.enter()

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read the rows of ``keys``, in their order; None where a row is missing."""
        if not self._hold:
            return self._read(keys)
        recent = self._recent.get
        found: list[Any] = [recent(key, _ASK) for key in keys]
        asked = [place for place, row in enumerate(found) if row is _ASK]
        places = [p for p in asked if not of_unit(keys[p])]
        for place, row in zip(places, self._read([keys[p] for p in places]), strict=True):
            found[place] = row
        if len(places) == len(asked):
            return found
        places = [place for place in asked if found[place] is _ASK]
        units = self.get_columns(Keys.of(keys[p] for p in places))
        for place, value in zip(places, units.tolist(), strict=True):
            found[place] = value or None
        return found

    def get_columns(self, keys: Keys) -> Keys:
        """Read the rows of units, in the order of their keys; an empty one stands for none."""
        values, known = self._units.look(keys)
        for further in (self._known.look, self._on_disk):
            rows = np.flatnonzero(~known)
            if len(rows) == 0:
                break
            found = further(pick(keys, rows))
            values, known[rows] = put_in(values, rows, found.values), found.known
        return values

    def _on_disk(self, keys: Keys) -> Found:
        """Read them in the order in which they lie there: many of a block, and each block once."""
        order = _order(keys)
        order = order[self._filter.possible(keys)[order]]
        found: list[bytes | None] = [None] * len(keys)
        rows = self._read(Keys.fixed(_matrix(keys)[order]).tolist())
        for place, row in zip(order.tolist(), rows, strict=True):
            found[place] = row
        return Found(column_of(found), np.ones(len(keys), np.bool_))

    def _none_of(self, prefix: bytes) -> bool:
        """Whether no key on disk begins with a prefix; where a scan is not to be trusted, False.

        That a scan shows nothing proves nothing unless it shows what is there: every table that a
        shard has written to has its position, which is read by name, and must be seen by a scan.
        """
        known = self._read([POSITION]) != [None]
        seen = next(self._rows(POSITION, after(POSITION)), None) is not None
        return known == seen and next(self._rows(prefix, after(prefix)), None) is None

    def _read(self, keys: Sequence[bytes]) -> list[bytes | None]:
        found: list[bytes | None] = []
        with _explained(self.path, "read"):
            for begun in range(0, len(keys), READ):
                found += self._db.get(list(keys[begun : begun + READ]))
        return found

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield rows with start ≤ key < end, in key order; held rows go to disk before."""
        self.flush()
        yield from self._rows(start, end)

    def _rows(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        options = ReadOptions()
        options.set_iterate_upper_bound(end)
        last = start
        with _explained(self.path, "read"):
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
        if not self._hold:
            self._put(changes, units)
            return
        # Each row is held in one of the two places only, or an old value could hide a newer one.
        named = [key for key in changes if of_unit(key)]
        single = {key: changes[key] for key in named}
        columns = [one for one in (units, RowColumns.of(single)) if len(one.keys)]
        for one in columns:
            self._units.put(one)
        others = {k: v for k, v in changes.items() if k not in single} if single else changes
        self._held.update(others)
        self._recent.update(others)
        held = len(self._held) + len(self._units)
        if held > self._hold or self._units.size > HELD_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hand the held rows to RocksDB."""
        if self._held or len(self._units):
            units = self._units.rows()
            self._put(self._held, units)
            self._recent, self._held = self._held, {}
            self._known.put(units, self._filter.memory)
            self._units.clear()

    def _put(self, changes: Mapping[bytes, bytes | None], units: RowColumns) -> None:
        self._filter.add(units.keys, self._room.share // 2)  # before the disk has them
        batch = WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        keys, values = units.keys.tolist(), units.values.tolist()
        in_order = ((keys[n], values[n] or None) for n in _order(units.keys).tolist())
        for key, value in chain(in_order, changes.items()):
            if value is None:
                delete(key)
            else:
                put(key, value)
        with _explained(self.path, "written"):
            self._db.write(batch, write_opt=self._quick)

    @property
    def known_bytes(self) -> int:
        """Bytes of memory in use, about, for rows of units that are on disk."""
        return self._known.memory + self._filter.memory

    def size(self) -> int:
        """Measure the bytes on disk; held rows are not among them."""
        return sum(f.stat().st_size for f in self.path.rglob("*") if f.is_file())

    def compact(self) -> None:
        """Rewrite everything into the last level, even a table that could be moved as it is."""
        self.flush()
        options = CompactOptions()
        options.set_bottommost_level_compaction(BottommostLevelCompaction.force())
        with _explained(self.path, "written"):
            self._db.flush()
            self._db.compact_range(None, None, options)

    def close(self) -> None:
        """Write the held rows, and release the folder."""
        try:
            self.flush()
        except BaseException:
            self.abandon()  # what its end says after that would hide the reason
            raise
        self._leave()
        with _explained(self.path, "closed"):  # it may still write
            self._db.close()

    def abandon(self) -> None:
        """Release the folder of a damaged table; what is held is lost."""
        self._held.clear()
        self._units.clear()
        self._leave()
        with contextlib.suppress(Exception):  # it is damaged: whatever this says is known
            self._db.close()

    def _leave(self) -> None:
        if self._hold and self._open:
            self._room.leave()
        self._open = False


def _order(keys: Keys) -> NDArray[np.intp]:
    """The order of keys of units on disk, where they are of one epoch; else almost."""
    heads = _matrix(keys)[:, -DIGEST : 8 - DIGEST]
    return np.argsort(np.ascontiguousarray(heads).view(">u8").reshape(-1))


def _matrix(keys: Keys) -> NDArray[np.uint8]:
    return keys.packed().reshape(len(keys), UNIT_WIDTH)


@contextlib.contextmanager
def _explained(path: Path, what: str) -> Iterator[None]:
    """Tell errors of the library without its text, which may quote what is in the table."""
    try:
        yield
    except (HushError, GeneratorExit):
        raise
    except Exception as error:
        raise _error(path, what, str(error)) from None


def _error(path: Path, what: str, text: str) -> EngineError:
    if any(word in text for word in IN_USE):
        return EngineError(
            f"the state folder {path} is in use by another process: "
            "give each worker a data_dir of its own, never a shared volume"
        )
    reason = next((reason for reason in REASONS if reason in text), None)
    if reason is None and any(word in text for word in DAMAGED):
        return DamagedError(f"the table in {path} cannot be {what}: it is damaged")
    return EngineError(
        f"the table in {path} cannot be {what}: {reason or 'RocksDB refuses'}; mend that and "
        "restart the worker: what was committed is in the changelog"
    )


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

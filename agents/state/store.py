"""State of one shard: byte rows in RocksDB, written after the Kafka transaction has committed.

Keys begin with a tag byte. Rows of some tags are *local*: they are derived from other rows and
are rebuilt, never sent to the changelog.
"""

from __future__ import annotations

import shutil
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

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

from ...errors import EngineError

Changes = dict[bytes, bytes | None]  # None deletes

MARKER = b"\x00marker"
READ = 1_000  # keys of one lookup: each pins the block that it lies in
_ASK: Any = object()  # not in memory
POSITION = b"\x00position"  # next changelog offset: local, written with every batch


class Reader(Protocol):
    """What a stage may read: committed state only."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]: ...

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]: ...


class Store(Reader, Protocol):
    """State that a shard owns."""

    def write(self, changes: Mapping[bytes, bytes | None]) -> None: ...

    def close(self) -> None: ...


def after(prefix: bytes) -> bytes:
    """The least key greater than every key that begins with ``prefix``."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else b"\xff" * 40


class MemoryStore:
    """State in a dictionary, for simulation, replay and tests."""

    def __init__(self) -> None:
        self._rows: dict[bytes, dict[bytes, bytes]] = {}  # by tag
        self._sorted: dict[bytes, list[bytes]] = {}

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Rows of ``keys``, in their order."""
        rows = self._rows
        return [rows.get(key[:1], {}).get(key) for key in keys]

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Rows with start ≤ key < end, in key order; both share their tag."""
        tag = start[:1]
        rows = self._rows.get(tag, {})
        if tag not in self._sorted:
            self._sorted[tag] = sorted(rows)
        ordered = self._sorted[tag]
        for key in ordered[bisect_left(ordered, start) : bisect_left(ordered, end)]:
            value = rows.get(key)
            if value is not None:
                yield key, value

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Apply a batch of changes."""
        for key, value in changes.items():
            tag = key[:1]
            rows = self._rows.setdefault(tag, {})
            if value is not None and key not in rows:
                self._sorted.pop(tag, None)  # deleted keys may stay in it, new ones may not lack
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value

    def close(self) -> None:
        """Nothing to close."""


class RocksStore:
    """State in a RocksDB folder; one writer per folder.

    With ``hold``, written rows stay in memory until there are that many, and a row that changes
    again meanwhile is written once. They go to disk in one batch, with the marker and the position
    that came with the last of them: what is on disk is always the state of some earlier step,
    and a restart reads the changelog from there.
    """

    def __init__(
        self, path: Path, cache: Cache | None, write_buffer_bytes: int, hold: int = 0
    ) -> None:
        self.path = path
        self._hold = hold
        self._held: dict[bytes, bytes | None] = {}  # not on disk yet
        self._recent: dict[bytes, bytes | None] = {}  # those, and what went to disk last
        path.mkdir(parents=True, exist_ok=True)
        try:
            self._db = Rdict(str(path), _options(cache, write_buffer_bytes))
        except Exception as error:
            if "lock" in str(error).lower():
                raise EngineError(
                    f"the state folder {path} is in use by another process: "
                    "give each worker a data_dir of its own, never a shared volume"
                ) from None
            raise EngineError(f"the state folder {path} cannot be opened: {error}") from None
        self._quick = WriteOptions()
        self._quick.disable_wal = False

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Rows of ``keys``, in their order."""
        if not self._recent:
            return self._read(keys)
        recent = self._recent.get
        found: list[Any] = [recent(key, _ASK) for key in keys]
        places = [place for place, row in enumerate(found) if row is _ASK]
        for place, row in zip(places, self._read([keys[p] for p in places]), strict=True):
            found[place] = row
        return found

    def _read(self, keys: Sequence[bytes]) -> list[bytes | None]:
        found: list[bytes | None] = []
        for begun in range(0, len(keys), READ):
            found += self._db.get(list(keys[begun : begun + READ]))
        return found

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Rows with start ≤ key < end, in key order."""
        self.flush()
        options = ReadOptions()
        options.set_iterate_upper_bound(end)
        yield from self._db.items(from_key=start, read_opt=options)

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Apply a batch of changes atomically."""
        if not self._hold:
            self._put(changes)
            return
        self._held.update(changes)
        self._recent.update(changes)
        if len(self._held) > self._hold:
            self.flush()

    def flush(self) -> None:
        """Hand what is held to RocksDB."""
        if self._held:
            self._put(self._held)
            self._recent, self._held = self._held, {}

    def _put(self, changes: Mapping[bytes, bytes | None]) -> None:
        batch = WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        for key, value in changes.items():
            if value is None:
                delete(key)
            else:
                put(key, value)
        self._db.write(batch, write_opt=self._quick)

    def size(self) -> int:
        """Bytes on disk."""
        return sum(f.stat().st_size for f in self.path.rglob("*") if f.is_file())

    def compact(self) -> None:
        """Rewrite everything into the last level, even a table that could be moved as it is."""
        self.flush()
        self._db.flush()
        options = CompactOptions()
        options.set_bottommost_level_compaction(BottommostLevelCompaction.force())
        self._db.compact_range(None, None, options)

    def close(self) -> None:
        """Write what is held, and release the folder."""
        self.flush()
        self._db.close()


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


def discard(path: Path) -> None:
    """Delete a shard's local state; the changelog has it all."""
    shutil.rmtree(path, ignore_errors=True)


def overlay(reader: Reader, changes: Changes) -> Overlay:
    """A reader that sees uncommitted changes first."""
    return Overlay(reader, changes)


class Overlay:
    """Committed state under the changes of the step being computed."""

    def __init__(self, reader: Reader, changes: Changes) -> None:
        self._reader = reader
        self._changes = changes

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Rows of ``keys``; those changed in this step as they will be."""
        changes = self._changes
        if not changes:
            return self._reader.get_many(keys)
        missing = [key for key in keys if key not in changes]
        found = dict(zip(missing, self._reader.get_many(missing), strict=True))
        return [changes[key] if key in changes else found[key] for key in keys]

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Rows in range, with this step's changes, in key order."""
        ours = {k: v for k, v in self._changes.items() if start <= k < end}
        if not ours:
            yield from self._reader.scan(start, end)
            return
        rows: dict[bytes, Any] = dict(self._reader.scan(start, end)) | ours
        for key in sorted(rows):
            if rows[key] is not None:
                yield key, rows[key]


def scan_prefix(reader: Reader, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Rows whose key begins with ``prefix``."""
    return reader.scan(prefix, after(prefix))


def chunks(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Lists of at most ``size`` items."""
    chunk: list[Any] = []
    for item in items:
        chunk.append(item)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def access_read_only(path: Path) -> Rdict:
    """Open a state folder without locking it, for inspection and benchmarks."""
    return Rdict(str(path), _options(None, 1 << 20), access_type=AccessType.read_only())

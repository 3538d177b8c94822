"""Disks: rows that were written to a table survive its process, and nothing else does."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any

from . import world
from .loop import HERE


class Folder(PurePosixPath):
    """A folder of tables, with what the product uses of folders."""

    __slots__ = ()

    def mkdir(self, **_: Any) -> None:
        """Do nothing: folders exist."""

    def exists(self) -> bool:
        """Whether this folder has a table."""
        return any(self._below())

    def is_dir(self) -> bool:
        """Whether it exists: always, even without a table."""
        return True

    def unlink(self, missing_ok: bool = False) -> None:
        """Do nothing: files beside a table are not kept."""

    def rename(self, other: Any) -> None:
        """Delete a table: nothing reads it under its new name."""
        discard(self)

    def iterdir(self) -> Iterator[Any]:
        """The tables below; for a table, one file."""
        if str(self) in world.current().disks:
            return iter([self])
        if not self.exists():
            raise FileNotFoundError(str(self))
        return self._below()

    def stat(self) -> Any:
        """When the table was last written."""
        return SimpleNamespace(st_mtime=world.current().written.get(str(self), 0.0))

    def rglob(self, pattern: str) -> Iterator[Folder]:
        """The files of a table: none, since they are not counted."""
        return iter(())

    def glob(self, pattern: str) -> Iterator[Folder]:
        """Folders of tables, two levels below."""
        assert pattern == "*/[0-9]*", pattern
        return self._below()

    def _below(self) -> Iterator[Folder]:
        for path, rows in list(world.current().disks.items()):
            if rows and path.startswith(f"{self}/"):
                yield Folder(path)


def could_be_made(folder: Folder) -> None:
    """Do nothing: every folder can be made."""


def discard(path: Folder) -> None:
    """Delete a table."""
    world.current().disks.pop(str(path), None)
    if (undo := world.current().undo) is not None:
        undo.pop(str(path), None)


def lose(path: str, number: int) -> None:
    """Undo a table's last writes, as a loss of power does with writes that were not synced."""
    here = world.current()
    assert here.undo is not None
    rows, writes = here.disks[path], here.undo.get(path, [])
    for before in [writes.pop() for _ in range(min(number, len(writes)))]:
        for key, value in before.items():
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value


class Table:
    """Stands for `rocksdict.Rdict`."""

    def __init__(self, path: str, options: Any = None, access_type: Any = None) -> None:
        here = world.current()
        self._path = path
        holder = here.holders.get(path)
        if access_type is None:
            if holder is not None and not holder.dead:
                raise RuntimeError(f"{path}/LOCK: the lock is held")
            here.holders[path] = HERE.get()
        self._rows = here.disks.setdefault(path, {})
        self._reads = access_type is not None

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Rows."""
        return [self._rows.get(key) for key in keys]

    def items(self, from_key: bytes, read_opt: Span) -> Iterator[tuple[bytes, bytes]]:
        """Rows in order."""
        for key in sorted(k for k in self._rows if from_key <= k < read_opt.end):
            yield key, self._rows[key]

    def iter(self, options: Span) -> Cursor:
        """An iterator that tells whether a scan ended early."""
        return Cursor(self._rows, options.end)

    def write(self, batch: Writes, write_opt: Any = None) -> None:
        """Apply a batch, which is then on disk completely."""
        world.current().written[self._path] = world.VirtualTime.time()
        undo = world.current().undo
        if undo is not None:
            changed = {key for key, _ in batch.changes}
            undo.setdefault(self._path, []).append({key: self._rows.get(key) for key in changed})
        for key, value in batch.changes:
            if value is None:
                self._rows.pop(key, None)
            else:
                self._rows[key] = value

    def ingest_external_file(self, paths: Sequence[str], options: Any) -> None:
        """Write the rows of files."""
        undo = world.current().undo
        if undo is not None:  # files are whole and synced, and so is everything before them
            undo.pop(self._path, None)
        for path in paths:
            self._rows.update(world.current().files.pop(path))

    def compact_range(self, begin: bytes, end: bytes) -> None:
        """Do nothing: there is nothing to free."""

    def flush(self) -> None:
        """Do nothing: everything is on disk."""

    def close(self) -> None:
        """Release the folder."""
        holders = world.current().holders
        if not self._reads and holders.get(self._path) is HERE.get():
            holders.pop(self._path, None)


class Cursor:
    """Stands for an iterator of `rocksdict`, over a snapshot of the rows."""

    def __init__(self, rows: dict[bytes, bytes], end: bytes) -> None:
        self._keys = sorted(key for key in rows if not end or key < end)
        self._at = len(self._keys)

    def seek(self, key: bytes) -> None:
        """Move to the first row at or above a key."""
        self._at = bisect_left(self._keys, key)

    def next(self) -> None:
        """Move to the next row."""
        self._at += 1

    def valid(self) -> bool:
        """Whether it is at a row."""
        return self._at < len(self._keys)

    def key(self) -> bytes:
        """The key of the current row."""
        return self._keys[self._at]

    def status(self) -> None:
        """Report no error: these disks are never damaged."""


class Writes:
    """Stands for `rocksdict.WriteBatch`."""

    def __init__(self, raw_mode: bool = True) -> None:
        self.changes: list[tuple[bytes, bytes | None]] = []

    def put(self, key: bytes, value: bytes) -> None:
        """Store a row."""
        self.changes.append((key, value))

    def delete(self, key: bytes) -> None:
        """Delete a row."""
        self.changes.append((key, None))


class Rows:
    """Stands for `rocksdict.SstFileWriter`."""

    def __init__(self, options: Any = None) -> None:
        self._rows: dict[bytes, bytes] = {}
        self._path = ""

    def open(self, path: str) -> None:
        """Begin a file."""
        self._path = path

    def __setitem__(self, key: bytes, value: bytes) -> None:
        self._rows[key] = value

    def finish(self) -> None:
        """End the file."""
        world.current().files[self._path] = self._rows


class Span:
    """Stands for `rocksdict.ReadOptions`."""

    end = b""

    def set_iterate_upper_bound(self, end: bytes) -> None:
        """Set the end of a scan."""
        self.end = end

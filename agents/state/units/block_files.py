"""Blocks of unit rows in a table, written to a separate file and not through its log."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rocksdict import IngestExternalFileOptions, Options, Rdict, SstFileWriter

from ....errors import DamagedError
from ..layout import block_row
from ..rocks_errors import explained
from ..store import Changes

READ = 64  # blocks of one lookup
_FILE = "units.sst"


class BlockFiles:
    """Blocks by number.

    Numbers of blocks that no index ever named are used again.

    Args:
        path: folder of the table.
        options: makes the options of the table's files.

    Attributes:
        free: lowest number above all blocks that count.
    """

    def __init__(self, path: Path, db: Rdict, options: Callable[[], Options]) -> None:
        self._path, self._db, self._options = path, db, options
        self._writer: Any = None
        self.free = self._next = 0
        self._file = path / _FILE
        self._file.unlink(missing_ok=True)  # left by a process that was killed while writing

    def read(self, ids: Sequence[int]) -> list[bytes]:
        """Read blocks.

        Raises:
            DamagedError: one is missing.
        """
        found: list[bytes] = []
        for begun in range(0, len(ids), READ):
            keys = [block_row(number) for number in ids[begun : begun + READ]]
            with explained(self._path, "read"):
                rows = self._db.get(keys)
            if None in rows:
                raise DamagedError(f"the table in {self._path} lacks rows of units: it is damaged")
            found += rows
        return found

    def write(self, blocks: Iterable[bytes]) -> list[int]:
        """Write blocks; they can be read once `writing` has ended."""
        ids = []
        with explained(self._path, "written"):
            for block in blocks:
                if self._writer is None:
                    self._writer = SstFileWriter(self._options())
                    self._writer.open(str(self._file))
                self._writer[block_row(self._next)] = block
                ids.append(self._next)
                self._next += 1
        return ids

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Open the file for `write`; at the end, all blocks are on disk."""
        self._next = self.free
        try:
            yield
            if self._writer is not None:
                with explained(self._path, "written"):
                    self._writer.finish()
                    options = IngestExternalFileOptions()
                    options.set_move_files(True)
                    self._db.ingest_external_file([str(self._file)], options)
        finally:
            self._writer = None
            self._file.unlink(missing_ok=True)

    def count(self) -> None:
        """Note that an index names all written blocks."""
        self.free = self._next

    def dropped(self, gone: Sequence[int]) -> Changes:
        """Make the changes that delete blocks."""
        return dict.fromkeys(map(block_row, gone))

    def reclaim(self, gone: Sequence[int]) -> None:
        """Free the disk space of deleted blocks."""
        with explained(self._path, "written"):
            self._db.compact_range(block_row(min(gone)), block_row(max(gone) + 1))

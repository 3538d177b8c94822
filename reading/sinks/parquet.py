"""A folder of Parquet: each commit is one file, whose footer holds the position after it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import parquet

from ...errors import ConfigError, EngineError
from ...topics.private_files import settle
from .feed import SinkBatch, SinkPosition
from .layout import ARROW, SinkLayout

NOTE = b"hush.sink"


class SinkNote(msgspec.Struct, frozen=True):
    """Note in the footer of a part file."""

    position: SinkPosition
    releases: list[tuple[int, int]]  # start of the window (microseconds) and trigger of each


class Parquet:
    """Folders ``FOLDER/TABLE`` of files ``part-00000001.parquet`` and so on, in order.

    ``FOLDER/TABLE_newest.parquet`` has the newest row of each window and key; it is rebuilt after
    each part.
    """

    def __init__(self, folder: Path) -> None:
        self.name = str(folder)
        self._folder = folder
        self._parts: dict[str, int] = {}
        self._newest: dict[str, NewestRows] = {}

    def open(self, layout: SinkLayout) -> SinkPosition | None:
        """See `SinkTarget.open`."""
        place = self._folder / layout.table
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"parquet:{place}: {error.strerror}: name another folder") from None
        newest = self._newest[layout.table] = NewestRows(layout)
        position, number = None, 0
        while (path := _part(place, number + 1)).exists():
            number += 1
            with parquet.ParquetFile(path) as file:
                note = _note(file, path)
                if not file.schema_arrow.equals(layout.schema):
                    raise ConfigError(f"{path} has other columns: name another --table")
                newest.take(file.read(), note.releases)
            position = note.position
        self._parts[layout.table] = number
        return position

    def write(self, layout: SinkLayout, batch: SinkBatch) -> None:
        """See `SinkTarget.write`."""
        place, number = self._folder / layout.table, self._parts[layout.table] + 1
        rows = layout.rows(batch.releases)
        told = [(_micros(one.window.start), one.trigger) for one in batch.releases]
        note = msgspec.json.encode(SinkNote(batch.position, told))
        path = _part(place, number)
        temporary = _written(rows.replace_schema_metadata({NOTE: note}), path)
        try:
            os.link(temporary, path)  # unlike a rename, it never replaces a file
        except FileExistsError:
            raise EngineError(f"another process writes to {place}: end one of the two") from None
        finally:
            temporary.unlink()
        settle(place)
        self._parts[layout.table] = number
        newest = self._newest[layout.table]
        newest.take(rows, told)
        file = self._folder / f"{layout.table}_newest.parquet"
        os.replace(_written(newest.table(), file), file)


def _part(place: Path, number: int) -> Path:
    return place / f"part-{number:08d}.parquet"


def _note(file: Any, path: Path) -> SinkNote:
    note = (file.schema_arrow.metadata or {}).get(NOTE)
    if note is None:
        raise ConfigError(f"{path} was not written by `hush sink`: name another folder or --table")
    return msgspec.json.decode(note, type=SinkNote)


def _written(table: Any, path: Path) -> Path:
    """Write a file durably, under a name that readers of the folder ignore."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    parquet.write_table(table, temporary)
    settle(temporary)
    return temporary


def _micros(time: Any) -> int:
    return int(pa.scalar(time, ARROW["time"]).value)


class NewestRows:
    """The newest row of each window and key so far."""

    def __init__(self, layout: SinkLayout) -> None:
        self._layout = layout
        keys = [column for column, _ in layout.keys.values()]
        self._keys = ["window_start", *keys, *filter(None, [layout.whole_key])]
        self._last: dict[int, int] = {}  # the last trigger of each window
        self._rows: dict[tuple[Any, ...], Mapping[str, Any]] = {}

    def take(self, rows: Any, releases: list[tuple[int, int]]) -> None:
        """Take the rows of releases, each given by its window and trigger."""
        for window, trigger in releases:
            self._last[window] = max(trigger, self._last.get(window, 0))
        for row in rows.to_pylist():
            key = tuple(row[name] for name in self._keys)
            if key not in self._rows or self._rows[key]["trigger"] <= row["trigger"]:
                self._rows[key] = row

    def table(self) -> Any:
        """Make an Arrow table of the newest rows."""
        if self._layout.replaces:
            self._rows = {
                key: row
                for key, row in self._rows.items()
                if row["trigger"] == self._last[_micros(row["window_start"])]
            }
        return pa.Table.from_pylist(list(self._rows.values()), self._layout.schema)

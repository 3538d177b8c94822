"""Content to load into a topic: the rows of a file or a frame, and their digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..errors import ConfigError, ParameterError
from .files import FileLayout, Rows, rows_of, stream_file

BLOCK = 1 << 20  # bytes read at once


@dataclass(frozen=True)
class Content:
    """Rows that can be read again and again.

    Attributes:
        name: name for people.
        digest: digest of the content and of the way it is read, in hexadecimal.
        rows: yields the rows; True refuses CSV rows with too few or too many fields.
        stamp: returns a value that changes when the content does.
        stamped: that value when the digest was taken.
    """

    name: str
    digest: str
    rows: Callable[[bool], Rows]
    stamp: Callable[[], object] = lambda: None
    stamped: object = None

    def demand_unchanged(self) -> None:
        """Raise a `ConfigError` if the content no longer has this digest."""
        if self.stamp() != self.stamped:
            raise ConfigError(
                f"{self.name} has changed while it was read: the rows already written stay, and "
                "are those of the file before"
            )


def of_file(path: Path, layout: FileLayout) -> Content:
    """Take the rows of a file.

    Raises:
        ConfigError: the file is missing, or of an unknown kind; see `stream_file`.
    """
    stream_file(path, layout=layout)  # refuses what it cannot read
    stamp = partial(_stamp, path)
    before = stamp()
    found = hashlib.sha256(json.dumps(layout).encode())
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            found.update(block)
    return Content(
        str(path),
        found.hexdigest(),
        lambda strict: stream_file(path, strict=strict, layout=layout),
        stamp,
        before,
    )


def _stamp(path: Path) -> object:
    try:
        told = path.stat()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    return told.st_size, told.st_mtime_ns, told.st_ino


def of_frame(frame: Any) -> Content:
    """Take the rows of a frame: pandas, Polars, Arrow, or anything that exports an Arrow stream.

    Raises:
        ParameterError: ``frame`` is none of these.
    """
    try:
        table = pa.table(frame)
    except (TypeError, ValueError, pa.ArrowException):
        rule = "must be the path of a file, or a frame of pandas, Polars or Arrow"
        raise ParameterError("source", type(frame).__name__, rule) from None
    found = hashlib.sha256()
    for row in rows_of(table):
        found.update(as_json(row) + b"\n")
    return Content("the frame", found.hexdigest(), lambda _: rows_of(table))


def as_json(row: dict[str, Any]) -> bytes:
    """Write a row as the value of a record."""
    try:
        return json.dumps(row, default=str, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # a lone surrogate, which UTF-8 cannot encode: escape it as the file
        return json.dumps(row, default=str).encode()

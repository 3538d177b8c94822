"""Files of sample records as rows: CSV, JSON lines, Arrow."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..agents.deployment.model import Input
from ..errors import ConfigError
from ..formats.events.types import paths_of


def read_file(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a CSV, JSON-lines or Arrow file.

    The suffix of the file decides. In a CSV file, texts that look like numbers become numbers, and
    empty fields None.

    Raises:
        ConfigError: the file is missing, of an unknown kind, or does not match its suffix.
    """
    return list(stream_file(path))


def stream_file(
    path: Path, wanted: Collection[str] | None = None, strict: bool = False
) -> Iterator[dict[str, Any]]:
    """Read the rows of a file one after the other, as `read_file` does.

    ``wanted`` names the needed fields (None: all); others may be missing. Some of the errors of
    `read_file` come only after the first rows. With ``strict``, a row of a CSV file that has not
    as many fields as the header is an error too.
    """
    readers: dict[str, Callable[[Path, Collection[str] | None], Iterator[dict[str, Any]]]] = {
        ".csv": partial(_csv, strict),
        ".jsonl": _lines,
        ".ndjson": _lines,
        ".json": _lines,
        ".arrow": _arrow,
        ".feather": _arrow,
    }
    if path.suffix not in readers:
        raise ConfigError(
            f"{path}: unknown kind of file; expected one of {', '.join(sorted(readers))}"
        )
    if not path.exists():
        raise ConfigError(f"{path}: file not found")
    if path.is_dir():
        raise ConfigError(f"{path}: a folder; expected a file of records")
    return _guarded(path, readers[path.suffix](path, wanted))


def _guarded(path: Path, rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    try:
        yield from rows
    except (UnicodeDecodeError, csv.Error, pa.ArrowInvalid):
        # The content may be private, so the message does not quote it.
        raise ConfigError(f"{path}: not a {path.suffix} file in UTF-8 that can be read") from None


def _csv(strict: bool, path: Path, wanted: Collection[str] | None) -> Iterator[dict[str, Any]]:
    with path.open(newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        head = next(rows, [])
        _check_head(path, head)
        places = [(i, n) for i, n in enumerate(head) if wanted is None or n in wanted]
        for row in rows:
            if row:  # as `csv.DictReader`: an empty line is none, a short one lacks fields
                size = len(row)
                if strict and size != len(head):
                    raise ConfigError(
                        f"{path}, line {rows.line_num}: {size} fields, and the header names "
                        f"{len(head)}: quote fields that hold a comma"
                    )
                yield {name: _typed(row[i]) if i < size else None for i, name in places}


def _check_head(path: Path, head: Sequence[str]) -> None:
    twice = [name for place, name in enumerate(head) if name in head[:place]]
    if twice:
        raise ConfigError(f"{path}: the header names {twice[0]!r} twice: rename one of the columns")
    other = next((sign for sign in ";\t|" if len(head) == 1 and sign in head[0]), None)
    if other is not None:
        name = {"\t": "tabs"}.get(other, repr(other))
        raise ConfigError(f"{path}: the header is one column with {name} in it: write commas")


def _typed(text: str | None) -> Any:
    if text is None or text == "":
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _lines(path: Path, wanted: Collection[str] | None) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield _object(path, number, line)


def _object(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):  # no JSON, a number of 5,000 digits, or lists without end
        row = None
    if not isinstance(row, dict):
        raise ConfigError(f"{path}, line {number}: each line must be a JSON object")
    return row


def _arrow(path: Path, wanted: Collection[str] | None) -> Iterator[dict[str, Any]]:
    with pa.memory_map(str(path)) as source:
        try:
            table = pa.ipc.open_file(source).read_all()
        except pa.ArrowInvalid:
            source.seek(0)
            table = pa.ipc.open_stream(source).read_all()
        table.validate(full=True)
        for batch in table.to_batches(max_chunksize=10_000):
            yield from batch.to_pylist()


def check_columns(source: Input, rows: Sequence[Mapping[str, Any]], file: str = "") -> None:
    """Refuse rows none of which has a field that the input and its pipelines read of each record.

    Raises `ConfigError`, which names the first such field, and those that are there.
    """
    found = {name for row in rows for name in row}
    signs = {p.fields.sign for p in source.pipelines}
    paths = set(paths_of(source.fields, [p.fields for p in source.pipelines])) - signs
    missing = sorted(path for path in paths if path.split(".")[0] not in found)
    if rows and missing:
        raise ConfigError(
            f"{file and f'{file}: '}no record has the field {missing[0]!r}, which input "
            f"{source.name!r} or one of its pipelines reads; there is "
            f"{', '.join(sorted(found)) or 'none'}"
        )

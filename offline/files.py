"""Files of records as rows: CSV, JSON lines, Arrow, Parquet; texts may be compressed."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import parquet

from ..agents.deployment.model import Input
from ..errors import ConfigError
from ..formats.events.types import paths_of

Rows = Iterator[dict[str, Any]]
BATCH = 10_000  # rows read at once
COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


class FileLayout(NamedTuple):
    """Format of a text file.

    Attributes:
        delimiter: character between two fields of a line; empty: the suffix decides.
        columns: names of the columns of a file without a header; empty: it has a header.
    """

    delimiter: str = ""
    columns: tuple[str, ...] = ()


class Extract(NamedTuple):
    """Part of a file to read; see `stream_file`."""

    wanted: Collection[str] | None
    strict: bool
    layout: FileLayout


def read_file(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a CSV, JSON-lines, Arrow or Parquet file.

    The suffix before that of the compression decides (``trips.csv.gz``). In a CSV file, texts that
    look like numbers become numbers, and empty fields None.

    Raises:
        ConfigError: the file is missing, of an unknown kind, or does not match its suffix.
    """
    return list(stream_file(path))


def stream_file(
    path: Path,
    wanted: Collection[str] | None = None,
    strict: bool = False,
    layout: FileLayout = FileLayout(),  # noqa: B008
) -> Rows:
    """Read the rows of a file one by one, as `read_file` does.

    ``wanted`` names the needed fields (None: all); others may be missing. Some of the errors of
    `read_file` occur only after the first rows. With ``strict``, a CSV row whose number of fields
    differs from the header's is an error too.
    """
    kind, compression = kind_of(path)
    if layout != FileLayout() and READERS[kind] is not _csv:
        raise ConfigError(f"{path}: only .csv and .tsv files have a delimiter, or lack a header")
    if not path.exists():
        raise ConfigError(f"{path}: file not found")
    if path.is_dir():
        raise ConfigError(f"{path}: a folder; expected a file of records")
    if kind == ".tsv" and not layout.delimiter:
        layout = layout._replace(delimiter="\t")
    asked = Extract(wanted, strict, layout)
    return _guarded(path, kind, READERS[kind](path, compression, asked))


def kind_of(path: Path) -> tuple[str, str | None]:
    """The suffix that determines the format of a file, and its compression (None: none).

    Raises:
        ConfigError: the suffix is unknown, or a format with its own compression is compressed.
    """
    compression = COMPRESSED.get(path.suffix)
    kind = Path(path.stem).suffix if compression else path.suffix
    known = {name for name, reader in READERS.items() if not compression or reader in TEXTS}
    if kind not in known:
        more = "" if compression else f", or one of texts with {', '.join(COMPRESSED)} after it"
        raise ConfigError(
            f"{path}: unknown kind of file; expected one of {', '.join(sorted(known))}{more}"
        )
    return kind, compression


def _guarded(path: Path, kind: str, rows: Rows) -> Rows:
    try:
        yield from rows
    except (UnicodeDecodeError, csv.Error, pa.ArrowException):
        # The content may be private, so the message does not quote it.
        code = " in UTF-8" if READERS[kind] in TEXTS else ""
        raise ConfigError(f"{path}: not a {kind} file{code} that can be read") from None
    except OSError as error:
        if error.errno is not None:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
        raise ConfigError(f"{path}: damaged, or cut off before its end") from None


def _opened(path: Path, compression: str | None) -> Any:
    """Read the text of a file, without a byte-order mark."""
    raw = pa.input_stream(str(path), compression=compression, buffer_size=1 << 20)
    return TextIOWrapper(raw, encoding="utf-8-sig", newline="")


def _csv(path: Path, compression: str | None, asked: Extract) -> Rows:
    delimiter, columns = asked.layout
    with _opened(path, compression) as file:
        rows = csv.reader(file, delimiter=delimiter or ",", strict=True)
        head = list(columns) or next(_told_quotes(path, rows), [])
        _check_head(path, head)
        wanted = asked.wanted
        places = [(i, n) for i, n in enumerate(head) if wanted is None or n.split(".")[0] in wanted]
        inner = any(_PATH.fullmatch(name) for _, name in places)
        for row in _told_quotes(path, rows):
            if row:  # as `csv.DictReader`: an empty line is no row, a short one lacks fields
                size = len(row)
                if asked.strict and size != len(head):
                    names = "--columns names" if columns else "the header names"
                    raise ConfigError(
                        f"{path}, line {rows.line_num}: {size} fields, and {names} {len(head)}: "
                        "quote fields that hold the delimiter"
                    )
                flat = {name: _typed(row[i]) if i < size else None for i, name in places}
                yield _nested(flat) if inner else flat


_PATH = re.compile(r"[^.\s]+(\.[^.\s]+)+")


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """A row whose columns ``a.b`` are fields of an object ``a``, as paths name them."""
    row: dict[str, Any] = {}
    for name, value in flat.items():
        *outer, last = name.split(".") if _PATH.fullmatch(name) else [name]
        into = row
        for step in outer:
            into = into.setdefault(step, {})
        into[last] = value
    return row


def _told_quotes(path: Path, rows: Any) -> Iterator[list[str]]:
    """Yield rows; a quote that is not closed, or closed too early, is told with its line."""
    line = rows.line_num + 1
    try:
        for row in rows:
            yield row
            line = rows.line_num + 1
    except csv.Error as error:
        # The parser's words quote no content. A field is at most 131,072 characters, so a quote
        # that is never closed ends there, or with the file.
        raise ConfigError(
            f"{path}, line {line}: the row that begins here cannot be read ({error}): close each "
            'quote, and write a quote within a quoted field twice ("")'
        ) from None


def _check_head(path: Path, head: Sequence[str]) -> None:
    twice = [name for place, name in enumerate(head) if name in head[:place]]
    if twice:
        raise ConfigError(f"{path}: the header names {twice[0]!r} twice: rename one of the columns")
    if both := _both(head):
        raise ConfigError(
            f"{path}: the header names {both[0]!r} and {both[1]!r}, a field of it: a column is a "
            "value or holds fields: rename one of the columns"
        )
    other = next((sign for sign in ",;\t|" if len(head) == 1 and sign in head[0]), None)
    if other is not None:
        name = {"\t": "tabs"}.get(other, repr(other))
        raise ConfigError(
            f"{path}: the header is one column with {name} in it: write commas, or tabs in a .tsv "
            "file; `hush produce` has --delimiter"
        )


def _both(head: Sequence[str]) -> tuple[str, str] | None:
    """A column, and another one that is a field of it; None if there is none."""
    paths = [name for name in head if _PATH.fullmatch(name)]
    return next(((n, path) for path in paths for n in head if path.startswith(f"{n}.")), None)


_NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)


def _typed(text: str) -> Any:
    """A number, if the text is one that JSON can write; Python also takes "1_000" and "nan"."""
    if text == "":
        return None
    if not _NUMBER.fullmatch(text):
        return text
    try:
        return int(text)
    except ValueError:  # not whole, or of more digits than Python reads
        number = float(text)
        return number if math.isfinite(number) else text


def _lines(path: Path, compression: str | None, asked: Extract) -> Rows:
    with _opened(path, compression) as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield _object(path, number, line)


def _object(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):  # not JSON, a number of 5,000 digits, or too deep nesting
        row = None
    if not isinstance(row, dict):
        raise ConfigError(f"{path}, line {number}: each line must be a JSON object")
    return row


def _arrow(path: Path, compression: str | None, asked: Extract) -> Rows:
    with pa.memory_map(str(path)) as source:
        try:
            table = pa.ipc.open_file(source).read_all()
        except pa.ArrowInvalid:
            source.seek(0)
            table = pa.ipc.open_stream(source).read_all()
        table.validate(full=True)
        yield from rows_of(table)


def _parquet(path: Path, compression: str | None, asked: Extract) -> Rows:
    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(BATCH):
            yield from rows_of(pa.Table.from_batches([batch]))


def rows_of(table: Any) -> Rows:
    """Yield the rows of an Arrow table; times are truncated to Python's microseconds."""
    for place, one in enumerate(table.schema):
        if pa.types.is_timestamp(one.type) and one.type.unit == "ns":
            whole = table.column(place).cast(pa.timestamp("us", one.type.tz), safe=False)
            table = table.set_column(place, one.name, whole)
    for batch in table.to_batches(max_chunksize=BATCH):
        yield from batch.to_pylist()


Reader = Callable[[Path, str | None, Extract], Rows]
TEXTS: tuple[Reader, ...] = (_csv, _lines)
READERS: Mapping[str, Reader] = {
    ".csv": _csv,
    ".tsv": _csv,
    ".jsonl": _lines,
    ".ndjson": _lines,
    ".json": _lines,
    ".arrow": _arrow,
    ".feather": _arrow,
    ".parquet": _parquet,
}


def check_columns(source: Input, rows: Sequence[Mapping[str, Any]], file: str = "") -> None:
    """Refuse rows if none of them has some field that the input or a pipeline reads.

    Raises `ConfigError`, which names the first such field, and the fields present.
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

"""Lookup tables: public files with a header, read at start-up, and topics that were read before.

A topic changes, so a pipeline keeps the content that was read at its declaration. Nothing here
opens a connection: a caller that has one passes `Tables`. Without it, a topic's table stays unread,
and no pipeline can be declared with it.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ....errors import ConfigError
from ....formats.events.expressions.looked_up import Origin, PublicTable, Value
from ..toml.read import Problem

MOST = 1_000_000  # rows of a table, which each worker holds in memory
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
Tables = Callable[[str, Origin], PublicTable]
"""Finds a table of the pipeline of this name; raises `ConfigError` if there is none."""
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")


def read_lookups(data: dict[str, Any], folder: Path, tables: Tables | None = None) -> list[Problem]:
    """Replace the name of each lookup in a configuration by its table.

    Args:
        tables: finds the tables of topics; None: they stay unread.

    Returns:
        Problems of files that cannot be read or are not tables.
    """
    problems: list[Problem] = []
    known: dict[tuple[str, ...], PublicTable] = {}
    topics = {one.get("name"): one.get("topic") for _, one in _numbered(data.get("lookup"))}
    for path, table in lookups(data):
        file, take = table.pop("lookup"), table.get("take")
        match = table.get("match", str(table.get("field")).rpartition(".")[2])
        asked = tuple(one for one in (file, match, take) if isinstance(one, str))
        if len(asked) < 3:
            message = "must be a file's name, or a [[lookup]]'s, with take, a column of it"
            problems.append(Problem((*path, "lookup"), message))
            continue
        try:
            if isinstance(topic := topics.get(file), str):
                origin = Origin(topic, *asked[1:])
                pipeline = str(data["pipeline"][path[1]].get("name"))
                table["lookup"] = (
                    PublicTable({}, origin) if tables is None else tables(pipeline, origin)
                )
                continue
            if asked not in known:
                known[asked] = read_table(folder / asked[0], *asked[1:])
            table["lookup"] = known[asked]
        except ConfigError as error:
            problems.append(Problem((*path, "lookup"), str(error)))
    return problems


Place = tuple[str | int, ...]


def lookups(data: dict[str, Any]) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Settings that name a lookup: key columns, and conditions on records."""
    for place, pipeline in _numbered(data.get("pipeline")):
        path: Place = ("pipeline", place)
        yield from _of_conditions(pipeline.get("where"), (*path, "where"))
        derive: Any = pipeline.get("derive")
        for name, column in derive.items() if isinstance(derive, dict) else ():
            if isinstance(column, dict):
                yield from _named(column, (*path, "derive", name))
                for at, case in _numbered(column.get("cases")):
                    inner = (*path, "derive", name, "cases", at, "where")
                    yield from _of_conditions(case.get("where"), inner)
        for at, one in _numbered(pipeline.get("aggregate")):
            yield from _of_conditions(one.get("where"), (*path, "aggregate", at, "where"))


def _of_conditions(given: Any, path: Place) -> Iterator[tuple[Place, dict[str, Any]]]:
    for place, one in _numbered(given):
        yield from _named(one, (*path, place))
        for name in ("any", "all"):
            yield from _of_conditions(one.get(name), (*path, place, name))


def _named(table: dict[str, Any], path: Place) -> Iterator[tuple[Place, dict[str, Any]]]:
    if "lookup" in table:
        yield path, table


def _numbered(given: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """The numbered tables of a list; none of anything else, which is refused elsewhere."""
    for place, one in enumerate(given if isinstance(given, list) else ()):
        if isinstance(one, dict):
            yield place, one


def read_table(path: Path, match: str, take: str) -> PublicTable:
    """Read one column of a file by another.

    Values are whole numbers if all of them are, else texts; rows without a value are skipped.

    Raises:
        ConfigError: the file cannot be read, lacks a column, or has two values for one key.
    """
    delimiter = _DELIMITERS.get(path.suffix.lower())
    if delimiter is None:
        raise ConfigError(
            f"{path} must be a file .csv or .tsv with a header, or the name of a [[lookup]]"
        )
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read ({error})") from error
    rows = csv.reader(io.StringIO(text), delimiter=delimiter, strict=True)
    try:
        return PublicTable(_typed(_pairs(path, rows, match, take)))
    except csv.Error as error:
        rule = 'close each quote, and write a quote within a quoted field twice ("")'
        raise ConfigError(f"{path}, line {rows.line_num}: {error}: {rule}") from error


def _pairs(path: Path, rows: Any, match: str, take: str) -> dict[str, str]:
    header: list[str] = next(rows, [])
    for name in (match, take):
        if header.count(name) != 1:
            times = "no column" if name not in header else "more than one column"
            raise ConfigError(f"{path} has {times} {name!r}; its columns: {', '.join(header)}")
    at, of = header.index(match), header.index(take)
    found: dict[str, str] = {}
    for row in rows:
        if not row:
            continue
        if len(row) != len(header):
            raise ConfigError(
                f"{path}, line {rows.line_num}: {len(row)} values under {len(header)} columns"
            )
        key, value = row[at], row[of]
        if key and value and found.setdefault(key, value) != value:
            raise ConfigError(f"{path}, line {rows.line_num}: another value of {match} {key!r}")
        if len(found) > MOST:
            raise ConfigError(f"{path} has more than {MOST:,} rows")
    if not found:
        raise ConfigError(f"{path} has no rows with {match} and {take}")
    return found


def _typed(found: dict[str, str]) -> dict[str, Value]:
    if all(_WHOLE.fullmatch(value) for value in found.values()):
        return {key: int(value) for key, value in found.items()}
    return dict(found)

"""Tables in a database: the statements are the same for PostgreSQL and DuckDB."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import msgspec

from ...errors import ConfigError, EngineError
from .feed import SinkBatch, SinkPosition
from .layout import OF_RELEASES, ColumnKind, SinkLayout

STATE = "hush_sink"
INCOMING = "hush_incoming"
MOST_NAME = 63  # bytes of a name; PostgreSQL truncates longer ones
TYPES: Mapping[ColumnKind, str] = {
    "text": "TEXT", "whole": "BIGINT", "truth": "BOOLEAN", "real": "DOUBLE PRECISION",
    "time": "TIMESTAMP WITH TIME ZONE",
}  # fmt: skip


class SqlSession(Protocol):
    """One transaction: all its statements are committed, or none."""

    def ask(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement with parameters ``$1``, ``$2`` …; return its rows."""

    def incoming(self, table: Any) -> None:
        """Load an Arrow table into the temporary table `INCOMING`, replacing an earlier one."""


class Database(ABC):
    """Tables in a database."""

    name: str

    def __init__(self, name: str) -> None:
        self.name = name
        self._turns: dict[str, int] = {}  # number of commits to each table, for this process

    @abstractmethod
    def session(self) -> AbstractContextManager[SqlSession]:
        """Begin a transaction; the end of the block commits it, an exception rolls it back."""

    def open(self, layout: SinkLayout) -> SinkPosition | None:
        """See `SinkTarget.open`."""
        for name in (f"{layout.table}_releases", *layout.columns):
            if len(name.encode()) > MOST_NAME:
                raise ConfigError(f"{name!r} is longer than {MOST_NAME} bytes: give a --table")
        with self.session() as session:
            session.ask(
                f"CREATE TABLE IF NOT EXISTS {STATE} (name TEXT PRIMARY KEY, turn BIGINT NOT NULL, "
                "position TEXT NOT NULL)"
            )
            there = all(_columns(session, f"{layout.table}{what}") for what in ("", "_releases"))
            _made(session, layout.table, layout.columns, ["release_id"])
            _made(session, f"{layout.table}_releases", OF_RELEASES, _IDENTITY)
            _viewed(session, layout)
            session.ask(
                f"INSERT INTO {STATE} VALUES ($1, 0, '') ON CONFLICT (name) DO NOTHING",
                [layout.table],
            )
            found = session.ask(
                f"SELECT turn, position FROM {STATE} WHERE name = $1", [layout.table]
            )
        ((self._turns[layout.table], text),) = found
        # A dropped table is written again from the first release.
        return msgspec.json.decode(text, type=SinkPosition) if text and there else None

    def write(self, layout: SinkLayout, batch: SinkBatch) -> None:
        """See `SinkTarget.write`."""
        turn = self._turns[layout.table]
        position = msgspec.json.encode(batch.position).decode()
        rows, releases = layout.rows(batch.releases), layout.releases(batch.releases)
        with self.session() as session:
            mine = session.ask(
                f"UPDATE {STATE} SET turn = turn + 1, position = $1 WHERE name = $2 AND turn = $3 "
                "RETURNING turn",
                [position, layout.table, turn],
            )
            if not mine:
                raise EngineError(
                    f"another process writes to table {layout.table!r} of {self.name}: end one of "
                    "the two"
                )
            _upserted(session, layout.table, rows, ["release_id"])
            _upserted(session, f"{layout.table}_releases", releases, _IDENTITY)
        self._turns[layout.table] = turn + 1


_IDENTITY = ["pipeline", "window_start", "trigger"]


def _made(
    session: SqlSession, table: str, columns: Mapping[str, ColumnKind], identity: Sequence[str]
) -> None:
    """Make a table or add missing columns; refuse a table whose columns have other types."""
    listed = ", ".join(f"{quoted(name)} {TYPES[kind]}" for name, kind in columns.items())
    unique = ", ".join(map(quoted, identity))
    session.ask(f"CREATE TABLE IF NOT EXISTS {quoted(table)} ({listed}, PRIMARY KEY ({unique}))")
    found = _columns(session, table)
    if lacking := [name for name in identity if name not in found]:
        raise ConfigError(
            f"table {table!r} is there already, and no sink has made it: it has no column "
            f"{lacking[0]!r}; name another --table"
        )
    for name, kind in columns.items():
        if name not in found:
            session.ask(f"ALTER TABLE {quoted(table)} ADD COLUMN {quoted(name)} {TYPES[kind]}")
        elif found[name] not in (TYPES[kind], {"real": "DOUBLE", "text": "VARCHAR"}.get(kind)):
            raise ConfigError(
                f"table {table!r} has column {name!r} of type {found[name].lower()}, and releases "
                f"need {TYPES[kind].lower()}: name another --table"
            )


def _columns(session: SqlSession, table: str) -> dict[str, str]:
    """Columns of a table or view, in their order, with their types; empty if it is missing."""
    return dict(
        session.ask(
            "SELECT column_name, upper(data_type) FROM information_schema.columns WHERE "
            "table_name = $1 AND table_schema = current_schema() ORDER BY ordinal_position",
            [table],
        )
    )


def _viewed(session: SqlSession, layout: SinkLayout) -> None:
    """Make the view of newest rows; keep one with the same columns, as other views may use it."""
    view, wanted = f"{layout.table}_newest", list(layout.columns)
    found = list(_columns(session, view))
    if found == wanted:
        return
    if found != wanted[: len(found)]:  # otherwise it is replaced, and the other views remain
        session.ask(f"DROP VIEW IF EXISTS {quoted(view)}")
    session.ask(newest(layout))


def _upserted(session: SqlSession, table: str, rows: Any, identity: Sequence[str]) -> None:
    if not rows.num_rows:
        return
    session.incoming(rows)
    names = [quoted(name) for name in rows.column_names]
    others = [name for name in names if name not in set(map(quoted, identity))]
    listed, unique = ", ".join(names), ", ".join(map(quoted, identity))
    changed = ", ".join(f"{name} = excluded.{name}" for name in others)
    session.ask(
        f"INSERT INTO {quoted(table)} ({listed}) SELECT {listed} FROM {INCOMING} "
        f"ON CONFLICT ({unique}) DO UPDATE SET {changed}"
    )


def newest(layout: SinkLayout) -> str:
    """Write the statement that makes the view of the newest row of each window and key.

    If each release replaces its predecessor, a key that the last one lacks is gone, even if the
    last one has no rows.
    """
    table, view = quoted(layout.table), quoted(f"{layout.table}_newest")
    listed = ", ".join(f"r.{quoted(name)}" for name in layout.columns)
    if layout.replaces:
        last = (
            'SELECT window_start, max("trigger") AS newest '
            f"FROM {quoted(f'{layout.table}_releases')} GROUP BY window_start"
        )
        return (
            f"CREATE OR REPLACE VIEW {view} AS SELECT {listed} FROM {table} r JOIN ({last}) n "
            'ON r.window_start = n.window_start AND r."trigger" = n.newest'
        )
    keys = [
        name for name in layout.columns if name in {column for column, _ in layout.keys.values()}
    ]
    row = ", ".join(map(quoted, ["window_start", *keys, *filter(None, [layout.whole_key])]))
    place = "hush_place"
    while place in map(str.casefold, layout.columns):
        place += "_"
    ranked = (
        f'SELECT *, row_number() OVER (PARTITION BY {row} ORDER BY "trigger" DESC) '
        f"AS {place} FROM {table}"
    )
    return f"CREATE OR REPLACE VIEW {view} AS SELECT {listed} FROM ({ranked}) r WHERE {place} = 1"


def quoted(name: str) -> str:
    """Quote any name for SQL.

    >>> print(quoted('a "b" c'))
    "a ""b"" c"
    """
    doubled = name.replace('"', '""')
    return f'"{doubled}"'

"""A PostgreSQL database, loaded from Arrow by COPY."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from adbc_driver_manager import dbapi as manager
from adbc_driver_postgresql import dbapi
from pyarrow import compute

from ...errors import EngineError
from .sql import INCOMING, Database


class Postgres(Database):
    """Tables in a PostgreSQL database.

    Args:
        uri: URI for libpq; missing parts come from libpq's environment and password file.
    """

    def __init__(self, uri: str, name: str) -> None:
        super().__init__(name)
        self._uri = uri

    @contextmanager
    def session(self) -> Iterator[PostgresSession]:
        """See `Database.session`."""
        try:
            with dbapi.connect(self._uri) as client, client.cursor() as cursor:
                yield PostgresSession(cursor)
                client.commit()  # closing the connection rolls back uncommitted work
        except manager.Error as error:
            said = str(error).splitlines()[0]
            away = "Failed to connect" in said
            more = ": check address, user and password, and that the database runs" * away
            raise EngineError(f"{self.name}: {said}{more}") from None


class PostgresSession:
    """One transaction of PostgreSQL."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def ask(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """See `SqlSession.ask`."""
        self._cursor.execute(statement, list(values) or None)
        return list(self._cursor.fetchall()) if self._cursor.description else []

    def incoming(self, table: Any) -> None:
        """See `SqlSession.incoming`."""
        self.ask(f"DROP TABLE IF EXISTS {INCOMING}")
        self._cursor.adbc_ingest(INCOMING, without_zeros(table), mode="create", temporary=True)


def without_zeros(table: Any) -> Any:
    """Replace the character U+0000, which PostgreSQL text cannot hold, by U+2400."""
    for place, one in enumerate(table.schema):
        if one.type == pa.string():
            clean = compute.replace_substring(table.column(place), "\0", "␀")
            table = table.set_column(place, one.name, clean)
    return table

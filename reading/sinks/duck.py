"""A DuckDB file; it is closed between batches so that others can read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from ...errors import ConfigError, EngineError
from .sql import INCOMING, Database


class Duck(Database):
    """Tables in a DuckDB file, created if missing."""

    def __init__(self, file: Path) -> None:
        super().__init__(str(file))
        if not file.resolve().parent.is_dir():
            raise ConfigError(f"duckdb:{file}: the folder does not exist")

    @contextmanager
    def session(self) -> Iterator[DuckSession]:
        """See `Database.session`."""
        try:
            with duckdb.connect(self.name) as client:
                client.execute("SET TimeZone = 'UTC'")
                client.begin()
                yield DuckSession(client)
                client.commit()
        except duckdb.Error as error:
            raise EngineError(f"duckdb:{self.name}: {str(error).splitlines()[0]}") from None


class DuckSession:
    """One transaction of DuckDB."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def ask(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """See `SqlSession.ask`."""
        answer = self._client.execute(statement, list(values))
        return list(answer.fetchall()) if answer.description else []

    def incoming(self, table: Any) -> None:
        """See `SqlSession.incoming`."""
        self._client.register(INCOMING, table)

"""Targets of sinks: each kind commits rows and position atomically."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from ...errors import ConfigError, needs
from .feed import SinkBatch, SinkPosition
from .layout import SinkLayout

KINDS = "postgresql://…, duckdb:FILE, parquet:FOLDER or iceberg:NAMESPACE"


class SinkTarget(Protocol):
    """A place for tables; one process at a time writes to it.

    Attributes:
        name: display name, without a password.
    """

    name: str

    def open(self, layout: SinkLayout) -> SinkPosition | None:
        """Create missing tables of a layout, and return the position to continue from.

        Raises:
            ConfigError: a table of this name has other columns.
            EngineError: the target refuses.
        """

    def write(self, layout: SinkLayout, batch: SinkBatch) -> None:
        """Commit the rows of a batch and the position after it, or neither.

        Raises:
            EngineError: the target refuses, or another process writes to the table.
        """


def target_of(text: str) -> SinkTarget:
    """Find the target that a command line names.

    Raises:
        ConfigError: it is of an unknown kind.
        ExtraError: its client is not installed.
    """
    kind, colon, rest = text.partition(":")
    if kind in ("postgresql", "postgres") and rest.startswith("//"):
        with needs("sink"):
            from .postgres import Postgres
        return Postgres(text, f"{urlsplit(text).hostname or 'localhost'}{urlsplit(text).path}")
    if not colon or not rest:
        raise ConfigError(f"{text!r} is no target: expected {KINDS}")
    if kind == "duckdb":
        with needs("sink"):
            from .duck import Duck
        return Duck(Path(rest))
    if kind == "parquet":
        from .parquet import Parquet

        return Parquet(Path(rest))
    if kind == "iceberg":
        with needs("iceberg"):
            from .iceberg import Iceberg
        return Iceberg(rest)
    raise ConfigError(f"{text!r} is no target: expected {KINDS}")

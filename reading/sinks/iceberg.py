"""An Iceberg table: rows and position are one commit."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError

from ...errors import ConfigError, EngineError
from .feed import SinkBatch, SinkPosition
from .layout import SinkLayout

POSITION = "hush.sink"
# After another process's commit, a retry of the client would append the same rows again.
RETRIES = "commit.retry.num-retries"


class Iceberg:
    """Tables in a namespace of the catalog that ``.pyiceberg.yaml`` or the environment names.

    Args:
        place: ``NAMESPACE`` of the default catalog, or ``CATALOG/NAMESPACE``.
    """

    def __init__(self, place: str) -> None:
        catalog, _, namespace = place.rpartition("/")
        self.name = place
        self._namespace = namespace
        try:
            self._catalog = load_catalog(catalog or None)
        except Exception as error:  # each back end raises its own
            raise ConfigError(
                f"iceberg:{place}: its catalog cannot be opened ({type(error).__name__}): "
                "describe it in .pyiceberg.yaml, or by PYICEBERG_CATALOG__DEFAULT__URI"
            ) from None
        self._tables: dict[str, Any] = {}

    def open(self, layout: SinkLayout) -> SinkPosition | None:
        """See `SinkTarget.open`."""
        with suppress(NamespaceAlreadyExistsError):
            self._catalog.create_namespace(self._namespace)
        table = self._catalog.create_table_if_not_exists(
            (self._namespace, layout.table), layout.schema
        )
        found = _plain(table.schema().as_arrow())
        if not found.equals(layout.schema):
            raise ConfigError(f"table {layout.table!r} has other columns: name another --table")
        if table.properties.get(RETRIES) != "0":
            with table.transaction() as change:
                change.set_properties({RETRIES: "0"})
        self._tables[layout.table] = table
        text = table.properties.get(POSITION)
        return msgspec.json.decode(text, type=SinkPosition) if text else None

    def write(self, layout: SinkLayout, batch: SinkBatch) -> None:
        """See `SinkTarget.write`."""
        table, position = self._tables[layout.table], msgspec.json.encode(batch.position).decode()
        try:
            with table.transaction() as change:
                change.append(layout.rows(batch.releases))
                change.set_properties({POSITION: position})
        except CommitFailedException:
            raise EngineError(
                f"another process writes to table {layout.table!r} of {self.name}: stop one of them"
            ) from None


def _plain(schema: Any) -> Any:
    """The same columns without metadata, and with plain string types."""
    texts = (pa.large_string(), pa.string())
    return pa.schema({one.name: pa.string() if one.type in texts else one.type for one in schema})

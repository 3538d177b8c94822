"""The rows of units that a step changes."""

from __future__ import annotations

import numpy as np

from ....mechanisms.keys import Keys
from ..layout import UNIT_WIDTH
from ..rows.columns import NO_ROWS, Found, RowColumns, pick, put_in
from ..rows.table import HeldTable
from ..store import StateReader


class ChangedUnits:
    """Rows of units by key, over committed ones; of one key the newest counts."""

    def __init__(self) -> None:
        self._only: RowColumns | None = None  # most steps change units in one go
        self._table: HeldTable | None = None

    def __len__(self) -> int:
        if self._table is not None:
            return len(self._table)
        return 0 if self._only is None else len(self._only.keys)

    def put(self, rows: RowColumns) -> None:
        """Change rows, each key once."""
        if self._only is None and self._table is None:
            self._only = rows
        else:
            self._joined().put(rows)

    def read(self, reader: StateReader, keys: Keys) -> Keys:
        """Read rows of distinct keys with the changes of this step; an empty one means none."""
        if len(self) == 0:
            return reader.get_columns(keys)
        found: Found = self._joined().look(keys)
        rows = np.flatnonzero(~found.known)
        if len(rows) == 0:
            return found.values
        return put_in(found.values, rows, reader.get_columns(pick(keys, rows)))

    def columns(self) -> RowColumns:
        """All changed rows, each key once."""
        if self._table is not None:
            return self._table.rows()
        return NO_ROWS if self._only is None else self._only

    def _joined(self) -> HeldTable:
        if self._table is None:
            self._table = HeldTable(UNIT_WIDTH)
            if self._only is not None:
                self._table.put(self._only)
                self._only = None
        return self._table

"""Splits records of a changelog into rows of units and other rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import EngineError
from ...formats.events.raw import RawBatch
from .layout import DIGEST, HEAD, ROW, UNIT, UNIT_WIDTH, index_entries
from .rows.columns import NO_ROWS, RowColumns, gathered
from .rows.table import HeldTable
from .store import Changes


def restored(records: Sequence[Any], once: bool = True) -> tuple[Changes, RowColumns]:
    """List the newest row of each key, rows of units as columns, and rebuild local rows.

    Args:
        records: records of a changelog, in order; a `RawBatch` needs no object per unit's row.
        once: whether each unit's row occurs once; False: all its rows in order, of which the caller
            takes the last.

    Raises:
        EngineError: a record has no key, or a unit's row is empty, so no shard wrote it.
    """
    if not isinstance(records, RawBatch):
        changes: Changes = {}
        for record in records:
            changes[record.key] = record.value
            changes.update(index_entries(record.key, record.value))
        return changes, NO_ROWS
    if len(records) == 0:
        return {}, NO_ROWS
    if bool((records.key_end <= records.key).any()):
        raise EngineError("a record of a changelog has no key: no worker wrote it")
    wide = records.key_end - records.key == UNIT_WIDTH
    units = wide & (records.data[records.key] == UNIT[0])
    return _others(records, np.flatnonzero(~units)), _units(records, np.flatnonzero(units), once)


def _others(batch: RawBatch, rows: NDArray[np.intp]) -> Changes:
    changes: Changes = {}
    blob = batch.data.tobytes() if len(rows) else b""
    columns = (batch.key, batch.key_end, batch.value, batch.value_end)
    heads: dict[bytes, bytes] = {}  # of entries, by window and due trigger: few, for many rows
    for key_at, key_end, at, end in zip(*(one[rows].tolist() for one in columns), strict=True):
        key, value = blob[key_at:key_end], None if at < 0 else blob[at:end]
        changes[key] = value
        if key[:1] == ROW and value is not None:
            told = key[:HEAD] + value[:4]
            head = heads.get(told)
            if head is None:
                head = heads[told] = b"".join(index_entries(key[:HEAD], value))
            if head:
                changes[head + key[HEAD:]] = b""
    return changes


def _units(batch: RawBatch, rows: NDArray[np.intp], once: bool) -> RowColumns:
    if len(rows) == 0:
        return NO_ROWS
    places = UNIT_WIDTH * np.arange(len(rows) + 1, dtype=np.int64)
    keys = gathered(batch.data, batch.key[rows], places)
    widths = (batch.value_end - batch.value)[rows]
    if bool(((widths == 0) & (batch.value[rows] >= 0)).any()):
        raise EngineError("a unit's row in a changelog is damaged: it is empty")
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(widths)])
    begins = np.where(widths > 0, batch.value[rows], 0)
    found = RowColumns(keys, gathered(batch.data, begins, ends))
    return _newest(found) if once else found


def _newest(rows: RowColumns) -> RowColumns:
    """Keep the last row of each key; usually keys are distinct, which parts of them show fast."""
    matrix = rows.keys.packed().reshape(-1, UNIT_WIDTH)
    heads = np.sort(np.ascontiguousarray(matrix[:, -DIGEST : 8 - DIGEST]).view("<u8").reshape(-1))
    if bool((heads[1:] != heads[:-1]).all()):
        return rows
    table = HeldTable(UNIT_WIDTH)
    table.put(rows)
    return table.rows()

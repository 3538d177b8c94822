"""Key rows of the aggregate stage: fixed-width cells and the local index of what is due."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ....mechanisms.contract import Mechanism, Rows
from ....mechanisms.keys import Keys
from ...state.store import Changes, Reader, after
from ..bound.stage import sortable
from ..step import Step

ROW, DUE = b"r", b"d"
_HEAD = 1 + 8  # tag and window before a key


class RowTable:
    """Rows of one mechanism as bytes: due trigger, then the cell."""

    def __init__(self, mechanism: Mechanism) -> None:
        self._mechanism = mechanism
        self._layout = np.dtype([("due", "<i4"), ("cell", mechanism.row_dtype)])

    def load(self, reader: Reader, window: int, keys: Keys) -> Rows:
        """Rows of ``keys``; those not stored are fresh, with nothing due."""
        prefix = ROW + sortable(window)
        stored = reader.get_many([prefix + key for key in keys])
        rows = self._mechanism.init_rows(keys)
        known = np.flatnonzero(np.fromiter((v is not None for v in stored), bool, len(stored)))
        if not len(known):
            return rows
        packed = np.frombuffer(b"".join(v for v in stored if v is not None), self._layout)
        cell, due = rows.cell.copy(), rows.due.copy()
        cell[known] = packed["cell"]
        due[known] = packed["due"]
        return Rows(rows.key, cell, due)

    def store(self, window: int, rows: Rows, step: Step) -> None:
        """Put rows and their index entries into a step."""
        packed = self._packed(rows)
        # A row like a fresh one is not worth storing: as if its key had never been seen.
        worth = (packed != self._packed(self._mechanism.init_rows(rows.key))).any(axis=1)
        blob, width = packed.tobytes(), packed.shape[1]
        keys, prefix = rows.key.tolist(), ROW + sortable(window)
        values = [
            blob[place * width : (place + 1) * width] if stored else None
            for place, stored in enumerate(worth.tolist())
        ]
        step.rows.update(zip([prefix + key for key in keys], values, strict=True))
        for place in np.flatnonzero(worth & (rows.due != 0)).tolist():
            step.local[_due_key(sortable(window), int(rows.due[place])) + keys[place]] = b""

    def _packed(self, rows: Rows) -> NDArray[np.uint8]:
        packed = np.zeros(len(rows.key), self._layout)
        packed["due"], packed["cell"] = rows.due, rows.cell
        return packed.view(np.uint8).reshape(len(packed), self._layout.itemsize)


def derived(key: bytes, value: bytes | None) -> Changes:
    """Local index entries of a row that was stored or restored.

    An entry is only ever a hint: a row whose due trigger has moved on leaves a stale one
    behind, which is skipped when its trigger comes.
    """
    if key[:1] != ROW or value is None:
        return {}
    due = int.from_bytes(value[:4], "little", signed=True)
    return {} if due == 0 else {_due_key(key[1:_HEAD], due) + key[_HEAD:]: b""}


def due_keys(reader: Reader, window: int, due: int, begun: bytes | None, limit: int) -> list[bytes]:
    """Up to ``limit`` keys above ``begun`` that were said to be due, in canonical order."""
    prefix = _due_key(sortable(window), due)
    start = prefix if begun is None else prefix + begun + b"\0"
    found = []
    for key, _ in reader.scan(start, after(prefix)):
        found.append(key[len(prefix) :])
        if len(found) == limit:
            break
    return found


def due_entries(window: int, due: int, keys: Sequence[bytes]) -> Changes:
    """Deletions of index entries whose trigger has passed."""
    prefix = _due_key(sortable(window), due)
    return {prefix + key: None for key in keys}


def _due_key(window: bytes, due: int) -> bytes:
    return DUE + window + (due & 0xFFFFFFFF).to_bytes(4, "big")

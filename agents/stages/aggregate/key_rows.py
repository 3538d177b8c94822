"""Key rows of the aggregate stage: fixed-width cells and the local index of what is due."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ....mechanisms.columns import Rows
from ....mechanisms.contract import Mechanism
from ....mechanisms.keys import Keys
from ...state.layout import after, due_at, key_of, key_row, rows_of
from ...state.store import Changes, StateReader
from ..step import Step


class KeyRows:
    """Rows of one mechanism as bytes: due trigger, then the cell."""

    def __init__(self, mechanism: Mechanism) -> None:
        self._mechanism = mechanism
        self._layout = key_row(mechanism.row_dtype)

    def load(self, reader: StateReader, window: int, keys: Keys, first: bool = False) -> Rows:
        """Read k rows; those that are not stored are fresh, with nothing due.

        Args:
            keys: k of them, in canonical order.
            first: whether this is for the first release of the window, before which there are no
                rows: one look tells then that none is stored, in place of one for each key.
        """
        prefix, rows = rows_of(window), self._mechanism.init_rows(keys)
        if len(keys) == 0 or (first and _none_between(reader, prefix, keys)):
            return rows
        stored = reader.get_many([prefix + key for key in keys])
        known = np.flatnonzero(np.fromiter((v is not None for v in stored), bool, len(stored)))
        if not len(known):
            return rows
        packed = np.frombuffer(b"".join(v for v in stored if v is not None), self._layout)
        cell, due = rows.cell.copy(), rows.due.copy()
        cell[known] = packed["cell"]
        due[known] = packed["due"]
        return Rows(rows.key, cell, due)

    def store(self, window: int, rows: Rows, step: Step) -> None:
        """Put rows and their index entries into a step.

        Args:
            step: step to which rows and, as local changes, entries are added.
        """
        if len(rows.key) == 0:
            return
        packed = self._packed(rows)
        # A row that equals a fresh one is deleted: `load` makes the same row without it.
        worth = (packed != self._packed(self._mechanism.init_rows(rows.key))).any(axis=1)
        blob, width = packed.tobytes(), packed.shape[1]
        keys, prefix = rows.key.tolist(), rows_of(window)
        values = [
            blob[place * width : (place + 1) * width] if stored else None
            for place, stored in enumerate(worth.tolist())
        ]
        step.rows.update(zip([prefix + key for key in keys], values, strict=True))
        for place in np.flatnonzero(worth & (rows.due != 0)).tolist():
            step.local[due_at(window, int(rows.due[place])) + keys[place]] = b""

    def _packed(self, rows: Rows) -> NDArray[np.uint8]:
        packed = np.zeros(len(rows.key), self._layout)
        packed["due"], packed["cell"] = rows.due, rows.cell
        return packed.view(np.uint8).reshape(len(packed), self._layout.itemsize)


def _none_between(reader: StateReader, prefix: bytes, keys: Keys) -> bool:
    """Whether nothing is stored from the first to the last of these keys, which are in order."""
    return next(reader.scan(prefix + keys[0], prefix + keys[-1] + b"\0"), None) is None


def stored_keys(reader: StateReader, window: int, begun: bytes | None) -> Iterator[bytes]:
    """Yield keys above ``begun`` (None: all) with a row, in canonical order."""
    prefix = rows_of(window)
    start = prefix if begun is None else prefix + begun + b"\0"
    return (key_of(row) for row, _ in reader.scan(start, after(prefix)))


def due_keys(reader: StateReader, window: int, due: int, begun: bytes | None) -> Iterator[bytes]:
    """Yield keys in the index of a trigger, in canonical order.

    The index is a hint: the row of such a key may have become due at another trigger.

    Args:
        due: index of the trigger; -1 stands for every trigger.
        begun: a key; only those above it. None: all.
    """
    prefix = due_at(window, due)
    start = prefix if begun is None else prefix + begun + b"\0"
    return (key[len(prefix) :] for key, _ in reader.scan(start, after(prefix)))


def due_entries(window: int, due: int, keys: Sequence[bytes]) -> Changes:
    """Delete the index entries of ``keys`` at trigger ``due``, which has passed."""
    prefix = due_at(window, due)
    return {prefix + key: None for key in keys}

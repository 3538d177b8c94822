"""Restoring a table from its changelog: writes of its records, and log lines about progress."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from itertools import islice
from typing import Any

from ...state.layout import DUE, HEAD, NONCE, POSITION, below, unsortable
from ...state.restored import restored
from ...state.rocks import RocksStore
from ...state.store import Changes

log = logging.getLogger("hushstream.state")

SAID_SECONDS = 5.0  # between two lines about a restore
PART = 60_000  # records of a changelog that are written at once


class Restoring:
    """Logs the progress of a restore, in percent because exact numbers are raw data."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._began = self._told = time.monotonic()
        self._first: int | None = None

    def reached(self, position: int, end: int) -> None:
        """Take a position of the changelog and its end; log them every `SAID_SECONDS`."""
        first = self._first = position if self._first is None else self._first
        now = time.monotonic()
        if now - self._told < SAID_SECONDS and (position < end or self._told == self._began):
            return  # a short restore logs nothing
        self._told = now
        share = 100 * (position - first) // max(end - first, 1) if position < end else 100
        log.info("%s: restored %d %%, after %.0f s", self._name, share, now - self._began)


def apply(store: RocksStore, records: Sequence[Any], position: int) -> None:
    """Write records of a changelog, and the position after them."""
    # In parts, so that a table holds no more in memory than after a step.
    for begun in range(0, len(records), PART):
        part = records[begun : begun + PART]
        changes, units = restored(part, once=not store.gathers)
        # The position goes into one batch with the rows: otherwise a crash in between could make
        # the table skip a part of the changelog.
        ends = begun + PART >= len(records)
        changes[POSITION] = position_row(position if ends else int(part[-1].offset) + 1)
        store.write(changes, units)
        _drop_due(store, changes)


def _drop_due(store: RocksStore, changes: Changes) -> None:
    """Delete local index entries of windows that are over, as the shard itself did.

    It deletes the nonces of a window after all its key rows, and nonces only then.
    """
    names = (key for key, row in changes.items() if row is None and key[:1] == NONCE)
    over = max((unsortable(key[1:]) for key in names if len(key) == HEAD), default=None)
    if over is None:
        return
    while entries := [key for key, _ in islice(store.scan(*below(DUE, over + 1)), PART)]:
        store.write(dict.fromkeys(entries))


def position_row(offset: int) -> bytes:
    """Encode a table's position, with the time."""
    return json.dumps({"offset": offset, "time": time.time()}).encode()

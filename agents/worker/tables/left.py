"""Tables of partitions that are elsewhere: once they are too old to go on from, evidence stays.

A table that was left behind shows that a cluster was rewound (`evidence`). For that its progress
suffices, so digests of units and sums of past epochs leave the disk.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Collection
from pathlib import Path

from ....errors import EngineError
from ....topics.records import encode
from ...state.emptied import emptied
from ...state.layout import MARKER, PLAIN_POSITION, POSITION, SEEN
from ...state.rocks import read_rows
from .evidence import TOLD, Known, known_of, seen_row

log = logging.getLogger("hushstream.state")


class LeftTables:
    """The tables of a worker that no shard and no copy uses.

    Args:
        folder: folder of this genesis's tables; it need not exist.
        opening: lock held while shards and copies open.
        used: lists the folders of tables that are used.
    """

    def __init__(
        self, folder: Path, opening: asyncio.Lock, used: Callable[[], Collection[Path]]
    ) -> None:
        self._folder, self._opening, self._used = folder, opening, used

    async def empty(self) -> None:
        """Replace tables that are too old by their evidence."""
        for path in sorted(self._folder.glob("*/[0-9]*")):
            if path in self._used() or await asyncio.to_thread(_old, path) is None:
                continue
            async with self._opening:
                if path not in self._used():
                    await asyncio.to_thread(keep_evidence, path)


def keep_evidence(path: Path) -> None:
    """Reduce a table to its evidence, unless it could still be used or cannot be read."""
    try:
        if (known := _old(path)) is not None:
            place = json.dumps({"offset": known.position, "time": 0.0}).encode()
            seen = seen_row(place, encode(known.marker))
            assert seen is not None
            emptied(path, {SEEN: seen}, (POSITION, PLAIN_POSITION, MARKER))
    except EngineError as error:  # the next look tries again
        log.warning("%s-%s: its old table stays: %s", path.parent.name, path.name, error)


def _old(path: Path) -> Known | None:
    """Read the progress of a table that is too old; None for others, and where no more is left."""
    try:
        rows = read_rows(path, TOLD)
    except Exception:  # damaged, or an open shard is just making it
        return None
    known = known_of(*rows)
    whole = any(row is not None for row in rows[:-1])
    return known if known is not None and known.start is None and whole else None

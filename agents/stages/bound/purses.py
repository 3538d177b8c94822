"""Rows of capped units: a purse for many epochs, together with the rows of open epochs.

A unit of a capped pipeline has one row for a whole period, under the period's number in place of an
epoch's. So a cap needs no additional key or look-up. The row holds what is left in the purse, then
each epoch for which the unit has a row: four bytes of its number, four of its size, and the row
that the unit would have without a cap. The next write leaves out epochs that are over; the row is
deleted with its period.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ....errors import EngineError
from ....mechanisms.columns import I64, writeable
from ....mechanisms.keys import Keys
from ....mechanisms.parts.bounds.lifetime import Cap

HEAD = 8  # bytes of number and size before the row of an epoch
_NUMBERS = 1 << 32  # distinct epoch numbers: they are stored modulo this


class Opened(NamedTuple):
    """Rows of u units, taken apart."""

    purse: I64  # (u,) what is left in the purse
    mine: Keys  # (u,) rows of one epoch; an empty row stands for none
    others: Keys  # (u,) all other epochs, with their heads


class PurseCodec:
    """Purses and rows of epochs as bytes."""

    def __init__(self, cap: Cap) -> None:
        self._most = cap.most
        self._head = 2 if cap.most < 1 << 16 else 4 if cap.most < 1 << 32 else 8

    def take(self, rows: Keys, epoch: int, floor: int | None) -> Opened:
        """Take rows apart.

        Args:
            rows: stored rows; an empty row stands for a new unit, whose purse is full.
            floor: epoch below which all epochs are over and left out; None: unknown.

        Raises:
            EngineError: a row has an impossible length.
        """
        from .unit_scan import split

        u, size = len(rows), int(rows.offsets[-1] - rows.offsets[0])
        purse, ends, rest = (
            np.empty(u, np.int64),
            np.empty(u + 1, np.int64),
            np.empty(u + 1, np.int64),
        )
        mine, others = np.empty(size, np.uint8), np.empty(size, np.uint8)
        whole = split(
            writeable(rows.data), rows.offsets, self._head, self._most, epoch % _NUMBERS,
            -1 if floor is None else floor % _NUMBERS, purse, mine, ends, others, rest,
        )  # fmt: skip
        if not whole:
            raise EngineError("a unit's stored row is damaged: it was cut or lengthened")
        return Opened(purse, Keys(mine, ends), Keys(others, rest))

    def put(self, opened: Opened, epoch: int, blank: bytes) -> Keys:
        """Put rows together again.

        Args:
            opened: contents of the purses; ``mine`` has a row for each unit.
            epoch: epoch of ``mine``.
            blank: row of an epoch without contributions; it is left out.
        """
        from .unit_scan import joined

        u = len(opened.purse)
        mine, others = opened.mine, opened.others
        out = np.empty(len(mine.data) + len(others.data) + u * (self._head + HEAD), np.uint8)
        ends = np.empty(u + 1, np.int64)
        size = joined(
            writeable(opened.purse), self._head, epoch % _NUMBERS,
            np.frombuffer(blank, np.uint8).copy(),
            writeable(mine.data), mine.offsets, writeable(others.data), others.offsets, out, ends,
        )  # fmt: skip
        return Keys(out[:size], ends)

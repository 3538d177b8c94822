"""Rows of a histogram: found by key, taken apart from the shared row, put together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ...errors import ContractError
from ..columns import Closed, Rows
from ..keys import Keys, concat
from .debias import SHARED


def rows_of(among: Keys, wanted: Keys) -> NDArray[np.intp]:
    """(len(wanted),) row of each wanted key in ``among``, whose keys are distinct.

    Raises:
        ContractError: a key is missing.
    """
    if wanted is among:
        return np.arange(len(among))
    distinct, row = concat([among, wanted]).unique()
    if len(distinct) != len(among):
        raise ContractError("a release lacks rows of keys that have data")
    place = np.empty(len(among), np.intp)
    place[row[: len(among)]] = np.arange(len(among))
    return place[row[len(among) :]]


def split_shared(closed: Closed, init: Callable[[Keys], Rows]) -> tuple[Closed, Rows]:
    """The other rows, and the shared row (a copy), made now if it was never stored."""
    rows = closed.rows
    if not (len(rows.key) and rows.key[0] == b""):
        return closed, init(SHARED)._replace(due=np.full(1, -1, np.int32))
    rest = Rows(rows.key[1:], rows.cell[1:], rows.due[1:])
    return closed._replace(rows=rest), Rows(SHARED, rows.cell[:1].copy(), rows.due[:1])

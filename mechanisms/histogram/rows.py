"""Rows of a histogram: found by key, taken apart from the shared row, added to their noise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ...errors import ContractError
from ..columns import F64, I64, Closed, Rows
from ..factorization.prefix_noise import STEPS
from ..keys import Keys, concat
from .debias import SHARED

_FINE = 1 << 54  # below, a number in 1/STEPS fits into 63 bits


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


def in_steps(exact: I64, noise: I64) -> I64 | F64:
    """``exact`` and noise in 1/STEPS; as the nearest doubles where integers would not hold it.

    ``exact`` is known modulo 2^64, so noise is added to it before anything is asked of its size.
    """
    whole, rest = exact + noise // STEPS, noise % STEPS
    large = (whole <= -_FINE) | (whole >= _FINE)
    if not large.any():
        return whole * STEPS + rest
    out = np.where(large, 0, whole * STEPS + rest).astype(np.float64)
    pairs = zip(whole[large].tolist(), rest[large].tolist(), strict=True)
    out[large] = [float(one * STEPS + part) for one, part in pairs]
    return out

"""Decoded records: typed columns, and the rows of them that each pipeline uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...mechanisms.columns import I64
from ...mechanisms.keys import Keys
from .reasons import Bad

MAX_UNIT = 4096  # bytes of one encoded unit


class View(NamedTuple):
    """The rows of the decoded records that one pipeline uses, in log order."""

    rows: NDArray[np.intp]  # (n,) rows of the record list
    keys: Keys  # (k,) distinct
    key: NDArray[np.intp]  # (n,)
    value: I64  # (n, c)
    sign: NDArray[np.int8]  # (n,)
    bad: Bad  # rows that this pipeline cannot use


class Decoded(NamedTuple):
    """All records of a list; ``bad`` rows are absent from every view."""

    time: I64  # (N,) microseconds; undefined in bad rows
    unit: Sequence[Any]  # (N,) hashable unit values; None in bad rows
    views: tuple[View, ...]
    bad: Bad

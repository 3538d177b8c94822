"""Exact answers for one window, with which a simulation compares the releases.

Nothing here is private. Answers ignore the contribution bound, so the comparison shows what the
bound cut off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .columns import I64
from .keys import Keys


class WindowRecords(NamedTuple):
    """The n records of a window in the form of a batch, before any bound."""

    keys: Keys  # (k,) distinct
    key: NDArray[np.intp]  # (n,) row of keys
    value: I64  # (n, c)
    sign: NDArray[np.int8]  # (n,) +1, or -1 for a deletion
    unit: I64  # (n,) number of each record's unit


class Truth(NamedTuple):
    """Exact answers for one window."""

    records: int  # number of its records
    # key as it is released -> number of records (of units, where units count)
    held: Mapping[bytes, int]
    # name of a value -> key -> exact answer; NaN where there is none
    values: Mapping[str, Mapping[bytes, float]]
    every: bool = False  # whether ``held`` has all keys instead of only released ones

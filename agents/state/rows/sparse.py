"""Rows of keys whose numbers are mostly 0, as bytes.

A packed row is its due trigger (int32, little-endian), then its numbers up to the last non-zero
one. A non-zero number is a varint (seven bits a byte, lowest first, the highest bit set in all
bytes but the last) of 2v for v > 0 and of -2v - 1 for v < 0. A run of zeros before it is a byte 0
and the varint of its length. So each row has exactly one packing, also on a restore or in a replay.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ....errors import EngineError
from ....mechanisms.columns import I64, writeable
from ....mechanisms.keys import Keys


def pack(due: NDArray[np.int32], numbers: I64) -> Keys:
    """Pack n rows of w numbers, given as (n,) and (n, w), into a column of n byte strings."""
    from . import sparse_scan

    numbers, ends = writeable(numbers), np.empty(len(numbers) + 1, np.int64)
    sparse_scan.sizes(numbers, ends)
    out = np.empty(int(ends[-1]), np.uint8)
    sparse_scan.pack(writeable(due), numbers, ends, out)
    return Keys(out, ends)


def unpack(rows: Keys, width: int) -> tuple[NDArray[np.int32], I64]:
    """Read n packed rows of ``width`` numbers: (n,) due triggers and (n, width) numbers.

    Raises:
        EngineError: a row is not a packing by `pack`.
    """
    from . import sparse_scan

    due, numbers = np.empty(len(rows), np.int32), np.zeros((len(rows), width), np.int64)
    if sparse_scan.unpack(writeable(rows.data), rows.offsets, due, numbers) < len(rows):
        raise EngineError("the stored row of a key is damaged: delete the data folder and restart")
    return due, numbers

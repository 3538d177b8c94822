"""Rows of keys of which most numbers are 0, as bytes.

A packed row is its due trigger (int32, little-endian), then its numbers up to the last that is not
0. A number other than 0 is a varint: seven bits a byte, the lowest first, the highest bit of all
bytes but the last set; of 2v for v > 0, of -2v - 1 for v < 0. Zeros before it are a byte 0 and the
varint of how many. So a row has one packing alone, whoever packs it: on a restore, in a replay.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ....compiled import writeable
from ....errors import EngineError
from ....mechanisms.columns import I64
from ....mechanisms.keys import Keys


def pack(due: NDArray[np.int32], numbers: I64) -> Keys:
    """Pack n rows of w numbers each, (n,) and (n, w); a column of n byte strings."""
    from . import sparse_scan

    numbers, ends = writeable(numbers), np.empty(len(numbers) + 1, np.int64)
    sparse_scan.sizes(numbers, ends)
    out = np.empty(int(ends[-1]), np.uint8)
    sparse_scan.pack(writeable(due), numbers, ends, out)
    return Keys(out, ends)


def unpack(rows: Keys, width: int) -> tuple[NDArray[np.int32], I64]:
    """Read n packed rows of ``width`` numbers: (n,) due triggers and (n, width) numbers.

    Raises:
        EngineError: a row is not packed as `pack` does it.
    """
    from . import sparse_scan

    due, numbers = np.empty(len(rows), np.int32), np.zeros((len(rows), width), np.int64)
    if sparse_scan.unpack(writeable(rows.data), rows.offsets, due, numbers) < len(rows):
        raise EngineError("the stored row of a key is damaged: delete the data folder and restart")
    return due, numbers

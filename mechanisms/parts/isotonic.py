"""Isotonic regression: the nearest non-decreasing function, by pooling adjacent values."""

from __future__ import annotations

import numpy as np

from ...compiled import compiled
from ..columns import F64


@compiled
def pooled(values: F64, out: F64) -> None:
    """Write the isotonic regression of each row of ``values``, (r, e), into ``out``.

    Wherever a value lies below the previous one, both are replaced by their mean, from left to
    right (Ayer et al. 1955). A mean is a sum over a number, so no product is fused with a sum.
    """
    rows, size = values.shape
    total, many = np.empty(size), np.empty(size, np.int64)
    for row in range(rows):
        last = -1
        for place in range(size):
            last += 1
            total[last], many[last] = values[row, place], 1
            while last > 0 and total[last - 1] / many[last - 1] > total[last] / many[last]:
                total[last - 1] += total[last]
                many[last - 1] += many[last]
                last -= 1
        place = 0
        for block in range(last + 1):
            for _ in range(many[block]):
                out[row, place] = total[block] / many[block]
                place += 1

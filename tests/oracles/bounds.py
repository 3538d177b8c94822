"""A contribution bound by its definition, one record at a time."""

from __future__ import annotations

import numpy as np
from hushstream.mechanisms.columns import Batch, Units
from hushstream.mechanisms.parts.bounds.bounding import Accepted, Bound
from numpy.typing import NDArray


def taken(
    bound: Bound, units: Units, batch: Batch, lane: NDArray[np.intp], hashed: NDArray[np.uint64]
) -> Accepted:
    """Take records in order; ``hashed`` (k,) are the hashes of the keys."""
    lanes, left = units.used.shape[1], units.left.tolist()
    used: list[dict[int, list[int]]] = [{} for _ in left]
    for unit, mine in enumerate(used):
        for place in range(units.start[unit], units.start[unit + 1]):
            mine[int(units.pair[place])] = units.used[place].tolist()
    accepted = []
    for unit, key in zip(batch.unit.tolist(), batch.key.tolist(), strict=True):
        pair, at = int(hashed[key]), int(lane[key])
        counts = used[unit].get(pair, [0] * lanes)
        if bound.kind == "quadratic":
            price = bound.weights[at] * (2 * counts[at] + 1)
            fine = price <= left[unit] and not (bound.caps and counts[at] >= bound.caps[at])
        else:
            price = 1
            fine = price <= left[unit] and sum(counts) < bound.per_key
        accepted.append(fine)
        if fine:
            counts[at] += 1
            left[unit] -= price
            used[unit][pair] = counts
    kept = [sorted((pair, c) for pair, c in mine.items() if any(c)) for mine in used]
    rows = [row for mine in kept for row in mine]
    return Accepted(
        Units(
            np.array(left, np.int64),
            np.cumsum([0, *map(len, kept)]),
            np.array([pair for pair, _ in rows], np.uint32),
            np.array([counts for _, counts in rows], np.uint16).reshape(-1, lanes),
        ),
        np.array(accepted, np.bool_),
    )

"""Home partitions of keys and units: hashes that are the same on every worker and in a replay."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...mechanisms.columns import pair_hash
from ...mechanisms.keys import Keys


def route(keys: Keys, partitions: int) -> NDArray[np.intp]:
    """(k,) cells partitions of k keys: a stable public hash."""
    return (pair_hash(keys, 0) % np.uint32(partitions)).astype(np.intp)


def route_units(digests: NDArray[np.uint8], partitions: int) -> NDArray[np.intp]:
    """(n,) units partitions of (n, 16) uniform keyed digests, whose first four bytes decide."""
    head = np.ascontiguousarray(digests[:, :4]).view(">u4").reshape(-1)
    return (head % np.uint32(partitions)).astype(np.intp)

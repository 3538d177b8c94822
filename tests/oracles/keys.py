"""The order of keys, and the way from a node to its ancestors, each step by step."""

from __future__ import annotations

import numpy as np
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.spatial.domain import Domain
from numpy.typing import NDArray


def is_canonical(keys: Keys) -> bool:
    """Whether keys are distinct and in canonical order, that of Python's bytes."""
    listed = keys.tolist()
    return listed == sorted(set(listed))


def ancestor(domain: Domain, codes: NDArray[np.uint64], level: int) -> NDArray[np.uint64]:
    """(m,) the ancestor (or the node itself) at depth ``level`` of each node at that or below."""
    codes = codes.copy()
    while (below := domain.level(codes) > level).any():
        codes[below] = domain.parents(codes[below])
    return codes

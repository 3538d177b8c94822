"""The order of keys, and the ancestors of nodes, computed step by step."""

from __future__ import annotations

import numpy as np
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.spatial.domain import Domain
from numpy.typing import NDArray


def is_canonical(keys: Keys) -> bool:
    """Whether keys are distinct and in canonical order, which is that of Python's bytes."""
    listed = keys.tolist()
    return listed == sorted(set(listed))


def ancestor(domain: Domain, codes: NDArray[np.uint64], level: int) -> NDArray[np.uint64]:
    """(m,) ancestors at depth ``level`` of nodes that are at this depth or below."""
    codes = codes.copy()
    while (below := domain.level(codes) > level).any():
        codes[below] = domain.parents(codes[below])
    return codes

"""Synthetic points from a released tree: a pure function of public figures.

The bits come from SHAKE-256 of the released leaves and a public seed, so repeated sampling costs no
privacy, and the same release gives the same points everywhere.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...errors import ContractError
from ..columns import F64, I64
from ..validate import at_least
from .domain import U64, Domain, bit_level
from .pieces import pieces
from .synthetic import Bits, columns, spread


def left_to_right(codes: U64) -> NDArray[np.intp]:
    """The order of leaves of any levels along the curve."""
    levels = bit_level(codes)
    deepest = int(levels.max(initial=0))
    return np.argsort(codes << (deepest - levels).astype(np.uint64), kind="stable")


def pick(counts: I64, draws: I64) -> NDArray[np.intp]:
    """Leaf of each draw in 0 … N-1, for counts from left to right.

    The descent "go left if u < count of the left child, else subtract that count" ends in the
    leaf whose cumulated counts enclose u, so one binary search replaces it.

    >>> pick(np.array([2, 0, 3]), np.array([0, 1, 2, 4])).tolist()
    [0, 0, 2, 2]
    """
    return np.searchsorted(np.cumsum(counts), draws, side="right")


def sample(domain: Domain, codes: U64, counts: I64, n: int, seed: int = 0) -> dict[str, F64]:
    """n independent points of the distribution that a released tree describes.

    A leaf is chosen with probability proportional to its count, then a point uniformly in the part
    of it inside the domain's polygons or listed cells. A tree without records gives uniform points
    in the domain.

    Args:
        domain: public geometry.
        codes, counts: the released leaves (any order), counts ≥ 0.
        n: number of points.
        seed: another seed gives other points of the same distribution.

    Returns:
        Columns of the domain's axes, (n,) each, in the axes' units.

    Raises:
        ContractError: a count is negative or there are no leaves.
        ParameterError: n or seed is negative.
    """
    at_least("n", n, 0)
    if not len(codes) or int(counts.min()) < 0:
        raise ContractError("sampling needs leaves with counts of at least 0")
    order = left_to_right(codes)
    codes, counts = codes[order], counts[order]
    inside = np.bincount(pieces(domain, codes).cell, minlength=len(codes)) > 0
    counts = np.where(inside, counts, 0)
    if not counts.any():
        codes, counts = np.ones(1, np.uint64), np.ones(1, np.int64)
    width = 2 + domain.dimensions
    uniform = Bits(b"privhp points 2", codes, counts, seed).uniform(0, n * width)
    uniform = uniform.reshape(n, width)
    total = int(counts.sum())
    draws = np.minimum((uniform[:, 0] * total).astype(np.int64), total - 1)
    return columns(domain, spread(domain, codes, pick(counts, draws), uniform[:, 1:]))

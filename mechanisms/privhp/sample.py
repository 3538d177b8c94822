"""Synthetic points from a released tree: a pure function of what is public.

The bits come from SHAKE-256 of the released leaves and a public seed, so sampling costs no
privacy however often it is repeated, and the same release gives the same points everywhere.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from ...errors import ContractError
from ..contract import F64, I64
from ..parts.sketch import U64
from ..spatial.domain import Domain, bit_level
from ..validate import at_least


def left_to_right(codes: U64) -> NDArray[np.intp]:
    """The order of leaves along the curve, whatever their levels."""
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

    A leaf is chosen with probability proportional to its count, then a point uniformly in it. A
    tree without any record gives points uniform in the domain.

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
    if int(counts.sum()) == 0:
        codes, counts = np.ones(1, np.uint64), np.ones(1, np.int64)
    uniform = _uniform(codes, counts, seed, n, 1 + domain.dimensions)
    total = int(counts.sum())
    draws = np.minimum((uniform[:, 0] * total).astype(np.int64), total - 1)
    used, row = np.unique(pick(counts, draws), return_inverse=True)
    low, high = domain.fractions(codes[used])
    return _columns(domain, low[row] + uniform[:, 1:] * (high - low)[row])


def _uniform(codes: U64, counts: I64, seed: int, n: int, width: int) -> F64:
    """(n, width) multiples of 2^-53 in [0, 1)."""
    state = hashlib.shake_256(b"hushstream privhp points 1")
    state.update(at_least("seed", seed, 0).to_bytes(16))
    state.update(codes.astype("<u8").tobytes())
    state.update(counts.astype("<i8").tobytes())
    words = np.frombuffer(state.digest(8 * n * width), "<u8").reshape(n, width)
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _columns(domain: Domain, fractions: F64) -> dict[str, F64]:
    points = domain.scale(fractions)
    return {
        axis.name: np.minimum(np.floor(points[:, i]), axis.high)
        if axis.kind == "integer"
        else points[:, i]
        for i, axis in enumerate(domain.axes)
    }

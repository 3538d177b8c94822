"""Synthetic points and range counts from a released tree: functions of what is public.

Whatever is computed from released leaves costs no privacy, however often. The bits for sampling
come from SHAKE-256 of the released leaves and a public seed: the same release gives the same
points everywhere, and no raw record can have a say.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from ...errors import ContractError
from ..contract import F64, I64
from ..validate import at_least
from .domain import U64, Domain

_TRIES = 64  # points per record that a public polygon may reject before its cell's last try stays
_PAIRS = 1 << 22  # overlaps computed at a time


class _Bits:
    """Uniform numbers from a released state."""

    def __init__(self, codes: U64, counts: I64, seed: int) -> None:
        self._state = hashlib.shake_256(b"hushstream synthetic points 1")
        self._state.update(at_least("seed", seed, 0).to_bytes(16))
        self._state.update(codes.astype("<u8").tobytes())
        self._state.update(counts.astype("<i8").tobytes())

    def uniform(self, purpose: int, n: int) -> F64:
        """(n,) multiples of 2^-53 in [0, 1); another purpose, other numbers."""
        state = self._state.copy()
        state.update(purpose.to_bytes(8))
        words = np.frombuffer(state.digest(8 * n), "<u8")
        return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def rounded(counts: I64, grid: int, uniform: F64) -> I64:
    """(m,) whole numbers with mean ``counts / grid``, each within one of it; negatives are 0.

    Rounding up everywhere would add half a record per leaf.

    >>> rounded(np.array([8, 10, -4]), 4, np.array([0.9, 0.4, 0.0])).tolist()
    [2, 3, 0]
    """
    whole, rest = np.divmod(np.maximum(counts, 0), grid)
    more: I64 = whole + (uniform * grid < rest)
    return more


def scatter(
    domain: Domain, codes: U64, counts: I64, grid: int = 1, seed: int = 0
) -> dict[str, F64]:
    """One synthetic data set: as many points per released leaf as its count, uniform inside.

    Args:
        domain: public geometry; with a polygon, points outside it are drawn again.
        codes, counts: (m,) released leaves and their counts in steps of ``1/grid``.
        grid: steps per record; counts are rounded at random, without bias.
        seed: another seed gives another data set of the same distribution.

    Returns:
        Columns of the domain's axes, in leaf order, in the axes' units.

    Raises:
        ContractError: codes and counts differ in length.
        ParameterError: grid < 1 or seed < 0.
    """
    if len(codes) != len(counts):
        raise ContractError("every leaf needs one count")
    bits = _Bits(codes, counts, seed)
    each = rounded(counts, at_least("grid", grid, 1), bits.uniform(0, len(codes)))
    leaf = np.repeat(np.arange(len(codes)), each)
    low, high = domain.fractions(codes)
    points = np.empty((len(leaf), domain.dimensions))
    open_ = np.arange(len(leaf))
    for attempt in range(1, _TRIES if domain.polygon else 2):
        uniform = bits.uniform(attempt, len(open_) * domain.dimensions)
        place = uniform.reshape(len(open_), domain.dimensions)
        row = leaf[open_]
        points[open_] = low[row] + place * (high - low)[row]
        open_ = open_[~_inside(domain, points[open_])]
        if not len(open_):
            break
    return columns(domain, points)


def _inside(domain: Domain, fractions: F64) -> NDArray[np.bool_]:
    if not domain.polygon:
        return np.ones(len(fractions), bool)
    return domain.in_polygon(domain.scale(fractions))


def columns(domain: Domain, fractions: F64) -> dict[str, F64]:
    """Columns of the axes from (n, d) points of [0, 1]^d; integer axes get whole numbers."""
    points = domain.scale(fractions)
    out = {}
    for i, axis in enumerate(domain.axes):
        whole = axis.kind == "integer"
        out[axis.name] = np.minimum(np.floor(points[:, i]), axis.high) if whole else points[:, i]
    return out


def range_counts(domain: Domain, codes: U64, counts: I64 | F64, low: F64, high: F64) -> F64:
    """Estimated records in (q, d) boxes ``low ≤ x < high``, in the axes' units.

    A leaf that a box cuts counts by the share of its volume.

    Args:
        domain: public geometry.
        codes, counts: (m,) released leaves and their counts, in any unit.
        low, high: corners of the boxes.

    Returns:
        (q,) estimates in the unit of ``counts``.

    >>> domain = Domain.unit(1, 1)
    >>> leaves, counts = np.array([2, 3], np.uint64), np.array([10, 30])
    >>> range_counts(domain, leaves, counts, np.array([[0.25]]), np.array([[1.0]])).tolist()
    [35.0]
    """
    start, end = domain.boxes(codes)
    weight = np.asarray(counts, np.float64)
    out = np.empty(len(low))
    step = max(1, _PAIRS // max(len(codes), 1))
    for begin in range(0, len(low), step):
        part = slice(begin, begin + step)
        share = np.ones((len(low[part]), len(codes)))
        for axis in range(domain.dimensions):
            top = np.minimum(high[part, axis, None], end[:, axis])
            bottom = np.maximum(low[part, axis, None], start[:, axis])
            share *= np.maximum(top - bottom, 0) / (end[:, axis] - start[:, axis])
        out[part] = share @ weight
    return out

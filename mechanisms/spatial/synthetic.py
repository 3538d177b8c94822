"""Synthetic points and range counts from a released tree: functions of public data.

Computing from released leaves costs no privacy, however often it is repeated. The bits for sampling
come from SHAKE-256 of the released leaves and a public seed, so the same release gives the same
points everywhere, and raw records have no influence.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from ...errors import ContractError
from ..columns import F64, I64
from ..validate import at_least
from .domain import U64, Domain
from .pieces import pieces

_PAIRS = 1 << 22  # overlaps computed at a time


class Bits:
    """Uniform numbers from a released state and a public seed; ``purpose`` separates uses."""

    def __init__(self, purpose: bytes, codes: U64, counts: I64, seed: int) -> None:
        self._state = hashlib.shake_256(b"hushstream " + purpose)
        self._state.update(at_least("seed", seed, 0).to_bytes(16))
        self._state.update(codes.astype("<u8").tobytes())
        self._state.update(counts.astype("<i8").tobytes())

    def uniform(self, purpose: int, n: int) -> F64:
        """(n,) multiples of 2^-53 in [0, 1), different for each purpose."""
        state = self._state.copy()
        state.update(purpose.to_bytes(8))
        words = np.frombuffer(state.digest(8 * n), "<u8")
        return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def rounded(counts: I64, grid: int, uniform: F64) -> I64:
    """(m,) integers with mean ``counts / grid``, each within 1 of it; negatives become 0.

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
    """One synthetic data set: per released leaf, as many points as its count, uniform inside.

    Points lie in the domain's polygons or listed cells, if there are any: a leaf that reaches
    beyond them has its points in the part inside. A leaf without such a part has none.

    Args:
        domain: public geometry.
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
    bits = Bits(b"synthetic points 2", codes, counts, seed)
    each = rounded(counts, at_least("grid", grid, 1), bits.uniform(0, len(codes)))
    leaf = np.repeat(np.arange(len(codes)), each)
    width = 1 + domain.dimensions
    uniform = bits.uniform(1, len(leaf) * width).reshape(len(leaf), width)
    return columns(domain, spread(domain, codes, leaf, uniform))


def spread(domain: Domain, codes: U64, leaf: NDArray[np.intp], uniform: F64) -> F64:
    """(n', d) points, uniform in the part of their leaf in the region, if there is such a part.

    Args:
        codes: (m,) released leaves.
        leaf: (n,) row of each point's leaf, in any order.
        uniform: (n, 1 + d) numbers in [0, 1).
    """
    used, row = np.unique(leaf, return_inverse=True)
    parts = pieces(domain, codes[used])
    some = np.zeros(len(used), bool)
    some[parts.cell] = True
    if not some.all():
        row, uniform = row[some[row]], uniform[some[row]]
    before = np.concatenate([np.zeros(1), np.cumsum(parts.volume)])
    first = np.searchsorted(parts.cell, np.arange(len(used)))
    last = np.searchsorted(parts.cell, np.arange(len(used)), side="right")
    target = before[first][row] + uniform[:, 0] * (before[last] - before[first])[row]
    chosen = np.searchsorted(before, target, side="right") - 1
    chosen = np.clip(chosen, first[row], last[row] - 1)  # rounding may leave the leaf by one
    return parts.take(chosen).points(uniform[:, 1:])


def columns(domain: Domain, points: F64) -> dict[str, F64]:
    """Columns of the axes from (n, d) points in their units; integer axes get whole numbers."""
    out = {}
    for i, axis in enumerate(domain.axes):
        whole = axis.kind == "integer"
        out[axis.name] = np.minimum(np.floor(points[:, i]), axis.high) if whole else points[:, i]
    return out


def range_counts(domain: Domain, codes: U64, counts: I64 | F64, low: F64, high: F64) -> F64:
    """(q,) estimated records in (q, d) boxes ``low ≤ x < high``, in the axes' units.

    A leaf that a box cuts counts by the share of its volume. If the domain has polygons or listed
    cells, only the part inside them has volume, since no record can lie outside.

    Args:
        domain: public geometry.
        codes, counts: (m,) released leaves and their counts, in any unit.

    >>> domain = Domain.unit(1, 1)
    >>> leaves, counts = np.array([2, 3], np.uint64), np.array([10, 30])
    >>> range_counts(domain, leaves, counts, np.array([[0.25]]), np.array([[1.0]])).tolist()
    [35.0]
    """
    weight = np.asarray(counts, np.float64)
    if domain.rings or domain.cells:
        return _region_counts(domain, codes, weight, low, high)
    start, end = domain.boxes(codes)
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


def _region_counts(domain: Domain, codes: U64, weight: F64, low: F64, high: F64) -> F64:
    whole = pieces(domain, codes)
    volume = np.bincount(whole.cell, whole.volume, len(codes))
    each = np.divide(weight, volume, out=np.zeros(len(codes)), where=volume > 0)
    out = np.empty(len(low))
    for query in range(len(low)):
        part = pieces(domain, codes, low[query], high[query])
        out[query] = part.volume @ each[part.cell]
    return out

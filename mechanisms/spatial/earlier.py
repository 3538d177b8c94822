"""The shares of an earlier map inside the leaves of a newer one, as far as the two agree.

A window begins with few records, so its first maps have large leaves, and nothing shows where
inside a leaf its records lie. The last map of the previous window has finer leaves. If the stream
has not changed, its proportions still hold; if it has, they mislead. Released numbers show which:
wherever the newer map divides a cell, both maps give shares. So the newer shares are regressed on
the older ones, by weighted least squares at every level of the tree: a child's share is taken as
``1/m + b·(w - 1/m)``, where w is its share in the earlier map and m the number of children. The
*agreement* b is 1 where the maps divide cells alike and 0 where they have nothing in common. Levels
that the newer map does not reach have the agreement of the level above.

As far as the maps disagree, a leaf is divided evenly, or like a smooth map of the same counts.
Counts of leaves are unchanged; only the uncounted detail within them is divided. The function reads
two releases and the public domain alone: post-processing, at no cost, for releases of any window,
epoch or charge.

If a map has changed only below the cells that the newer one shows, the earlier shares are wrong,
and no released number reveals it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import ContractError
from ..columns import F64, I64
from .domain import U64, Bool, Domain

START = 0.5
"""Agreement of a level without data."""

WEIGHT = 4.0
"""Weight of the level above, in squared signals of one standard deviation."""

LEAST = 1.0
"""Records below which a leaf is not divided."""

EVEN = 0.02
"""Part of every share that is equal for all children, so that no cell is ever ruled out."""


class LeafCounts(NamedTuple):
    """Released leaves of one map, which partition the domain's region."""

    code: U64  # (m,)
    held: F64  # (m,) records, at least 0


class _Level(NamedTuple):
    """The nodes of a tree at one depth, in code order, in whole families."""

    code: U64  # (m,)
    held: F64  # (m,)
    family: NDArray[np.intp]  # (m,) number of the parent
    total: F64  # (families,) records of the parent


class Agreement(NamedTuple):
    """Agreement of two maps: b for each depth from 1 on, in [0, 1]."""

    slope: tuple[float, ...]

    def at(self, depth: int) -> float:
        """The agreement of the children at a depth, or below it that of the deepest known level."""
        return self.slope[min(depth, len(self.slope)) - 1] if self.slope else START


class Mass:
    """Records of an earlier map in any node of the public hierarchy."""

    def __init__(self, domain: Domain, earlier: LeafCounts) -> None:
        self._domain = domain
        start, end = _span(domain, earlier.code)
        order = np.argsort(start)
        self._start, self._end = start[order], end[order]
        self._upto = np.concatenate([np.zeros(1), np.cumsum(earlier.held[order])])
        self._level = domain.level(earlier.code[order])

    def of(self, codes: U64) -> F64:
        """(m,) records; a node inside a leaf has a share by volume."""
        start, end = _span(self._domain, codes)
        first, last = (np.searchsorted(self._start, one) for one in (start, end))
        whole = self._upto[last] - self._upto[first]
        row, inside = self._holder(start, end)
        each = self._upto[row + 1] - self._upto[row]
        deeper = self._domain.level(codes) - self._level[row]
        part = each * 2.0 ** (-self._domain.step * np.maximum(deeper, 0))
        found: F64 = np.where(inside, part, whole)
        return found

    def finer(self, codes: U64) -> Bool:
        """(m,) whether the earlier map divides a node."""
        start, end = _span(self._domain, codes)
        _, inside = self._holder(start, end)
        first, last = (np.searchsorted(self._start, one) for one in (start, end))
        return ~inside & (last - first > 1)

    def _holder(self, start: I64, end: I64) -> tuple[NDArray[np.intp], Bool]:
        """The last leaf that begins at or before each node, and whether it contains the node."""
        row = np.maximum(np.searchsorted(self._start, start, side="right") - 1, 0)
        return row, (self._start[row] <= start) & (self._end[row] >= end)


def divided(
    domain: Domain,
    newer: LeafCounts,
    earlier: LeafCounts,
    variance: float,
    otherwise: LeafCounts | None = None,
) -> tuple[U64, F64]:
    """The leaves of a map, divided like an earlier map as far as the two agree.

    Args:
        domain: public geometry of both maps.
        newer: leaves of the newer map, whose counts are unchanged.
        earlier: leaves of the earlier map.
        variance: noise variance of a leaf of ``newer``, in squared records.
        otherwise: finer leaves (such as those of `smooth.smoothed`) by which to divide as far as
            the maps disagree; None = evenly.

    Returns:
        Finer codes in code order, and counts that add up to those of ``newer``.

    Raises:
        ContractError: a map has no leaf, or codes and counts differ in length.
    """
    for one in (newer, earlier, newer if otherwise is None else otherwise):
        if not len(one.code) or len(one.code) != len(one.held):
            raise ContractError("a map needs leaves, and every leaf one count")
    mass, agreed = Mass(domain, earlier), agreement(domain, newer, earlier, variance)
    other = None if otherwise is None else Mass(domain, otherwise)
    level = domain.level(newer.code)
    code, count = np.empty(0, np.uint64), np.empty(0)
    done: list[LeafCounts] = []
    for depth in range(domain.depth + 1):
        mine = level == depth
        code = np.concatenate([code, newer.code[mine]])
        count = np.concatenate([count, newer.held[mine]])
        goes = mass.finer(code) | (other is not None and other.finer(code))
        goes &= (count > LEAST) & (depth < domain.depth)
        done.append(LeafCounts(code[~goes], count[~goes]))
        children, family = _children(domain, code[goes])
        part = _shares(mass.of(children), family)
        even = _even(family) if other is None else _shares(other.of(children), family)
        share = even + agreed.at(depth + 1) * (part - even)
        code, count = children, count[goes][family] * share
    codes, counts = (np.concatenate(column) for column in zip(*done, strict=True))
    order = np.argsort(codes)
    return codes[order], counts[order]


def agreement(domain: Domain, newer: LeafCounts, earlier: LeafCounts, variance: float) -> Agreement:
    """Measure by level how much of the newer map's shares the earlier shares explain."""
    mass, slope, last = Mass(domain, earlier), [], START
    for level in _levels(domain, newer):
        even = _even(level.family)
        held = np.maximum(level.total, 0)[level.family]
        share = _shares(mass.of(level.code), level.family)
        signal, seen = held * (share - even), level.held - held * even
        weight = 1 / np.maximum(variance + held * even, 1e-9)
        explained = float((signal * seen * weight).sum()) + WEIGHT * last
        last = min(max(explained / (float((signal**2 * weight).sum()) + WEIGHT), 0.0), 1.0)
        slope.append(last)
    return Agreement(tuple(slope))


def _children(domain: Domain, code: U64) -> tuple[U64, NDArray[np.intp]]:
    """The children of some nodes that meet the region, at least one each, and their families."""
    table = domain.children(code)
    inside = domain.touches(table.reshape(-1)).reshape(table.shape)
    inside |= ~inside.any(axis=1, keepdims=True)
    return table[inside], np.nonzero(inside)[0]


def _even(family: NDArray[np.intp]) -> F64:
    """(m,) equal shares for all children of a family."""
    even: F64 = 1 / np.bincount(family)[family]
    return even


def _shares(mass: F64, family: NDArray[np.intp]) -> F64:
    """(m,) share of each child in its family, a part `EVEN` of it divided equally; sums to 1."""
    total, even = np.bincount(family, mass), _even(family)
    own = np.divide(mass, total[family], out=even.copy(), where=total[family] > 0)
    return (1 - EVEN) * own + EVEN * even


def _levels(domain: Domain, leaves: LeafCounts) -> list[_Level]:
    """Nodes of the tree over these leaves, from depth 1 down."""
    level = domain.level(leaves.code)
    code, count = np.empty(0, np.uint64), np.empty(0)
    found = []
    for depth in range(int(level.max()), 0, -1):
        mine = level == depth
        code = np.concatenate([code, leaves.code[mine]])
        count = np.concatenate([count, leaves.held[mine]])
        order = np.argsort(code)
        code, count = code[order], count[order]
        parents, family = np.unique(domain.parents(code), return_inverse=True)
        total = np.bincount(family, count, len(parents)).astype(np.float64)
        found.append(_Level(code, count, family.astype(np.intp), total))
        code, count = parents, total
    return found[::-1]


def _span(domain: Domain, codes: U64) -> tuple[I64, I64]:
    """First finest cell of each node, and the cell after its last."""
    drop = (domain.bits - domain.level(codes) * domain.step).astype(np.uint64)
    start = (codes << drop).astype(np.int64)
    return start, start + (np.int64(1) << drop.astype(np.int64))

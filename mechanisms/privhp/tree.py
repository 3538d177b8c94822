"""Grow PrivHP's tree from private sums: consistency, pruning, leaves.

Everything here reads noisy sums and public parameters alone, so it is post-processing and costs
nothing. Counts are integers throughout, so children add up to their parent exactly.

Source: Holland, Camtepe, Thapa and Xue, *Private Synthetic Data Generation in Bounded Memory*
(2024), algorithms 2 to 4, with the corrections that ``mechanisms/privhp/README.md`` lists.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import ParameterError
from ..columns import F64, I64
from ..parts.sketch import U64
from ..validate import one_of
from .decode import Parents, decode
from .layout import SumLayout

Bool = NDArray[np.bool_]
Live = Callable[[U64], Bool]


class Reading(NamedTuple):
    """Estimator of children from a sketch.

    ``single`` uses every counter unchanged and queries every child of a sketch separately.
    ``joint`` pools each counter with those below it (`pooled`) and, given the variances, solves for
    all children of a sketched level together (`hushstream.mechanisms.privhp.decode`).
    """

    kind: Literal["joint", "single"]
    variance: F64  # (r+1,) of one sum of each level ("joint" only)


class GrownTree(NamedTuple):
    """A pruned binary tree over the domain, breadth first."""

    code: U64  # (m,) nodes, ascending: a leading one, then the path
    records: I64  # (m,) consistent counts, never negative
    leaf: Bool  # (m,) whether the node has no children in this tree

    def leaves(self) -> tuple[U64, I64]:
        """Codes and counts of the leaves, which partition the domain."""
        return self.code[self.leaf], self.records[self.leaf]

    def merged(self) -> GrownTree:
        """The tree without the nodes below empty ones, which become leaves.

        Siblings that are both 0 have a parent of 0, so this replaces them by their parent, level by
        level, until none are left.

        *It costs nothing.* The result is a function of this tree's codes and counts, which are
        functions of noisy sums: post-processing.
        *It loses nothing.* Counts are consistent: children add up to their parent and none is
        negative, so everything below a node of 0 is 0, as a reader of the merged row knows. Leaves
        still partition the domain, because a node is removed only if an ancestor becomes a leaf.
        """
        parent = np.searchsorted(self.code, self.code >> np.uint64(1))
        kept = self.records[parent] > 0  # the root is its own parent here
        kept[0] = True
        leaf = self.leaf | (self.records == 0)
        return GrownTree(self.code[kept], self.records[kept], leaf[kept])


@dataclass(frozen=True)
class Pruning:
    """The choice of which nodes below the exact levels are refined."""

    # "top" refines the k largest nodes of a level (ties: the smaller code first), "threshold"
    # those with at least ``bars[level]`` records. Empty nodes are never refined
    kind: Literal["top", "threshold"]
    keep: int  # k ("top" only)
    bars: tuple[int, ...] = ()  # (r+1,) least count at each level, at least 1 ("threshold" only)

    def __post_init__(self) -> None:
        one_of("prune", self.kind, ("top", "threshold"))
        if self.kind == "threshold" and (not self.bars or min(self.bars) < 1):
            raise ParameterError("bars", self.bars, "must be at least one record each")

    def select(self, level: int, counts: I64) -> NDArray[np.intp]:
        """Ascending positions of the refined nodes of ``level``."""
        if self.kind == "threshold":
            return np.flatnonzero(counts >= self.bars[level])
        some = np.flatnonzero(counts > 0)
        if len(some) <= self.keep:
            return some
        return np.sort(some[np.argsort(-counts[some], kind="stable")[: self.keep]])


def consistent(parent: I64, left: I64, right: I64) -> tuple[I64, I64]:
    """Children that are never negative and add up to ``parent`` (≥ 0), elementwise.

    Negative children become 0. Half of their excess over the parent is then taken from each
    (rounded half to even, so that neither side gains on average); a child that would become
    negative is 0, and its sibling takes all.

    >>> consistent(*(np.array([x]) for x in (46, 35, 37)))
    (array([22]), array([24]))
    """
    left, right = np.maximum(left, 0), np.maximum(right, 0)
    excess = left + right - parent
    left = left - ((excess + ((excess >> 1) & 1)) >> 1)
    left = np.clip(left, 0, parent)
    return left, parent - left


def grow(
    shape: SumLayout, table: I64, pruning: Pruning, reading: Reading, live: Live | None = None
) -> GrownTree:
    """The tree of a (sums,) table of noisy sums.

    The root is clamped at 0. Levels up to L are complete; from L on, only the nodes that
    ``pruning`` selects are refined, and their children are estimated from the level's sketch.

    Args:
        shape: names the sums.
        live: function that tells which nodes meet a public region; all others are empty by
            definition.
    """
    if reading.kind == "joint":
        table = pooled(shape, table, reading.variance)
    code, count = np.ones(1, np.uint64), np.maximum(table[:1], 0)
    codes, counts, leaves = [], [], []
    spilled = 0.0
    for level in range(shape.levels):
        chosen = _refined(shape, pruning, level, count)
        leaf = np.ones(len(code), np.bool_)
        leaf[chosen] = False
        codes.append(code)
        counts.append(count)
        leaves.append(leaf)
        if not len(chosen):
            break
        spilled += math.fsum((count[leaf].astype(np.float64) ** 2).tolist())
        parents = Parents(code[chosen], count[chosen])
        looks = _look(shape, table, level + 1, parents, reading, spilled)
        code, count = _children(parents, looks, live)
    return GrownTree(np.concatenate(codes), np.concatenate(counts), np.concatenate(leaves))


def pooled(shape: SumLayout, table: I64, variance: F64) -> I64:
    """The table with each counter averaged with the sum of its children, from level L upwards.

    Both estimate the same count with independent noise; weights are inverse to the variances
    (Hay, Rastogi, Miklau and Suciu, *Boosting the Accuracy of Differentially Private Histograms
    Through Consistency*, 2010), which halves the variance far above level L. Rounded to integers.
    """
    table, below = table.copy(), float(variance[shape.exact])
    for level in range(shape.exact - 1, -1, -1):
        own, mine = shape.part(table, level), float(variance[level])
        children = shape.part(table, level + 1).reshape(-1, 2).sum(axis=1)
        share = mine / (mine + 2 * below)
        own += np.rint(share * (children - own)).astype(np.int64)
        below = (1 - share) * mine
    return table


def _refined(shape: SumLayout, pruning: Pruning, level: int, count: I64) -> NDArray[np.intp]:
    if level == shape.depth:
        return np.empty(0, np.intp)
    return np.arange(len(count)) if level < shape.exact else pruning.select(level, count)


def _look(
    shape: SumLayout, table: I64, level: int, parents: Parents, reading: Reading, spilled: float
) -> I64:
    """(2p,) estimated counts of both children of each parent."""
    sums, code = shape.part(table, level), parents.children()
    if level <= shape.exact:
        return sums[(code - np.uint64(1 << level)).astype(np.intp)]
    if reading.kind == "single":
        return shape.sketch.estimate(sums, code)
    variance = float(reading.variance[level]) + spilled / shape.sketch.width
    return decode(shape.sketch, sums, parents, variance)


def _children(parents: Parents, looks: I64, live: Live | None) -> tuple[U64, I64]:
    code, left = parents.children(), consistent(parents.records, looks[0::2], looks[1::2])[0]
    if live is not None:
        alive = live(code)
        left = np.where(alive[1::2], left, parents.records)
        left = np.where(alive[0::2], left, 0)
    return code, np.stack([left, parents.records - left], axis=1).reshape(-1)

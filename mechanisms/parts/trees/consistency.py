"""Consistent estimates of a b-ary forest of noisy sums, exact and computed on demand.

A chunk has b^L blocks. Level 1 holds the blocks, level l the sums of b^(l-1) blocks, level L the b
topmost nodes; the noises of all nodes are independent with equal variance. Two sweeps give the
least-squares estimate of the blocks (Hay, Rastogi, Miklau, Suciu, *Boosting the Accuracy of
Differentially Private Histograms Through Consistency*, VLDB 2010, Theorem 3).

The estimate is linear and leaves consistent sums unchanged, so it is the true blocks plus
the estimate made from the noise alone, which does not depend on data. With
``a_l = 1 + b + … + b^(l-1)`` the sweeps have a closed form in integers:

    y[v]   = b^(l-1)·n[v] + Σ y[children]                      (node v at level l, n its noise)
    Y[v]   = y[v] + b^(l-1)·Σ n[proper ancestors of v]
    z[i]   = Σ_l g_l·Y[ancestor of block i at level l],   g_1 = 1, g_l = -1/(a_l·a_{l-1})

*Why.* With S the matrix of all node sums, z = (SᵀS)⁻¹Sᵀn. SᵀS = Σ_l J_l, where J_l joins blocks
under one node at level l. On vectors constant below level l and summing to zero below level l+1
it is multiplication by a_l; hence (SᵀS)⁻¹ = Σ_l g_l·J_l, and Y = J_l·Sᵀn. The same g_l give every
variance: ``Var(Σ w_i z_i) = σ² Σ_l g_l Σ_{v at l} (Σ_{i under v} w_i)²``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....errors import ContractError
from ...columns import I64

_LARGE = 1 << 62


def repunits(fanout: int, levels: int) -> list[int]:
    """a_1..a_L with a_l = 1 + b + … + b^(l-1).

    >>> repunits(2, 4)
    [1, 3, 7, 15]
    """
    return [(fanout**level - 1) // (fanout - 1) for level in range(1, levels + 1)]


def covariance_weights(fanout: int, levels: int) -> list[Fraction]:
    """g_1..g_L: two blocks have covariance σ² times the sum of g_l over their common ancestors.

    >>> [str(sum(covariance_weights(2, levels))) for levels in (2, 3, 4)]
    ['2/3', '13/21', '64/105']
    """
    a = repunits(fanout, levels)
    return [Fraction(1), *(Fraction(-1, high * low) for low, high in itertools.pairwise(a))]


@dataclass(frozen=True)
class Forest:
    """The noise of a whole chunk, prepared for exact sums of its consistent estimates."""

    fanout: int  # b
    nodes: tuple[NDArray[Any], ...]  # per level, blocks first, (nodes,) integers Y[v]
    sums: tuple[NDArray[Any], ...]  # per level, (nodes + 1,) their running sums
    scaled: tuple[int, ...]  # per level, g_l times ``denominator``
    denominator: int  # common denominator of all g_l

    def prefix(self, end: int) -> Fraction:
        """Σ z[i] over the blocks 0..end-1, exactly, in O(levels).

        Raises:
            ContractError: ``end`` lies outside the chunk.
        """
        if not 0 <= end < len(self.sums[0]):
            raise ContractError("blocks beyond the chunk")
        total, size = 0, 1
        for nodes, sums, weight in zip(self.nodes, self.sums, self.scaled, strict=True):
            whole, rest = divmod(end, size)
            part = rest * int(nodes[whole]) if rest else 0
            total += weight * (size * int(sums[whole]) + part)
            size *= self.fanout
        return Fraction(total, self.denominator)


def forest(levels: Sequence[I64], fanout: int) -> Forest:
    """Prepare the noise of a chunk in O(nodes) integer additions.

    ``levels`` has the blocks first; each next level is ``fanout`` times shorter.
    """
    bound = len(levels) * len(levels[0]) * max(int(np.abs(level).max()) for level in levels)
    noise = [level.astype(object) if bound >= _LARGE else level for level in levels]
    below = [noise[0]]
    for level, own in enumerate(noise[1:], start=1):
        below.append(fanout**level * own + below[-1].reshape(-1, fanout).sum(axis=1))
    above: NDArray[Any] = np.zeros_like(noise[-1])
    nodes: list[NDArray[Any]] = []
    for level in range(len(noise) - 1, -1, -1):
        nodes.insert(0, below[level] + fanout**level * above)
        above = np.repeat(above + noise[level], fanout)
    sums = [np.concatenate([[0], np.cumsum(values)]) for values in nodes]
    weights = covariance_weights(fanout, len(levels))
    common = math.lcm(*(weight.denominator for weight in weights))
    scaled = tuple(int(weight * common) for weight in weights)
    return Forest(fanout, tuple(nodes), tuple(sums), scaled, common)


def span_variance(
    fanout: int, levels: int, first: int, end: int, extra: Mapping[int, float] | None = None
) -> float:
    """Variance, per unit of node variance, of Σ z over blocks first..end-1 plus extra terms.

    Args:
        first, end: blocks of weight 1.
        extra: additional weights of single blocks.
    """
    extra = {} if extra is None else extra
    total, size = 0.0, 1
    for weight in covariance_weights(fanout, levels):
        marked = {block // size for block in extra}
        if end > first:
            marked |= {first // size, (end - 1) // size}
        inside = dict.fromkeys(marked, 0.0)
        for block, value in extra.items():
            inside[block // size] += value
        for node in marked:
            inside[node] += max(0, min(end, (node + 1) * size) - max(first, node * size))
        low, high = -(-first // size), end // size
        whole = max(0, high - low) - sum(low <= node < high for node in marked)
        squares = max(0, whole) * float(size) ** 2
        total += float(weight) * (squares + sum(value**2 for value in inside.values()))
        size *= fanout
    return max(total, 0.0)

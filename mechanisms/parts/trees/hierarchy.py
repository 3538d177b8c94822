"""Sums over a stream in slots from a wide tree of noisy nodes: chunks, or one infinite tree.

A *block* is ``fanout^skip`` slots, the finest sum that has its own noise. For every number of whole
blocks, both trees give the noise of their total; estimates of blocks and ranges are differences of
such totals, so all of them are consistent.

* `Chunks`: b^levels blocks at a time, every node with noise DLap(θ·levels/ε), made consistent
  (CCS 2021, Section 5; see `consistency`). No root: a chunk is one of many.
* `InfiniteTree`: one tree, level j with a share of ε proportional to 1/(j(j+1)). Over infinitely
  many levels these shares sum to 1; if the number of levels is known, they are raised to sum to 1
  over those. Errors grow with the logarithm of time instead of restarting at each chunk.

*Guarantee.* Records clipped to θ; add/remove (or replace, values staying in [0, θ]) of one record
in its own slot: ε-DP, because the record lies in one node per level and moves it by at most θ.
Noise is derived for whole chunks, data or not.

*No draw covers two contents.* ``first`` counts blocks here. A node of the infinite tree is first
used when its last block ends. The estimates of a chunk need the noise of all its nodes when its
first block ends, including nodes whose blocks come later; so where the nonce of the noise changes,
the chunk is abandoned, and another begins at the open block (`Chunks.origins`), on top of what was
released. Until then all draws of a chunk cover blocks that ended under the nonce of its first
block; later blocks have other draws. A record is in one block, which ends in one chunk: the sums of
an abandoned chunk depend on its ended blocks alone, since consistent estimates of the others are
never requested. So chunks compose in parallel as before, and variances add up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Protocol, cast

import numpy as np

from ....errors import ContractError
from ...columns import I64
from ...contract import Noise
from ...keys import Keys
from ...ranges import Draws, laplace
from ...validate import at_least, positive
from .consistency import Forest, forest, span_variance


class WideTree(Protocol):
    """The contract of a tree over blocks."""

    def restarted(self, origins: tuple[int, ...]) -> WideTree:
        """The tree with independent noise from each of these blocks on, if it needs that."""

    def draws(self, of: str, theta: int, slots: int) -> Draws:
        """Its draws for the largest threshold and a number of slots."""

    def prefix(self, noise: Noise, theta: int, end: int) -> tuple[int, Fraction]:
        """Start of the stretch of independent noise that holds ``end``, and the noise since."""

    def variance(
        self, theta: int, first: int, end: int, extra: Mapping[int, float] | None = None
    ) -> float:
        """Variance of the noise of blocks first..end-1 plus ``extra`` weighted blocks."""


@dataclass(frozen=True)
class Chunks:
    """Chunks of ``fanout ** levels`` blocks with consistent estimates."""

    fanout: int  # b ≥ 2
    levels: int  # L ≥ 1
    epsilon: Fraction  # of one record
    purpose: str = "node"  # names the noise
    # blocks at which a chunk begins in any case, ascending from 0
    origins: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        at_least("fanout", self.fanout, 2)
        at_least("levels", self.levels, 1)
        positive("epsilon", self.epsilon)

    @property
    def blocks(self) -> int:
        """Blocks per chunk."""
        return int(self.fanout**self.levels)

    def scale(self, theta: int) -> Fraction:
        """θ·L/ε, the scale of every node."""
        return theta * self.levels / self.epsilon

    def restarted(self, origins: tuple[int, ...]) -> Chunks:
        return replace(self, origins=origins)

    def draw(self, noise: Noise, theta: int, start: int) -> list[I64]:
        """Noise of all nodes of the chunk whose first block is ``start``, blocks first."""
        label, scale = Keys.of_codes(np.array([start], np.uint64)), self.scale(theta)
        out = []
        for level in range(self.levels):
            index = np.arange(self.fanout ** (self.levels - level), dtype=np.int64)
            first = np.full(len(index), start + 1, np.int64)
            out.append(noise.laplace(f"{self.purpose}.{level}", label, index, scale, first)[0])
        return out

    def draws(self, of: str, theta: int, slots: int) -> Draws:
        """See `WideTree.draws`; estimates are exact integers of any size."""
        return laplace(of, self.scale(theta))

    def prefix(self, noise: Noise, theta: int, end: int) -> tuple[int, Fraction]:
        """Start of the chunk that ends at or holds ``end``, and the noise of the blocks between."""
        if theta == 0 or end == 0:
            return end, Fraction(0)
        origin = self.origins[bisect_left(self.origins, end) - 1]
        start = end - 1 - (end - 1 - origin) % self.blocks
        return start, self._forest(noise, theta, start).prefix(end - start)

    def _forest(self, noise: Noise, theta: int, start: int) -> Forest:
        if isinstance(noise, Hashable):
            return _kept(replace(self, origins=(0,)), noise, theta, start)
        return forest(self.draw(noise, theta, start), self.fanout)

    def variance(
        self, theta: int, first: int, end: int, extra: Mapping[int, float] | None = None
    ) -> float:
        """Variance of the noise of blocks first..end-1 plus ``extra`` weighted blocks."""
        extra = {} if extra is None else extra
        total = 0.0
        for low, high in pairwise((*self.origins, max(first, end, self.origins[-1], *extra) + 1)):
            a, z = max(first, low), min(end, high)
            mine = {b - low: w for b, w in extra.items() if low <= b < high}
            if z > a or mine:
                total += self._variance(a - low, max(z, a) - low, mine)
        return total * laplace_variance(self.scale(theta))

    def _variance(self, first: int, end: int, extra: Mapping[int, float]) -> float:
        """The variance between two origins, the first at 0, per unit of node variance."""
        touched = {block // self.blocks for block in extra}
        touched |= {first // self.blocks, max(end - 1, first) // self.blocks}
        inner = max(0, end // self.blocks + (-first // self.blocks))
        low, high = -(-first // self.blocks), end // self.blocks
        inner -= sum(low <= chunk < high for chunk in touched)
        total = max(0, inner) * span_variance(self.fanout, self.levels, 0, self.blocks)
        for chunk in touched:
            start = chunk * self.blocks
            mine = {b - start: w for b, w in extra.items() if b // self.blocks == chunk}
            a, z = max(first - start, 0), min(end - start, self.blocks)
            total += span_variance(self.fanout, self.levels, min(a, self.blocks), z, mine)
        return total


@dataclass(frozen=True)
class InfiniteTree:
    """One tree over a stream; level j = 1, 2, … has the share 1/(j(j+1)) of ε, or more.

    >>> InfiniteTree(2, Fraction(1), blocks=7).scale(1, 1), InfiniteTree(2, Fraction(1)).scale(1, 1)
    (Fraction(3, 2), Fraction(2, 1))
    """

    fanout: int  # b ≥ 2
    epsilon: Fraction  # of one record
    purpose: str = "infinite"  # names the noise
    # most blocks of the stream, 0 if it has no end. Over the J levels that this many blocks use,
    # the shares 1/(j(j+1)) sum to J/(J+1); each is raised by (J+1)/J
    blocks: int = 0

    def __post_init__(self) -> None:
        at_least("fanout", self.fanout, 2)
        positive("epsilon", self.epsilon)
        at_least("blocks", self.blocks, 0)

    @property
    def spent(self) -> Fraction:
        """Sum of the shares 1/(j(j+1)) of the levels in use."""
        if not self.blocks:
            return Fraction(1)
        levels = self.nodes(self.blocks)[-1][0]
        return Fraction(levels, levels + 1)

    def scale(self, theta: int, level: int) -> Fraction:
        """Scale of a node that covers ``fanout ** (level - 1)`` blocks."""
        return theta * level * (level + 1) * self.spent / self.epsilon

    def restarted(self, origins: tuple[int, ...]) -> InfiniteTree:
        """Itself: a node is first used when its last block ends, so its draw has one nonce."""
        return self

    def nodes(self, end: int) -> list[tuple[int, int]]:
        """(level, index) of the nodes whose sum is the total of the first ``end`` blocks."""
        out, level, size = [], 1, 1
        while end >= size:
            high = end // size
            out += [(level, i) for i in range(high - high % self.fanout, high)]
            level, size = level + 1, size * self.fanout
        return out

    def draws(self, of: str, theta: int, slots: int) -> Draws:
        """See `WideTree.draws`: the draw of the highest node is largest."""
        return laplace(of, self.scale(theta, max(level for level, _ in self.nodes(slots))))

    def prefix(self, noise: Noise, theta: int, end: int) -> tuple[int, Fraction]:
        """0, and the noise of the first ``end`` blocks.

        Raises:
            ContractError: the stream has fewer blocks; more would spend ε on further levels.
        """
        if self.blocks and end > self.blocks:
            raise ContractError("blocks beyond the stream")
        total = 0
        label = Keys.of_codes(np.zeros(1, np.uint64))
        for level, index in self.nodes(end) if theta else ():
            purpose, scale = f"{self.purpose}.{level}", self.scale(theta, level)
            place = np.array([index], np.int64)
            last = (place + 1) * self.fanout ** (level - 1)
            total += int(noise.laplace(purpose, label, place, scale, last)[0, 0])
        return 0, Fraction(total)

    def variance(
        self, theta: int, first: int, end: int, extra: Mapping[int, float] | None = None
    ) -> float:
        """Variance of the noise of blocks first..end-1 plus ``extra`` weighted blocks."""
        weights: dict[tuple[int, int], float] = {}
        spans = [(first, end, 1.0)] if end > first else []
        spans += [(block, block + 1, weight) for block, weight in (extra or {}).items()]
        for low, high, weight in spans:
            for node in self.nodes(high):
                weights[node] = weights.get(node, 0.0) + weight
            for node in self.nodes(low):
                weights[node] = weights.get(node, 0.0) - weight
        return sum(
            weight**2 * laplace_variance(self.scale(theta, level))
            for (level, _), weight in weights.items()
        )


def laplace_variance(scale: Fraction) -> float:
    """Variance of DLap(scale): 2a/(1-a)², a = exp(-1/scale), which lies below 2·scale².

    1/(2 sinh²(1/(2·scale))), by its series where the scale is large; 0 for scale 0.
    """
    if scale == 0:
        return 0.0
    half = 1 / (2 * float(scale))
    if half < 0.05:
        return 2 * float(scale) ** 2 - 1 / 6 + half**2 / 30
    return 0.5 / float(np.sinh(half)) ** 2


def choose_height(fanout: int, slots: int, most: int = 5) -> int:
    """Least h ≤ most with fanout^h ≥ slots.

    >>> [choose_height(16, n) for n in (1, 16, 17, 2**20, 2**40)]
    [1, 1, 2, 5, 5]
    """
    height = 1
    while height < most and fanout**height < slots:
        height += 1
    return height


@lru_cache(maxsize=16)
def _kept(chunks: Chunks, noise: Hashable, theta: int, start: int) -> Forest:
    # The noise of a chunk is a function of these arguments alone. Caching the last few makes a
    # release cost O(levels). The cache stays inside the process, as the secret does.
    return forest(chunks.draw(cast(Noise, noise), theta, start), chunks.fanout)

"""Sums over a stream in slots from a wide tree of noisy nodes: chunks, or one infinite tree.

A *block* is ``fanout^skip`` slots, the finest sum that has noise of its own. Both trees give, for
every number of whole blocks, the noise of their total; estimates of blocks and ranges are its
differences, so all of them agree with each other.

* `Chunks`: b^levels blocks at a time, every node with noise DLap(θ·levels/ε), made consistent
  (CCS 2021, Section 5; see `consistency`). No root: a chunk is one of many.
* `InfiniteTree`: one tree for ever, level j with the share 1/(j(j+1)) of ε, so that the shares of
  all levels sum to 1. Errors grow with the logarithm of time instead of restarting at each chunk.

*Guarantee.* Records clipped to θ; add/remove (or replace, values staying in [0, θ]) of one record
in its own slot: ε-DP, because the record lies in one node per level and moves it by at most θ.
Noise is derived for whole chunks, data or not.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Protocol, cast

import numpy as np

from ..contract import I64, Noise
from ..keys import Keys
from ..validate import at_least, positive
from .consistency import Forest, forest, span_variance


class Tree(Protocol):
    """What a mechanism needs of a tree over blocks."""

    def prefix(self, noise: Noise, theta: int, end: int) -> tuple[int, Fraction]:
        """Start of the epoch of independent noise that holds ``end``, noise from there to it."""
        ...

    def variance(
        self, theta: int, first: int, end: int, extra: Mapping[int, float] | None = None
    ) -> float:
        """Variance of the noise of blocks first..end-1 plus ``extra`` weighted blocks."""
        ...


@dataclass(frozen=True)
class Chunks:
    """Chunks of ``fanout ** levels`` blocks with consistent estimates.

    Attributes:
        fanout: b ≥ 2.
        levels: L ≥ 1.
        epsilon: of one record.
        purpose: names the noise.
    """

    fanout: int
    levels: int
    epsilon: Fraction
    purpose: str = "node"

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

    def draw(self, noise: Noise, theta: int, chunk: int) -> list[I64]:
        """Noise of all nodes of a chunk, blocks first."""
        label = Keys.of_codes(np.array([chunk], np.uint64))
        out = []
        for level in range(self.levels):
            index = np.arange(self.fanout ** (self.levels - level), dtype=np.int64)
            out.append(noise.laplace(f"{self.purpose}.{level}", label, index, self.scale(theta))[0])
        return out

    def prefix(self, noise: Noise, theta: int, end: int) -> tuple[int, Fraction]:
        """Start of the chunk that ends at or holds ``end``, and the noise of the blocks between."""
        if theta == 0 or end == 0:
            return end, Fraction(0)
        chunk = (end - 1) // self.blocks
        start = chunk * self.blocks
        return start, self._forest(noise, theta, chunk).prefix(end - start)

    def _forest(self, noise: Noise, theta: int, chunk: int) -> Forest:
        if isinstance(noise, Hashable):
            return _kept(self, noise, theta, chunk)
        return forest(self.draw(noise, theta, chunk), self.fanout)

    def variance(
        self, theta: int, first: int, end: int, extra: Mapping[int, float] | None = None
    ) -> float:
        """Variance of the noise of blocks first..end-1 plus ``extra`` weighted blocks."""
        extra = {} if extra is None else extra
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
        return total * laplace_variance(self.scale(theta))


@dataclass(frozen=True)
class InfiniteTree:
    """One tree over an endless stream; level j = 1, 2, … has the share 1/(j(j+1)) of ε.

    Attributes:
        fanout: b ≥ 2.
        epsilon: of one record.
        purpose: names the noise.
    """

    fanout: int
    epsilon: Fraction
    purpose: str = "infinite"

    def __post_init__(self) -> None:
        at_least("fanout", self.fanout, 2)
        positive("epsilon", self.epsilon)

    def scale(self, theta: int, level: int) -> Fraction:
        """Scale of a node that covers ``fanout ** (level - 1)`` blocks."""
        return theta * level * (level + 1) / self.epsilon

    def nodes(self, end: int) -> list[tuple[int, int]]:
        """(level, index) of the nodes whose sum is the total of the first ``end`` blocks."""
        out, level, size = [], 1, 1
        while end >= size:
            high = end // size
            out += [(level, i) for i in range(high - high % self.fanout, high)]
            level, size = level + 1, size * self.fanout
        return out

    def prefix(self, noise: Noise, theta: int, end: int) -> tuple[int, Fraction]:
        """0, and the noise of the first ``end`` blocks."""
        total = 0
        label = Keys.of_codes(np.zeros(1, np.uint64))
        for level, index in self.nodes(end) if theta else ():
            purpose, scale = f"{self.purpose}.{level}", self.scale(theta, level)
            total += int(noise.laplace(purpose, label, np.array([index], np.int64), scale)[0, 0])
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


def choose_skip(fanout: int, height: int, epsilon: Fraction, load: int = 1) -> int:
    """The number s of levels without noise: least 2(b-1)(h-s)³/ε² + (load·b^s)²/36 (CCS 2021).

    θ cancels, so s is public. ``load`` is the number of records expected in a slot: the second term
    is the error of spreading a block's total evenly over its slots.

    >>> [choose_skip(16, 5, Fraction(1, n)) for n in (20, 10, 1)]
    [2, 2, 1]

    Raises:
        ParameterError: a parameter is out of range.
    """
    at_least("height", height, 1)
    at_least("load", load, 1)
    positive("epsilon", epsilon)
    return min(range(height), key=lambda s: skip_error(fanout, height, epsilon, load, s))


def skip_error(fanout: int, height: int, epsilon: Fraction, load: int, s: int) -> Fraction:
    """What `choose_skip` minimises: mean squared error of a range for θ = 1."""
    noise = 2 * (fanout - 1) * (height - s) ** 3 / epsilon**2
    return noise + Fraction((load * fanout**s) ** 2, 36)


def choose_height(fanout: int, slots: int, most: int = 5) -> int:
    """Least h ≤ most with fanout^h ≥ slots.

    >>> [choose_height(16, n) for n in (1, 16, 17, 2**20, 2**40)]
    [1, 1, 2, 5, 5]
    """
    height = 1
    while height < most and fanout**height < slots:
        height += 1
    return height


@lru_cache(maxsize=4)
def _kept(chunks: Chunks, noise: Hashable, theta: int, chunk: int) -> Forest:
    # The noise of a chunk is a function of these arguments alone; keeping the last few makes a
    # release cost O(levels). It stays inside the process, as the secret itself does.
    return forest(chunks.draw(cast(Noise, noise), theta, chunk), chunks.fanout)

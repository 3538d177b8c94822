"""A wide tree of noisy sums over blocks of slots: its consistent noise, and its shape.

Every node of a chunk of b^L blocks has its own noise, and there is no root. Estimates are exact
least-squares estimates (Hay et al. 2010, two sweeps). A shape has the least expected error over
ranges that are evenly spread among all ranges.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, Protocol

from .gaussian import DIGITS

FANOUTS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 32)
RANGES = [(n * 0.7548776662466927 % 1, n * 0.5698402909980532 % 1) for n in range(1, 49)]
TREND, SLOPE, SWING = 0.02, 1.2, 0.04
FEWEST, NODES, DEEPEST = 8, 1 << 21, 20
FINE = 1 << 10  # the threshold at which mean variances are computed

Spans = Sequence[tuple[int, int, float]]  # first block, end block and weight of each span


class Draw(Protocol):
    """Noise by purpose, scale, first step of use, key and index."""

    def __call__(self, purpose: str, scale: Fraction, step: int, key: bytes, index: int) -> int: ...


class Chunks(NamedTuple):
    """A sequence of chunks and their nodes."""

    fanout: int
    levels: int
    epsilon: Fraction  # ε of one record
    purpose: str = "node"

    @property
    def blocks(self) -> int:
        return self.fanout**self.levels

    def scale(self, theta: int) -> Fraction:
        return theta * self.levels / self.epsilon

    def prefix(
        self, draw: Draw, pieces: Sequence[tuple[int, int]], end: int
    ) -> tuple[int, Fraction]:
        """Where the chunk with block ``end`` - 1 begins, and the noise since then.

        Args:
            pieces: blocks at which a chunk begins anew, each with its threshold.
        """
        if not end:
            return 0, Fraction(0)
        origin, theta = pieces[bisect_left([begin for begin, _ in pieces], end) - 1]
        start = origin + (end - 1 - origin) // self.blocks * self.blocks
        scale, key = self.scale(theta), start.to_bytes(8, "big")
        noise = [
            [draw(f"{self.purpose}.{level}", scale, start + 1, key, index)
             for index in range(self.fanout ** (self.levels - level))]
            for level in range(self.levels)
        ]  # fmt: skip
        return start, sum(consistent(noise, self.fanout)[: end - start], Fraction(0))

    def variance(self, pieces: Sequence[tuple[int, int]], spans: Spans) -> float:
        """Variance of a weighted sum of blocks."""
        total = 0.0
        for (low, theta), (high, _) in pairwise([*pieces, (1 << 60, 0)]):
            ends: dict[int, float] = {}  # weights of totals of all blocks since the piece began
            for first, last, weight in spans:
                for place, sign in ((min(last, high), 1), (min(first, high), -1)):
                    if place > low:
                        ends[place - low] = ends.get(place - low, 0.0) + sign * weight
            if ends:
                total += self.squares(ends) * laplace_variance(self.scale(theta))
        return total

    def squares(self, ends: dict[int, float]) -> float:
        """Σ_l g_l Σ_v (weight of the blocks under v)² for weighted totals of the first blocks."""
        found, size, last = 0.0, 1, 0
        for level in range(self.levels):
            here = last * self.fanout + 1  # 1 + b + … + b^level
            g = -1 / (here * last) if level else 1.0
            for i, a in ends.items():
                for j, b in ends.items():
                    whole, rest = divmod(min(i, j), size)
                    both = whole * size**2 + rest * min(size, max(i, j) - whole * size)
                    found += g * a * b * both
            size, last = size * self.fanout, here
        return max(found, 0.0)


@lru_cache(16)
def _estimates(noise: tuple[tuple[int, ...], ...], b: int) -> list[Fraction]:
    up = [[Fraction(n) for n in noise[0]]]
    for level, own in enumerate(noise[1:], 2):
        scale = b**level - 1
        up.append([
            Fraction(b**level - b ** (level - 1), scale) * n
            + Fraction(b ** (level - 1) - 1, scale) * sum(up[-1][b * v : b * v + b])
            for v, n in enumerate(own)
        ])  # fmt: skip
    down = up[-1]
    for below in reversed(up[:-1]):
        lacks = [(one - sum(below[b * v : b * v + b])) / b for v, one in enumerate(down)]
        down = [one + lacks[v // b] for v, one in enumerate(below)]
    return down


def consistent(noise: Sequence[Sequence[int]], fanout: int) -> list[Fraction]:
    """Estimates of the blocks, from the nodes of every level; ``noise`` has the blocks first."""
    return _estimates(tuple(map(tuple, noise)), fanout)


@lru_cache(None)
def laplace_variance(scale: Fraction) -> float:
    """The variance of discrete Laplace noise: 2a/(1-a)² with a = exp(-1/scale)."""
    if not scale:
        return 0.0
    with localcontext(DIGITS):
        a = (-Decimal(scale.denominator) / scale.numerator).exp()
        return float(2 * a / (1 - a) ** 2)


class Endless(NamedTuple):
    """One tree over many blocks; level j has a share of ε in proportion to 1/(j(j+1))."""

    fanout: int
    epsilon: Fraction
    last: int  # blocks

    def nodes(self, end: int) -> list[tuple[int, int]]:
        """Level and place of the nodes that add up to the first ``end`` blocks."""
        found, level = [], 1
        while end >= self.fanout ** (level - 1):
            whole = end // self.fanout ** (level - 1)
            found += [(level, place) for place in range(whole - whole % self.fanout, whole)]
            level += 1
        return found

    def scale(self, theta: int, level: int) -> Fraction:
        levels = self.nodes(self.last)[-1][0]
        return theta * level * (level + 1) * Fraction(levels, levels + 1) / self.epsilon

    def prefix(
        self, draw: Draw, pieces: Sequence[tuple[int, int]], end: int
    ) -> tuple[int, Fraction]:
        """0, and the noise of the first blocks; a node has the nonce of its last block."""
        total, ((_, theta), *_) = 0, pieces
        for level, place in self.nodes(end):
            step = (place + 1) * self.fanout ** (level - 1)
            total += draw(f"infinite.{level}", self.scale(theta, level), step, bytes(8), place)
        return 0, Fraction(total)

    def variance(self, pieces: Sequence[tuple[int, int]], spans: Spans) -> float:
        """Variance of a weighted sum of blocks."""
        weights: dict[tuple[int, int], float] = {}
        for first, last, weight in spans:
            for end, sign in ((last, weight), (first, -weight)):
                for node in self.nodes(end):
                    weights[node] = weights.get(node, 0.0) + sign
        theta = pieces[0][1]
        return sum(w * w * laplace_variance(self.scale(theta, level))
                   for (level, _), w in weights.items())  # fmt: skip


def ranges(slots: int, width: int, past: int) -> Iterator[Spans]:
    """Weighted blocks that estimate each range; ``past`` blocks predict a part of a block."""
    for one, other in RANGES:
        ends = sorted((int(one * (slots + 1)), int(other * (slots + 1))))
        spans: list[tuple[int, int, float]] = []
        for place, sign in ((ends[1], 1.0), (ends[0], -1.0)):
            block, rest = divmod(place, width)
            spans.append((0, block, sign))
            known = min(block, past)
            if known and rest:
                spans.append((block - known, block, sign * rest / (width * known)))
        yield spans


def mean_variance(tree: Chunks | Endless, width: int, slots: int, past: int) -> float:
    """Mean variance of a range, for a threshold of 1."""
    every = (tree.variance([(0, FINE)], spans) for spans in ranges(slots, width, past))
    return sum(every) / len(RANGES) / FINE**2


def inside(width: int, slots: int, load: int, past: int) -> float:
    """Mean squared error that predictions inside blocks add to a range."""
    if width == 1:
        return 0.0
    trend = TREND**2 + min(SLOPE * width / slots, SWING) ** 2
    return load * width * (1 + 2 / (3 * past)) / 12 + trend * (load * width) ** 2


@lru_cache(None)
def shape(
    slots: int, epsilon: Fraction, load: int, given: tuple[int, int, int] = (0, 0, -1),
    whole: int = 0, past: int = 1,
) -> tuple[int, int, int]:  # fmt: skip
    """Children, levels, and levels without noise, with the least expected error.

    Args:
        given: the three numbers from settings; 0, 0 (all levels) and -1 for those not set.
        whole: number of slots that must form whole blocks.
        past: blocks whose mean predicts the next one.
    """
    found, least, seen = (0, 0, 0), math.inf, set()
    for b, levels, skip in shapes(slots, *given):
        width = b**skip
        alike = levels, width, b * (levels > 1)
        if whole % width or alike in seen or inside(width, slots, load, past) >= least:
            continue
        seen.add(alike)
        every = (Chunks(b, levels, epsilon).squares(totals(spans))
                 for spans in ranges(slots, width, past))  # fmt: skip
        noise = 2.0 * levels**2 * sum(every) / len(RANGES)
        error = noise / float(epsilon) ** 2 + inside(width, slots, load, past)
        if error < least * (1 - 1e-9):
            found, least = (b, levels, skip), error
    return found


def totals(spans: Spans) -> dict[int, float]:
    """Spans as weighted totals of the first blocks."""
    ends: dict[int, float] = {}
    for first, last, weight in spans:
        for place, sign in ((last, weight), (first, -weight)):
            if place:
                ends[place] = ends.get(place, 0.0) + sign
    return {place: weight for place, weight in ends.items() if weight}


def shapes(slots: int, fanout: int, height: int, skip: int) -> Iterator[tuple[int, int, int]]:
    """All possible shapes; a number that a setting states is fixed."""
    for b in (fanout,) if fanout else FANOUTS:
        for s in (skip,) if skip >= 0 else range(DEEPEST):
            if s and s != skip and b**s * FEWEST > slots:
                break
            for levels in (height - s,) if height else range(1, DEEPEST):
                top = b ** (levels - 1) if levels > 0 else 0
                if not height and levels > 1 and (top * b**s >= slots or top * b > NODES):
                    break
                if levels >= 1:
                    yield b, levels, s


@lru_cache(None)
def endless(
    slots: int, epsilon: Fraction, load: int, fanout: int, skip: int, past: int
) -> tuple[Endless, int]:
    """The infinite tree and the slots of a block, with the least expected error."""
    found, least = None, math.inf
    for s in (skip,) if skip >= 0 else range(DEEPEST):
        width = fanout**s
        if found is not None and width * FEWEST > slots:
            break
        tree = Endless(fanout, epsilon, -(-slots // width))
        error = mean_variance(tree, width, slots, past) + inside(width, slots, load, past)
        if found is None or error < least:
            found, least = (tree, width), error
    assert found is not None
    return found

"""Rivals of PrivHP: a superregular random walk, an adaptive grid, Misra-Gries summaries.

Neighbours of every rival differ by one record, added or removed. Noise is floating-point Laplace
from a NumPy generator: good enough to compare errors, not to publish.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from _privhp import DEPTH, Input, Leaves
from hushstream.mechanisms.privhp.decode import Parents
from hushstream.mechanisms.privhp.layout import SumLayout, split_pure
from hushstream.mechanisms.privhp.mechanism import PrivHP
from hushstream.mechanisms.privhp.tree import Pruning, consistent, pooled
from hushstream.mechanisms.spatial.domain import interleave
from numpy.typing import NDArray

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
DELTA = 1e-6
"""δ of all Misra-Gries summaries together; the other rivals are pure ε-DP."""


def synthesised(coefficients: Sequence[F64]) -> F64:
    """(2^L,) measure of cells from the total and (1,), (2,), … (2^(L-1),) Haar coefficients.

    A coefficient is the left half's mass minus the right half's, so one record changes the total
    and one coefficient of each level by exactly one: a sensitivity of L + 1 in all.
    """
    mass = coefficients[0]
    for one in coefficients[1:]:
        mass = np.stack([mass + one, mass - one], axis=1).reshape(-1) / 2
    return mass


def analysed(mass: F64) -> list[F64]:
    """The inverse of `synthesised`."""
    out = []
    while len(mass) > 1:
        left, right = mass[0::2], mass[1::2]
        out.append(left - right)
        mass = left + right
    return [mass, *out[::-1]]


def walk_steps(levels: int, epsilon: float, rng: np.random.Generator) -> F64:
    """(2^L,) steps of the superregular walk: Laplace noise of scale (L+1)/ε per coefficient.

    Added to counts of cells it is ε-private, by the sensitivity of `synthesised`, and partial sums
    deviate by only O(log^1.5), because few coefficients straddle a place.
    """
    scale = (levels + 1) / epsilon
    sizes = [1, *(1 << level for level in range(levels))]
    return synthesised([rng.laplace(0, scale, size) for size in sizes])


def monotone(values: F64) -> F64:
    """(m,) non-decreasing sequence nearest to ``values`` in the sum of absolute differences."""
    heap: list[float] = []
    top = np.empty(len(values))
    for place, value in enumerate(values.tolist()):
        heapq.heappush(heap, -value)
        if -heap[0] > value:
            heapq.heapreplace(heap, -value)
        top[place] = -heap[0]
    return np.minimum.accumulate(top[::-1])[::-1]


def hilbert(bits: int) -> NDArray[np.uint64]:
    """(4^bits, 2) places along the Hilbert curve, whose neighbours are adjacent cells."""
    rest = np.arange(1 << 2 * bits)
    x, y = np.zeros_like(rest), np.zeros_like(rest)
    for bit in range(bits):
        side = 1 << bit
        right = rest >> 1 & 1
        up = (rest ^ right) & 1
        flip = (up == 0) & (right == 1)
        x, y = np.where(flip, side - 1 - x, x), np.where(flip, side - 1 - y, y)
        x, y = np.where(up == 0, y, x) + side * right, np.where(up == 0, x, y) + side * up
        rest >>= 2
    return np.stack([x, y], axis=1).astype(np.uint64)


def walk(source: Input, epsilon: float, seed: int) -> Leaves:
    """SRRW on the 2^20 finest cells, in d = 2 along the Hilbert curve; ε-private.

    Boedihardjo, Strohmer and Vershynin, *Private Measures, Random Walks, and Synthetic Data*
    (2022). Post-processing replaces the signed measure by the nearest probability measure in the
    Wasserstein distance along the line, by cumulative masses. The number of records is the noisy
    total.
    """
    codes = np.arange(1 << DEPTH, 2 << DEPTH, dtype=np.uint64)
    if source.points.shape[1] == 2:
        codes = interleave(hilbert(DEPTH // 2), DEPTH)
    cells = (source.domain.place(source.points) - np.uint64(1 << DEPTH)).astype(np.intp)
    count = np.bincount(cells, minlength=1 << DEPTH)[(codes - np.uint64(1 << DEPTH)).astype(int)]
    noisy = np.cumsum(count + walk_steps(DEPTH, epsilon, np.random.default_rng(seed)))
    if noisy[-1] < 1:
        return Leaves(np.ones(1, np.uint64), np.ones(1))
    edges = np.clip(monotone(noisy / noisy[-1]), 0, 1)
    return Leaves(codes, np.diff(edges, prepend=0.0))


COARSE, FINE, ALPHA, NUMBER = 10.0, 5.0, 0.5, 0.01
"""c, c2, α of the grids, and the share of ε for the number of records."""


def refined(total: float, cells: F64) -> F64:
    """(m, m) fine noisy counts, made consistent with the coarse one.

    The count (variance ∝ 1/α²) and the sum (∝ m²/(1-α)²) are weighted by inverse variance.
    """
    m2 = cells.size
    weight = ALPHA**2 * m2 / ((1 - ALPHA) ** 2 + ALPHA**2 * m2)
    best = weight * total + (1 - weight) * float(cells.sum())
    return cells + (best - cells.sum()) / m2


def overlap(begin: float, end: float, parts: int, side: int) -> tuple[int, F64]:
    """First of ``side`` cells that [begin, end) meets; (cells met, parts) shares of equal parts."""
    first, last = math.floor(begin * side), min(math.ceil(end * side), side)
    edges = np.arange(first, last + 1) / side
    filled = np.clip((edges[:, None] - begin) / (end - begin) * parts - np.arange(parts), 0, 1)
    return first, np.diff(filled, axis=0)


def grid(source: Input, epsilon: float, seed: int) -> tuple[Leaves, int]:
    """AG in d = 2, spread over the 2^20 finest cells, and its number of counts; ε-private.

    It takes two passes over the records.

    Qardaji, Yang and Li, *Differentially Private Grids for Geospatial Data* (2013). A record is
    in the total, one coarse and one fine cell, so the three shares of ε add up to ε, and noise has
    scale 1/share. The paper takes the number of records as known; here it costs a hundredth of ε.
    """
    rng, side = np.random.default_rng(seed), 1 << DEPTH // 2
    rest = epsilon * (1 - NUMBER)
    number = max(len(source.points) + rng.laplace(0, 1 / (NUMBER * epsilon)), 1.0)
    m1 = max(10, math.ceil(math.sqrt(number * epsilon / COARSE) / 4))
    place = np.minimum((source.points * m1).astype(np.intp), m1 - 1)
    inner = source.points * m1 - place
    cell = place[:, 0] * m1 + place[:, 1]
    order = np.argsort(cell, kind="stable")
    ends = np.r_[0, np.cumsum(np.bincount(cell, minlength=m1 * m1))]
    mass, words = np.zeros((side, side)), m1 * m1
    for one in range(m1 * m1):
        mine = inner[order[ends[one] : ends[one + 1]]]
        total = len(mine) + rng.laplace(0, 1 / (ALPHA * rest))
        m2 = max(1, math.ceil(math.sqrt(max(total, 0) * (1 - ALPHA) * rest / FINE)))
        x, y = np.minimum((mine * m2).astype(np.intp), m2 - 1).T
        counts = np.bincount(x * m2 + y, minlength=m2 * m2).reshape(m2, m2)
        noisy = counts + rng.laplace(0, 1 / ((1 - ALPHA) * rest), (m2, m2))
        best, words = refined(total, noisy), words + m2 * m2
        i, j = divmod(one, m1)
        west, across = overlap(i / m1, (i + 1) / m1, m2, side)
        south, along = overlap(j / m1, (j + 1) / m1, m2, side)
        spread = across @ np.maximum(best, 0) @ along.T
        mass[west : west + len(across), south : south + len(along)] += spread
    places = np.stack(np.divmod(np.arange(side * side), side), axis=1).astype(np.uint64)
    return Leaves(interleave(places, DEPTH), mass.reshape(-1)), words


def misra_gries(stream: Sequence[int], size: int) -> dict[int, int]:
    """The summary of ``size`` counters; unused counters have negative keys.

    A zero counter keeps its key until a new code needs the place, and the smallest such key goes
    first, as the privacy proof requires: then neighbours differ by one in one counter, or by one in
    all, and in at most two keys, whose counters are at most one.
    """
    count = {-1 - i: 0 for i in range(size)}
    free, base = sorted(count), 0
    for code in stream:
        if code in count:
            count[code] += 1
            continue
        while free and count.get(free[0]) != base:
            heapq.heappop(free)  # counted again since it was zero
        if free:
            del count[heapq.heappop(free)]
            count[code] = base + 1
        else:
            base += 1
            free = sorted(key for key, value in count.items() if value == base)
    return {key: value - base for key, value in count.items()}


def private_summary(
    summary: dict[int, int], epsilon: float, delta: float, rng: np.random.Generator
) -> dict[int, float]:
    """Noisy counters above the threshold; (ε, δ)-private.

    Lebeda and Tětek, *Better Differentially Private Approximate Histograms and Heavy Hitters using
    the Misra-Gries Sketch* (2023). One common draw of scale 1/ε covers the neighbour that differs
    in all counters, a draw of scale 1/ε for each counter the neighbour that differs in one; the
    threshold 1 + 2·ln(3/δ)/ε hides keys that only one neighbour has.
    """
    noise = rng.laplace(0, 1 / epsilon, len(summary)) + rng.laplace(0, 1 / epsilon)
    least = 1 + 2 * math.log(3 / delta) / epsilon
    noisy = zip(summary, np.array(list(summary.values())) + noise, strict=True)
    return {key: value for key, value in noisy if key >= 0 and value >= least}


def summaries(source: Input, shape: SumLayout) -> dict[int, dict[int, int]]:
    """For each sketched level, a summary with as many words as its sketch; a counter takes two."""
    codes = source.domain.place(source.points)
    below = range(shape.exact + 1, shape.levels)
    size = shape.sketch.sums // 2
    return {
        level: misra_gries((codes >> np.uint64(shape.depth - level)).tolist(), size)
        for level in below
    }


def summarised(
    source: Input, mechanism: PrivHP, found: dict[int, dict[int, int]], epsilon: float, seed: int
) -> Leaves:
    """PrivHP's tree with Misra-Gries below the counters; (ε, `DELTA`)-private.

    Levels share ε as in ``mechanism``, and δ evenly; losses add up. Counters are pooled like ours.
    A code without a counter has 0 records before children are made consistent.
    """
    shape, rng = mechanism.shape, np.random.default_rng(seed)
    shares = [float(share) for share in split_pure(shape, Fraction(str(epsilon)))]
    table = _counters(source, shape, shares, rng)
    table = pooled(shape, table, np.array([2 / share**2 for share in shares]))
    shown = {
        level: private_summary(summary, shares[level], DELTA / len(found), rng)
        for level, summary in found.items()
    }
    codes = np.arange(1 << shape.exact, 2 << shape.exact, dtype=np.uint64)
    return _grown(shape, _top(shape, table), codes, shown)


def _counters(
    source: Input, shape: SumLayout, shares: Sequence[float], rng: np.random.Generator
) -> I64:
    codes, count = np.unique(source.domain.place(source.points), return_counts=True)
    table = shape.sum_leaves(codes, count.astype(np.int64))
    for level in range(shape.exact + 1):
        own = shape.part(table, level)
        own += np.rint(rng.laplace(0, 1 / shares[level], len(own))).astype(np.int64)
    return table


def _top(shape: SumLayout, table: I64) -> I64:
    """(2^L,) consistent counts of the last level of counters."""
    count = np.maximum(table[:1], 0)
    for level in range(1, shape.exact + 1):
        own = shape.part(table, level)
        count = np.stack(consistent(count, own[0::2], own[1::2]), axis=1).reshape(-1)
    return count


def _grown(
    shape: SumLayout, count: I64, code: NDArray[np.uint64], shown: dict[int, dict[int, float]]
) -> Leaves:
    codes, counts = [], []
    for level in range(shape.exact, shape.depth):
        chosen = Pruning("top", shape.keep).select(level, count)
        codes.append(np.delete(code, chosen))
        counts.append(np.delete(count, chosen))
        parents = Parents(code[chosen], count[chosen])
        code, known = parents.children(), shown[level + 1]
        looks = np.rint([known.get(one, 0.0) for one in code.tolist()]).astype(np.int64)
        both = consistent(parents.records, looks[0::2], looks[1::2])
        count = np.stack(both, axis=1).reshape(-1)
    return Leaves(np.concatenate([*codes, code]), np.concatenate([*counts, count]))

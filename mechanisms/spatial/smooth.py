"""A released map without steps: the density inside leaves continues that of their neighbours.

A leaf says how many records it holds but not where. A uniform density has steps at every edge of a
leaf. Here a leaf is divided into finer cells whose counts are as smooth over the whole map as the
leaves allow: pycnophylactic interpolation (Tobler, *Smooth Pycnophylactic Interpolation for
Geographical Regions*, 1979). Counts of leaves are unchanged, so the released sums stay as they are.
This reads a release and the public domain alone: post-processing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..columns import F64, I64
from ..validate import at_least
from .domain import U64, Domain, bit_level
from .pieces import pieces
from .synthetic import Bits, columns, spread

MOST_BITS = 16
"""log2 of the number of cells of the finest grid into which leaves are divided."""

ROUNDS = 60
"""Steps of smoothing; more steps gained little on the maps for which it was chosen."""


def smoothed(
    domain: Domain, codes: U64, counts: F64 | I64, rounds: int = ROUNDS
) -> tuple[U64, F64]:
    """The leaves of a map divided into finer ones, in code order.

    A leaf that is finer than the grid of 2^`MOST_BITS` cells stays whole.

    Args:
        domain: public geometry.
        codes, counts: (m,) released leaves, which partition the domain, and counts of at least 0.
        rounds: steps of smoothing; a step spreads density by one cell of the grid.

    Returns:
        Finer codes, ascending, and counts in the unit of ``counts``. Those below a leaf add up to
        its count.
    """
    levels = bit_level(codes)
    bits = min(int(levels.max(initial=0)), MOST_BITS)
    grid = np.arange(1 << bits, dtype=np.uint64) + np.uint64(1 << bits)
    coarse = levels <= bits
    leaf = _leaf_of(codes[coarse], levels[coarse], bits)
    deep = codes[~coarse] >> (levels[~coarse] - bits).astype(np.uint64)
    weight = np.asarray(counts, np.float64)
    place = (deep - np.uint64(1 << bits)).astype(np.intp)
    held = np.bincount(place, weight[~coarse], 1 << bits).astype(np.float64)
    alive = _roomy(domain, grid)
    alive |= ~_any(leaf, alive, int(coarse.sum()))  # a leaf outside the region keeps its count
    cells = _Cells.of(domain, grid, bits)
    found = cells.smooth(leaf, weight[coarse], held, alive, rounds)
    inside = leaf >= 0
    both = np.concatenate([grid[inside], codes[~coarse]])
    order = np.argsort(both, kind="stable")
    return both[order], np.concatenate([found[inside], weight[~coarse]])[order]


def spread_points(
    domain: Domain, fine: tuple[U64, F64], released: tuple[U64, I64], n: int, seed: int = 0
) -> dict[str, F64]:
    """n synthetic points of fine cells, spread evenly: no cell is off by more than one point.

    Points are taken at equal distances in the counts cumulated along the curve, from a random
    start; each is uniform in its fine cell.

    Args:
        domain: public geometry.
        fine: codes, ascending, and counts of at least 0, such as those of `smoothed`.
        released: codes and counts of the map from which they follow; the draws depend on it.
        n: number of points.
        seed: public; another seed gives other points.

    Returns:
        Columns of the domain's axes, in the axes' units. Without records, points are uniform.

    Raises:
        ParameterError: n or seed is negative.
    """
    bits = Bits(b"smooth points 1", *released, at_least("seed", seed, 0))
    codes, held = fine
    if not held.any():
        codes, held = np.ones(1, np.uint64), np.ones(1)
    levels = bit_level(codes)
    order = np.argsort(codes << (int(levels.max()) - levels).astype(np.uint64), kind="stable")
    upto = np.cumsum(held[order])
    place = (np.arange(at_least("n", n, 0)) + bits.uniform(0, 1)) * (upto[-1] / max(n, 1))
    cell = np.minimum(np.searchsorted(upto, place, side="right"), np.flatnonzero(held[order])[-1])
    uniform = bits.uniform(1, n * (1 + domain.dimensions)).reshape(n, 1 + domain.dimensions)
    return columns(domain, spread(domain, codes[order], cell, uniform))


def _leaf_of(codes: U64, levels: I64, bits: int) -> NDArray[np.intp]:
    """(2^bits,) row of the leaf that holds each cell; -1 where cells are divided further."""
    start = (codes << (bits - levels).astype(np.uint64)) - np.uint64(1 << bits)
    leaf = np.full(1 << bits, -1, np.intp)
    for row, (begin, level) in enumerate(zip(start.tolist(), levels.tolist(), strict=True)):
        leaf[begin : begin + (1 << bits - level)] = row
    return leaf


def _roomy(domain: Domain, grid: U64) -> NDArray[np.bool_]:
    """(cells,) whether each cell contains a part of the region with positive volume."""
    alive = domain.touches(grid)
    if domain.rings:
        place = np.flatnonzero(alive)
        parts = pieces(domain, grid[place])
        alive[place] = np.bincount(parts.cell, parts.volume, len(place)) > 0
    return alive


def _any(leaf: NDArray[np.intp], alive: NDArray[np.bool_], leaves: int) -> NDArray[np.bool_]:
    """(2^bits,) whether the leaf of each cell has a cell that is alive."""
    some = np.bincount(leaf[leaf >= 0], alive[leaf >= 0], leaves) > 0
    return np.where(leaf >= 0, some[np.maximum(leaf, 0)], True)


class _Cells:
    """The grid as an array of d axes."""

    def __init__(self, shape: tuple[int, ...], place: NDArray[np.intp]) -> None:
        self.shape = shape
        self.place = place  # (cells,) flat index of each cell, in the order of codes

    @classmethod
    def of(cls, domain: Domain, grid: U64, bits: int) -> _Cells:
        each = [
            (bits - axis + domain.dimensions - 1) // domain.dimensions
            for axis in range(domain.dimensions)
        ]
        shape = tuple(1 << n for n in each)
        low, _ = domain.fractions(grid)
        index = tuple((low[:, axis] * n).astype(np.intp) for axis, n in enumerate(shape))
        return cls(shape, np.ravel_multi_index(index, shape))

    def smooth(
        self, leaf: NDArray[np.intp], counts: F64, held: F64, alive: NDArray[np.bool_], rounds: int
    ) -> F64:
        """(cells,) counts after some rounds: mean of neighbours, then scaled to leaves' sums."""
        inside, leaves = leaf >= 0, len(counts)
        part = np.where(inside & alive, 1.0, 0.0)
        many = np.bincount(leaf[inside], part[inside], leaves)
        each = np.divide(counts, many, out=np.zeros(leaves), where=many > 0)
        density = np.where(inside, part * each[leaf], held)
        open_ = np.zeros(self.shape)
        open_.flat[self.place] = alive
        near = self._near(open_)
        for _ in range(rounds):
            table = np.zeros(self.shape)
            table.flat[self.place] = density
            mean = np.divide(self._near(table), near, out=np.zeros(self.shape), where=near > 0)
            moved = mean.reshape(-1)[self.place] * part
            sums = np.bincount(leaf[inside], moved[inside], leaves)
            scale = np.divide(counts, sums, out=np.zeros(leaves), where=sums > 0)
            flat = each * (sums <= 0)
            density = np.where(inside, moved * scale[leaf] + part * flat[leaf], held)
        return density

    def _near(self, table: F64) -> F64:
        """Twice a cell plus its neighbours along all axes; the map ends at its edges."""
        out = 2.0 * table
        for axis in range(table.ndim):
            ahead = [slice(None)] * table.ndim
            behind = [slice(None)] * table.ndim
            ahead[axis], behind[axis] = slice(1, None), slice(None, -1)
            out[tuple(ahead)] += table[tuple(behind)]
            out[tuple(behind)] += table[tuple(ahead)]
        return out

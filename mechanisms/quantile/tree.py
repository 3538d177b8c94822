"""Least-squares estimates of the bands of a key, from noisy sums of a tree over them.

Level 0 holds the B bands, level l the sums of 4^l bands each, the last level their total. Nodes of
level l have independent noise of variance v_l. With w_l = 1/v_l and s_l = 4^l, the estimate of the
bands is x̂ = (Σ_l w_l S_lᵀS_l)⁻¹ Σ_l w_l S_lᵀ y_l, S_l the sums of level l.

*Closed form.* J_l = S_lᵀS_l joins bands under one node of level l. On vectors that are constant
below level l and sum to zero below level l+1, Σ w_k J_k multiplies by a_l = w_0 s_0 + … + w_l s_l.
Hence its inverse is Σ_l g_l J_l with Σ_(k≤l) g_k s_k = 1/a_l, so g_l = (1/a_l - 1/a_(l-1))/s_l; and
Var(uᵀx̂) = Σ_l g_l Σ_v (Σ_(i under v) u_i)² over the nodes v of level l
(`trees.consistency` has the case of equal variances).

Everything is computed by additions and multiplications in a fixed order, so every machine gets the
same doubles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..columns import F64, I64
from .bands import FANOUT


@dataclass(frozen=True)
class BandTree:
    """The tree of one key.

    Attributes:
        variances: noise variances of a node, by level, bands first, the total last.
    """

    variances: tuple[float, ...]

    @property
    def sizes(self) -> list[int]:
        """Bands under a node, by level."""
        return [int(FANOUT**level) for level in range(len(self.variances))]

    @property
    def bands(self) -> int:
        """Number of bands."""
        return self.sizes[-1]

    @property
    def shares(self) -> list[float]:
        """g_l, by level."""
        out, whole, before = [], 0.0, 0.0
        for size, variance in zip(self.sizes, self.variances, strict=True):
            whole += size / variance
            out.append((1 / whole - before) / size)
            before = 1 / whole
        return out

    def estimates(self, nodes: Sequence[F64]) -> F64:
        """(r, B) estimates of the bands from (r, B / 4^level) noisy sums per level."""
        pulled: Any = 0.0
        for size, variance, noisy in zip(self.sizes, self.variances, nodes, strict=True):
            pulled = pulled + np.repeat(noisy / variance, size, axis=1)
        below, out = pulled, np.zeros(pulled.shape)
        for size, share in zip(self.sizes, self.shares, strict=True):
            out += np.repeat(below * share, size, axis=1)
            below = summed(below) if size < self.bands else below
        return out

    def smoothed(self, bands: F64, total: F64) -> F64:
        """(r, B) better estimates of the bands: non-negative, and adding up to ``total``.

        From the root down, the differences of a node's four children from their mean are known with
        equal noise in three directions, of variance s_l/a_l each. They are shrunk as far as they
        are likely to be noise (James and Stein 1961, Baranchik's positive part: never worse in mean
        squared error, whatever the data). Then the children move to the nearest non-negative
        numbers that add up to their node's estimate.

        Args:
            bands: (r, B) bands from `estimates`.
            total: (r,) positive.
        """
        out, whole, nodes = total[:, None], 0.0, [bands]
        while nodes[-1].shape[1] > FANOUT:
            nodes.append(summed(nodes[-1]))
        variances = []
        for size, variance in zip(self.sizes, self.variances, strict=True):
            whole += size / variance
            variances.append(size / whole)
        for level, variance in zip(reversed(nodes), variances[-2::-1], strict=True):
            four = level.reshape(len(level), level.shape[1] // FANOUT, FANOUT)
            apart = four - _added(four)[..., None] / FANOUT
            energy = _added(apart * apart)
            kept = np.maximum(0.0, 1 - variance / np.maximum(energy, variance))
            out = _nearest(apart * kept[..., None], out).reshape(level.shape)
        return out

    @property
    def band_variance(self) -> float:
        """Variance of the estimate of one band."""
        return sum(self.shares)

    @property
    def total_variance(self) -> float:
        """Variance of the estimate of the total."""
        pairs = zip(self.sizes, self.shares, strict=True)
        return self.bands * sum(size * share for size, share in pairs)

    def rank_variance(self, share: float) -> F64:
        """(B-1,) variance of (sum of the bands before an edge) - share·(total), for inner edges."""
        edge = np.arange(1, self.bands, dtype=np.float64)
        out = np.zeros(self.bands - 1)
        for size, weight in zip(self.sizes, self.shares, strict=True):
            before = np.floor(edge / size)
            rest = edge - before * size
            after = self.bands / size - before - (rest > 0)
            cut = np.where(rest > 0, rest - size * share, 0.0)
            out += weight * (
                before * (size * (1 - share)) ** 2 + after * (size * share) ** 2 + cut * cut
            )
        return out


def _nearest(four: F64, total: F64) -> F64:
    """(r, n, 4) the nearest non-negative numbers that add up to ``total``, (r, n).

    Numbers that a common shift makes negative become zero, and the others are shifted again, until
    none is negative, at most three times (Michelot 1986). All rows take the same number of steps,
    so that no bit of a row depends on other rows.
    """
    kept = np.ones(four.shape, np.bool_)
    for _ in range(FANOUT):
        whole = _added(np.where(kept, four, 0.0))
        shift = (total - whole) / np.maximum(kept.sum(axis=2), 1)
        moved = np.where(kept, four + shift[..., None], 0.0)
        kept &= moved > 0
    return np.maximum(moved, 0.0)


def _added(four: F64) -> F64:
    """(r, n) sums of four, added from left to right."""
    out: F64 = four[..., 0] + four[..., 1] + four[..., 2] + four[..., 3]
    return out


def summed(nodes: NDArray[Any]) -> NDArray[Any]:
    """(r, n/4) sums of every four neighbours, added from left to right."""
    out = nodes[:, ::FANOUT]
    for place in range(1, FANOUT):
        out = out + nodes[:, place::FANOUT]
    return out


def levels_of(bands: I64) -> list[I64]:
    """Exact sums of all nodes, level by level, from (r, B) exact counts of the bands."""
    out = [bands]
    while out[-1].shape[1] > 1:
        out.append(summed(out[-1]))
    return out

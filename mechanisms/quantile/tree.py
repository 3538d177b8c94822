"""Least-squares estimates of the bands of a key, from noisy sums of a tree over them.

Level 0 holds the B bands, level l the sums of 4^l bands each, the last level their total. Nodes of
level l have independent noise of variance v_l. With w_l = 1/v_l and s_l = 4^l, the estimate of the
bands is x̂ = (Σ_l w_l S_lᵀS_l)⁻¹ Σ_l w_l S_lᵀ y_l, S_l the sums of level l.

*Closed form.* J_l = S_lᵀS_l joins bands under one node of level l. On vectors that are constant
below level l and sum to zero below level l+1, Σ w_k J_k multiplies by a_l = w_0 s_0 + … + w_l s_l.
Hence its inverse is Σ_l g_l J_l with Σ_(k≤l) g_k s_k = 1/a_l, so g_l = (1/a_l - 1/a_(l-1))/s_l; and
Var(uᵀx̂) = Σ_l g_l Σ_v (Σ_(i under v) u_i)² over the nodes v of level l
(`parts.consistency` has the case of equal variances).

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
        variances: of the noise of a node, by level, bands first, the total last.
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
        """(r, B) estimates of the bands.

        Args:
            nodes: per level (r, B / 4^level) noisy sums.
        """
        pulled: Any = 0.0
        for size, variance, noisy in zip(self.sizes, self.variances, nodes, strict=True):
            pulled = pulled + np.repeat(noisy / variance, size, axis=1)
        below, out = pulled, np.zeros(pulled.shape)
        for size, share in zip(self.sizes, self.shares, strict=True):
            out += np.repeat(below * share, size, axis=1)
            below = summed(below) if size < self.bands else below
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

"""Joint estimates of all children of a level from one noisy sketch.

A single query of a sketch has the counts of all other codes of its bucket as an error. But those
are also children of known parents: the counts P of the parents are known from the level above, so
a child holds P/2 ± d and only the differences d are unknown, one per parent, with one equation per
bucket. The sketch is linear, hence the regularised least-squares solution

    minimise  Σ_b (y_b - Σ s·x)² / v  +  Σ_i d_i² / (P_i²/12)

estimates them jointly; v is the variance of a sum's noise and of records outside the refined nodes,
and P²/12 the variance of a split that is uniform over its possible values. Collisions among refined
nodes then cost almost nothing, and a split that is lost in the noise is even.

This reads noisy sums and public parameters alone, so it is post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..columns import F64, I64
from ..parts.sketch import U64, Sketch

_STEPS = 40
_ENOUGH = 1e-12  # of the squared residual


class Parents(NamedTuple):
    """The refined nodes of one level."""

    code: U64  # (p,) ascending
    records: I64  # (p,) consistent counts, positive

    def children(self) -> U64:
        """(2p,) codes of the left and right child of each node."""
        code = np.repeat(self.code << np.uint64(1), 2)
        code[1::2] += np.uint64(1)
        return code


@dataclass(frozen=True)
class _System:
    """The linear map from (p,) differences to (s,) sums, and the weights of the fit."""

    place: NDArray[np.intp]  # (2j, p)
    sign: F64  # (2j, p): of the left child, then minus that of the right one, per row
    size: int
    variance: float
    prior: F64  # (p,)

    def sums(self, differences: F64) -> F64:
        """(s,) effect of the differences on the sums."""
        flat = (self.sign * differences).reshape(-1)
        added: F64 = np.bincount(self.place.reshape(-1), flat, self.size).astype(np.float64)
        return added

    def gather(self, sums: F64) -> F64:
        """(p,) the transposed map, divided by the variance."""
        total: F64 = (self.sign * sums[self.place]).sum(axis=0)
        return total / self.variance

    def solve(self, sums: F64) -> F64:
        """(p,) differences, by conjugate gradients with a diagonal preconditioner.

        Inner products are rounded correctly (`math.fsum`), so every machine takes the same steps.
        """
        scale = 1 / (len(self.place) / self.variance + 1 / self.prior)
        found, rest = np.zeros(len(self.prior)), self.gather(sums)
        step = scale * rest
        size = start = _inner(rest, step)
        for _ in range(_STEPS):
            if size <= _ENOUGH * start:
                break
            image = self.gather(self.sums(step)) + step / self.prior
            length = size / _inner(step, image)
            found, rest = found + length * step, rest - length * image
            before, size = size, _inner(rest, scale * rest)
            step = scale * rest + (size / before) * step
        return found


def decode(sketch: Sketch, sums: I64, parents: Parents, variance: float) -> I64:
    """(2p,) counts of both children of each parent, non-negative and adding up to it.

    Args:
        sums: (j·w,) noisy sums.
        parents: refined nodes of the level above.
        variance: variance of one sum around the part that the refined nodes explain.
    """
    hashed = [sketch.hash(parents.children(), row) for row in range(sketch.rows)]
    half = parents.records / 2.0
    known = np.zeros(sketch.sums)
    for place, sign in hashed:
        known += np.bincount(place, sign * np.repeat(half, 2), sketch.sums)
    system = _System(
        np.concatenate([[place[0::2], place[1::2]] for place, _ in hashed]),
        np.concatenate([[sign[0::2], -sign[1::2]] for _, sign in hashed]).astype(np.float64),
        sketch.sums,
        variance,
        half**2 / 3,  # P²/12 with P = 2·half
    )
    # The fit is unconstrained: noise may push a child below 0 or above its parent.
    left = np.rint(half + system.solve(sums - known))
    left = np.clip(left, 0, parents.records).astype(np.int64)
    return np.stack([left, parents.records - left], axis=1).reshape(-1)


def _inner(a: F64, b: F64) -> float:
    return math.fsum((a * b).tolist())

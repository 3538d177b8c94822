"""Noise of windows that hop: one factorisation for an epoch's own windows and those that follow.

An epoch has H hops, and a window is the sum of the last n. Let x_1…x_H be the sums of a key in one
epoch; C x + z is its private release. Its windows are rows of a band matrix W with H + n - 1
rows: H of the epoch itself (*heads*), and n - 1 of later windows that still hold some of its hops
(*tails*). Row r sums the hops from r - n + 1 to r that lie in the epoch, so it is a difference of
two prefix sums, and W C⁻¹ z one of two rows of `Factorization` (A = BC). A window over a boundary
adds a tail of one epoch to a head of the next, each with the noise of its own epoch.

C minimises the mean variance of all rows for columns of unit length. X = CᵀC of the optimum solves
X·D_v·X = M with M = WᵀW, M_ij = n - |i - j| near the diagonal, v the fixed point of
v ↦ diag((D_v^½ M D_v^½)^½) (Denisov, McMahan, Rush, Smith & Thakurta 2022, Theorem 3.2). For longer
epochs C is the Toeplitz root of (1 - x^n)/(1 - x) with columns of unit length: its deviation is a
few per cent larger. Both are rounded to integers; a machine that rounds an entry differently has
another digest, and stops.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ...errors import ParameterError
from ..columns import F64, I64
from ..validate import at_least
from .matrix import BITS, Factorization, of_encoder

LONGEST = 1024
"""Most hops of a window, and of an epoch."""
SEARCHED = 128
"""Longest epoch for which the optimum is computed."""
_ROUNDS = 100  # of the iteration; at SEARCHED hops, the variance is then 0.04 % above the least


class Stretch(NamedTuple):
    """Hops of one epoch in a window: those after ``before`` up to ``last``."""

    before: int
    last: int


@lru_cache(maxsize=8)
def hopping(hops: int, per_epoch: int) -> Factorization:
    """The factorisation for windows of ``hops`` hops and epochs of ``per_epoch``.

    Raises:
        ParameterError: a number is out of range.
    """
    for name, number in (("hops", hops), ("epoch", per_epoch)):
        if at_least(name, number, 1) > LONGEST:
            raise ParameterError(name, number, f"must be at most {LONGEST} hops")
    made = _optimal(hops, per_epoch) if per_epoch <= SEARCHED else _toeplitz(hops, per_epoch)
    unit = made / np.sqrt(np.cumsum(made * made, axis=0)[-1])
    return of_encoder("hopping", np.tril(np.rint(unit * 2.0**BITS)).astype(np.int64), BITS)


def earlier(hops: int, per_epoch: int) -> int:
    """K, the number of earlier epochs whose hops a window may hold.

    >>> earlier(24, 24), earlier(24, 23), earlier(24, 12), earlier(3, 1)
    (1, 1, 2, 2)
    """
    return -(-(hops - 1) // per_epoch)


def spans(ordinal: int, hops: int, per_epoch: int, chain: int | None = None) -> dict[int, Stretch]:
    """The hops of a window, by age in epochs.

    >>> spans(2, 3, 2)
    {0: Stretch(before=0, last=2), 1: Stretch(before=1, last=2)}

    Args:
        ordinal: position of the window's last hop in its epoch, from 1.
        chain: number of hops, up to that one, that were released without a gap; epochs that ended
            before them have no part. None: as many as a window holds.
    """
    found = {}
    for back in range(earlier(hops, per_epoch) + 1):
        row = ordinal + back * per_epoch
        one = Stretch(max(0, row - hops), min(row, per_epoch))
        held = one.before < one.last
        if held and (back == 0 or chain is None or chain > row - per_epoch):
            found[back] = one
    return found


def row(factor: Factorization, span: Stretch) -> F64:
    """(H,) weights of an epoch's noise in a window, as doubles near the exact weights."""
    both = factor.rows(np.array([span.last, max(span.before, 1)]))
    weights: F64 = both[0] - both[1] if span.before else both[0]
    return weights


def norms(factor: Factorization, span: Stretch) -> tuple[float, float]:
    """Upper bounds of the Euclidean norm and the sum of absolute values of the exact row."""
    weights, width = row(factor, span), span.last
    far = float(factor.slack[span.last - 1]) + float(factor.slack[max(span.before, 1) - 1])
    size = float(np.sqrt(np.cumsum(weights * weights)[-1]))
    total = float(np.cumsum(np.abs(weights))[-1])
    return (size + far) * (1 + 1e-12), (total + far * width**0.5) * (1 + 1e-12)


def _optimal(hops: int, per_epoch: int) -> F64:
    place = np.arange(per_epoch)
    penalty = np.maximum(hops - np.abs(place[:, None] - place), 0).astype(np.float64)
    v = np.ones(per_epoch)
    for _ in range(_ROUNDS):
        scale = np.sqrt(v)
        values, vectors = np.linalg.eigh(scale[:, None] * penalty * scale)
        root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
        v = np.diag(root).copy()
    gram = root / scale[:, None] / scale
    upper = np.linalg.cholesky(gram[::-1, ::-1])
    return np.asarray(upper[::-1, ::-1].T)


def _toeplitz(hops: int, per_epoch: int) -> F64:
    """Coefficients of the root of (1 - x^n)/(1 - x), from the diagonal down in each column."""
    column: I64 | F64 = np.zeros(per_epoch)
    column[0] = 1.0
    for k in range(1, per_epoch):
        inner = float(np.cumsum(column[1:k] * column[k - 1 : 0 : -1])[-1]) if k > 1 else 0.0
        column[k] = ((k < hops) - inner) / 2
    out = np.zeros((per_epoch, per_epoch))
    for place in range(per_epoch):
        out[place:, place] = column[: per_epoch - place]
    return out

"""Formulas for the error of quantiles on a sample, without running the mechanism.

The contribution bound is applied exactly, and noise and thresholds are those of the mechanism
itself. A quantile is off by as many records as the monotone estimate of the distribution function
there: by |N(0, v)| of the accepted records, where v is the mean of `BandTree.rank_variance` over
edges times the square of `inversion.NEARER`, but by no more than there are on that side. Bands are
assumed to be narrow: only a run of the mechanism on a sample's values shows what a wide band hides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..columns import F64
from ..factorization.prefix_noise import STEPS
from ..histogram.planning.formulas import accepted_by, pairs_of
from ..workload import Workload
from .inversion import NEARER
from .mechanism import Quantiles


class RankLook(NamedTuple):
    """Figures of one window at its last trigger, by key."""

    truth: F64  # (keys,) records
    error: F64  # (keys,) records between a released quantile and the exact one, if it is released
    chance: F64  # (keys,) of being released
    cut: float  # records that the bound cuts off
    records: int


def forecast(made: Quantiles, epochs: Sequence[Sequence[Workload]]) -> list[RankLook]:
    """The expected figures of every window.

    Args:
        made: the calibrated mechanism.
        epochs: windows of an epoch number their units alike.
    """
    found = []
    for epoch in epochs:
        left = np.full(max((work.users for work in epoch), default=0), made.bound.left, np.int64)
        for work in epoch:
            kept = accepted_by(made.bound, work, pairs_of(work), left)
            signs = work.signs(slice(None)).astype(np.float64)
            truth: F64 = np.bincount(work.key, signs, work.keys).astype(np.float64)
            mine = np.bincount(work.key, signs * kept, work.keys)
            error = (
                _off(made, np.maximum(mine, 1), work.last(made.horizon))
                * np.abs(truth)
                / np.maximum(mine, 1)
            )
            chance = _chance(made, work, kept)
            lost = float((~kept).sum())
            found.append(RankLook(truth, error, chance, lost, len(kept)))
    return found


def deviations(made: Quantiles, last: int) -> list[float]:
    """Standard deviation of the rank of each quantile at trigger ``last``, in records."""
    tree = made.tree(last)
    return [NEARER * math.sqrt(float(tree.rank_variance(float(q)).mean())) for q in made.at]


def _off(made: Quantiles, records: F64, last: int) -> F64:
    """(keys,) mean over quantiles of E min(abs(N(0, v)), records on that side)."""
    found: F64 = np.zeros(len(records))
    for q, deviation in zip(map(float, made.at), deviations(made, last), strict=True):
        for share in (q, 1 - q):
            found += _capped(share * records / deviation) * deviation / (2 * len(made.at))
    return found


def _capped(most: F64) -> F64:
    """E min(abs(Z), most) for a standard normal Z."""
    from scipy.special import ndtr  # here: it takes long to load

    found: F64 = math.sqrt(2 / math.pi) * -np.expm1(-(most**2) / 2) + 2 * most * ndtr(-most)
    return found


def _chance(made: Quantiles, work: Workload, kept: NDArray[np.bool_]) -> F64:
    """(keys,) chance of each key to be public at the end, taken at its best trigger."""
    if made.public is not None:
        return np.ones(work.keys)
    from scipy.special import ndtr  # here: it takes long to load

    best, count = np.full(work.keys, -np.inf), np.zeros(work.keys)
    start = np.zeros(1, np.int64)
    for t, rows in enumerate(work.micro_batches(made.horizon), 1):
        signs = work.signs(rows).astype(np.float64) * kept[rows]
        count += np.bincount(work.key[rows], signs, work.keys)
        deviation = math.sqrt(float(made.counter.variance_at(t, start)[0]))
        over = (count - made.threshold[t - 1] / STEPS) / deviation
        best = np.maximum(best, np.where(count < 1, -np.inf, over))
    found: F64 = ndtr(best)
    return found

"""The smooth bound by its definition: every value is its own run, and every pair is tried."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
from hushstream.mechanisms.parts.thresholds.smooth_quantile import Runs


def sorted_runs(values: Sequence[int], place: int, top: int) -> Runs:
    """An ascending column, padded with 0 and ``top``, split at its place P."""
    padded = np.array([0, *values, top], np.int64)
    index = np.arange(len(padded))
    return Runs(padded[: place + 1], index[: place + 1], padded[place:], index[place:])


def exact_bound(runs: Runs, b: Fraction) -> Decimal:
    """max (x_j - x_i)·exp(-b(j-i-1)) over all pairs i < j, in decimals."""
    best = Decimal(0)
    with localcontext() as context:
        context.prec = 50
        rate = Decimal(b.numerator) / Decimal(b.denominator)
        for x, i in zip(runs.low.tolist(), runs.low_place.tolist(), strict=True):
            for y, j in zip(runs.high.tolist(), runs.high_place.tolist(), strict=True):
                if i < j:
                    best = max(best, (y - x) * (-rate * (j - i - 1)).exp())
    return best

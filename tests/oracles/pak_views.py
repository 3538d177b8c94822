"""Moving averages, sliding and decayed sums from released prefix sums: post-processing only.

Weights are for the released prefix sums S_1..S_n of consecutive slots (S_0 = 0 is known). They also
say how much of each prefix's noise is in a value, so `counter_variance` gives its error.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hushstream.errors import ParameterError
from hushstream.mechanisms.columns import F64
from hushstream.mechanisms.pak.counter import PrefixCounter
from hushstream.mechanisms.validate import at_least


def sliding_weights(end: int, width: int) -> dict[int, float]:
    """Weights on prefix sums that give the sum of the last ``width`` of ``end`` slots.

    >>> sliding_weights(5, 2)
    {5: 1.0, 3: -1.0}
    """
    at_least("width", width, 1)
    at_least("end", end, 1)
    first = max(0, end - width)
    return {end: 1.0} | ({first: -1.0} if first else {})


def average_weights(end: int, width: int) -> dict[int, float]:
    """Weights for the mean of the last ``width`` slots, or of all slots if there are fewer."""
    count = min(end, width)
    return {slot: weight / count for slot, weight in sliding_weights(end, width).items()}


def decayed_weights(end: int, keep: Fraction) -> dict[int, float]:
    """Weights for Σ keep^(end-i)·x_i over the slots i = 1..end.

    Σ_i keep^(end-i)·(S_i - S_{i-1}): prefix i has weight keep^(end-i)·(1 - keep), the last one 1.

    Raises:
        ParameterError: ``keep`` does not lie in (0, 1).
    """
    if not 0 < keep < 1:
        raise ParameterError("keep", keep, "must lie strictly between 0 and 1")
    at_least("end", end, 1)
    rate = float(keep)
    weights = {slot: rate ** (end - slot) - rate ** (end - slot - 1) for slot in range(1, end)}
    return weights | {end: 1.0}


def view(prefix: F64, weights: dict[int, float]) -> float:
    """Σ weight·S_slot, with S_1 first in ``prefix``.

    >>> view(np.array([3.0, 5.0, 9.0]), sliding_weights(3, 2))
    6.0
    """
    slots = np.fromiter(weights.keys(), np.intp, len(weights))
    values = np.fromiter(weights.values(), np.float64, len(weights))
    return float((prefix[slots - 1] * values).sum())


def counter_variance(counter: PrefixCounter, theta: int, weights: dict[int, float]) -> float:
    """Noise variance of a view, in squared grid steps.

    From variances of differences: Σ_ij w_i w_j Cov(S_i, S_j) with
    2·Cov(S_i, S_j) = Var(S_i) + Var(S_j) - Var(S_i - S_j).
    """
    slots = sorted(weights)
    own = {slot: counter.variance(theta, 0, slot) for slot in slots}
    total = 0.0
    for i in slots:
        for j in slots:
            apart = counter.variance(theta, min(i, j), max(i, j)) if i != j else 0.0
            total += weights[i] * weights[j] * (own[i] + own[j] - apart) / 2
    return total

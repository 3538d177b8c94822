"""Thresholds of a histogram: least counts at which one unit's keys appear with probability ≤ δ."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from ...factorization.prefix_noise import ENDLESS, STEPS, Process
from ...parts.bounds.bounding import Bound
from ...parts.thresholds import key_selection as selection
from ...validate import rational
from ..endless.thresholds import Thresholds
from ..settings import HistogramParameters
from .bound import sensitivity2


def least_counts(
    parameters: HistogramParameters, delta: Fraction, bound: Bound, process: Process
) -> Sequence[int]:
    """Least counts per trigger, in 1/STEPS records, for any bound and any noise of the count."""
    exposure = selection.Exposure(sensitivity2(bound), bound.most_per_key())
    if process.name == ENDLESS:
        return Thresholds(process, exposure, delta, parameters.min_users)
    return least_by_trigger(parameters, delta, exposure, process)


def least_by_trigger(
    parameters: HistogramParameters,
    delta: Fraction,
    exposure: selection.Exposure,
    process: Process,
) -> tuple[int, ...]:
    """Least counts per trigger for any exposure, where the last trigger is stated."""
    last = rational("last_share", parameters.last_share)
    beta = selection.shares(process.horizon, delta, last)
    least = selection.thresholds(beta, exposure, process.quantile, parameters.min_users, STEPS)
    return tuple(least.tolist())

"""Variances of reports by each channel, and the best channel for a threshold.

For a value v in [-1, 1], Piecewise answers with variance ``a + b v²``, b > 0, and the two-point
channel with C² - v². Hybrid mixes the two so that v does not matter. So one of its parts alone
varies less, given even rough knowledge of E[v²]: Piecewise if values lie in the middle of
[0, theta], the two-point channel if they lie at its ends, as mostly-zero values do.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

import numpy as np

from ...client.survey import CHANNELS, NARROW, RANGE, STEP, VALUE, Survey
from ..columns import F64, I64
from .fit import square_terms, worst_variance


@lru_cache(maxsize=64)
def variances(survey: Survey) -> dict[int, Fraction]:
    """Worst variance of one report about a value in [-1, 1], by group; by Hybrid if of values."""
    wave = worst_variance(survey.square_wave)
    return {RANGE: wave, NARROW: wave, VALUE: worst_variance(survey.hybrid)}


@lru_cache(maxsize=64)
def _told(survey: Survey) -> tuple[Fraction, ...]:
    return tuple(worst_variance(survey.mixed(channel)) for channel in range(CHANNELS))


def worst_of(survey: Survey, group: int, step: int) -> Fraction:
    """Worst variance of a report of a group that was told ``step``; a mean weighs with it."""
    if group != VALUE or step < STEP:
        return variances(survey)[group]
    return _told(survey)[step // STEP]


@lru_cache(maxsize=64)
def terms(survey: Survey) -> tuple[tuple[float, float], ...]:
    """(a, b) of each channel of value reports: the variance of one about v is ``a + b v²``."""
    fine, coarse = square_terms(survey.hybrid.piecewise), float(survey.hybrid.two_point.reach) ** 2
    found = []
    for channel in range(CHANNELS):
        mix = float(survey.mixed(channel).mix)
        found.append((mix * fine[0] + (1 - mix) * coarse, mix * fine[1] - 1))
    return tuple(found)


def expected(survey: Survey, step: int, square: float) -> float:
    """Expected variance of a report of the value group that was told ``step``.

    Args:
        square: E[v²] of the values that are clipped to the threshold and scaled to [-1, 1].
    """
    a, b = terms(survey)[step // STEP]
    return a + b * square


def least(survey: Survey, density: F64) -> tuple[F64, I64]:
    """(d,) least expected variance of a report with each threshold, and (d,) its channel.

    A survey that does not tell a channel has Hybrid, whose worst variance is that of any value.

    Args:
        density: (d,) distribution of values over equal buckets; threshold i ends bucket i.
    """
    hybrid = np.full(len(density), float(variances(survey)[VALUE]))
    if survey.channel != "told":
        return hybrid, np.zeros(len(density), np.int64)
    square = _mean_squares(density)
    made = np.stack([hybrid, *(a + b * square for a, b in terms(survey)[1:])])
    channel = made.argmin(axis=0)
    return made[channel, np.arange(len(density))], channel


def _mean_squares(density: F64) -> F64:
    """(d,) E[v²], where values clipped to i/d, i = 1..d, become v of [-1, 1]."""
    d = len(density)
    theta, middle = np.arange(1, d + 1) / d, (np.arange(d) + 0.5) / d
    beyond = np.maximum(1 - density.cumsum(), 0)
    first = (density * middle).cumsum() / theta + beyond
    second = (density * middle**2).cumsum() / theta**2 + beyond
    return np.asarray(4 * second - 4 * first + 1)

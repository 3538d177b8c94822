"""Range and threshold of a survey in two rounds, from reports that are already private.

One round cannot find a threshold far below B: Square Wave spreads its noise over all of [0, B].
The first round, on a scale of octaves, only finds the magnitude of values; the second reports
within twice that range.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ...client.survey import NARROW, RANGE, STEP, VALUE, Survey
from ..columns import F64
from .channels import least, variances
from .estimate import Buckets, density
from .fit import mean_excess

MARGIN = 2
"""Ratio of the second round's range to the first round's guess of a threshold."""

GUARD = 1.5
"""Mass of the first round's estimate outside the range, in units of its noise; from "tuned"."""

# For surveys that tell a channel; all chosen on "tuned" and "filled" of `benchmarks/heldout.py`.
_NEAR_TOP = 0.6  # a range from this share of B on is B itself
_DOUBT = 0.5  # uncertainty of the cost of a cut, divided by ε
_END = 8  # values beyond a range are clipped to it, so its last eighth shows them
_SHOWN = 1  # mass there that is considered real, in units of its worst noise


@lru_cache(maxsize=64)
def edges(survey: Survey) -> F64:
    """(d,) upper ends of the scale's buckets, as shares of B."""
    steps = range(1, survey.buckets + 1)
    return np.array([float(survey.threshold(i) / survey.bound) for i in steps])


def step_of(survey: Survey, share: float) -> int:
    """The first step whose threshold is at least ``share`` of B; beyond B, the last step."""
    place = int(np.searchsorted(edges(survey), share * (1 - 1e-12)))
    return min(place, survey.buckets - 1) + 1


def found_range(survey: Survey, seen: Buckets, smooth: bool, guard: float) -> int:
    """Step of the range in which the narrow group reports; B itself without reports.

    Twice the smaller of two guesses: the threshold of least error by the estimated distribution,
    and its quantile above which the mass is at most ``guard`` times the noise of its estimate. At
    small epsilon the estimated mass above the threshold is mostly noise, so its square has the
    weight ε⁴/4 (ε within [1/2, 2]). If the channel is told, a range of at least three fifths of B
    becomes B.
    """
    reports = int(seen.reports[seen.group == RANGE].sum())
    if not reports:
        return survey.buckets
    share, top = density(survey, seen, smooth, RANGE), edges(survey)
    middle = (np.concatenate([[0.0], top[:-1]]) + top) / 2
    cut = np.array([float(share @ np.maximum(middle - end, 0)) for end in top])
    noise = float(variances(survey)[VALUE]) / (4 * _values(survey, reports))
    weight = min(max(float(survey.epsilon), 0.5), 2.0) ** 4 / 4
    best = top[int(np.argmin(noise * top**2 + weight * cut**2))]
    unsure = min(guard * (float(variances(survey)[RANGE]) / reports) ** 0.5, 0.5)
    rank = min(int(np.searchsorted(share.cumsum(), 1 - unsure)), survey.buckets - 1)
    within = MARGIN * min(float(best), float(top[rank]))
    return step_of(survey, 1.0 if _told(survey) and within >= _NEAR_TOP else within)


def found_threshold(survey: Survey, seen: Buckets, exact: F64, within: int) -> int:
    """Step of the threshold, with its channel, for the density ``exact`` within a range.

    With theta a share of the range and n value reports, it minimises ``theta² V / 4n + T² / 2``.
    Without reports it is the range itself. If the range is B and the channel is told, B is kept if
    its cost is at most ``1 + 1 / 2ε`` times the least, the uncertainty of the cost of a cut, and
    the mass above B/2 exceeds `GUARD` times its worst noise: otherwise noise alone made the range
    so wide. If the range is less than B, theta may lie beyond it, see `_farther`.
    """
    reports = int(seen.reports[seen.group == NARROW].sum())
    if not reports:
        return within
    variance, channel = least(survey, exact)
    theta = np.arange(1, len(exact) + 1) / len(exact)
    noise = variance / (4 * _values(survey, reports))
    cost = noise * theta**2 + mean_excess(exact) ** 2 / 2
    best = int(np.argmin(cost))
    if within == survey.buckets and _told(survey):
        keeps = cost[-1] <= (1 + _DOUBT / float(survey.epsilon)) * cost[best]
        upper = float(exact[len(exact) // 2 :].sum())
        keeps &= upper > GUARD * (float(variances(survey)[NARROW]) / reports) ** 0.5
        best = len(exact) - 1 if keeps else best
    share = float(survey.threshold(within) / survey.bound)
    step = step_of(survey, float(theta[best]) * share) + int(channel[best]) * STEP
    if within == survey.buckets or not _told(survey):
        return step
    return _farther(survey, reports, exact, within, step)


def _farther(survey: Survey, reports: int, exact: F64, within: int, step: int) -> int:
    """The step of twice the range, by Hybrid, if values beyond the range justify it; else ``step``.

    On the scale of octaves, noise hides rare large values in the range group. The narrow group
    clips them to its range, so they are mass at its end. That mass counts if it exceeds its worst
    noise, less half of that noise. Values beyond the range are assumed to lie at twice
    its end: their position is unknown, and assuming B would pay the noise of all of B for a few
    values that are hardly clipped.
    """
    noise = (float(variances(survey)[NARROW]) / reports) ** 0.5
    mass = float(exact[-(len(exact) // _END) :].sum())
    if mass <= _SHOWN * noise:
        return step
    top = edges(survey)
    end = min(MARGIN * float(top[within - 1]), 1.0)
    far = step_of(survey, end)
    theta = np.array([top[step % STEP - 1], top[far - 1]])
    cut = (mass - _SHOWN / 2 * noise) * np.maximum(end - theta, 0)
    spread = float(variances(survey)[VALUE]) / (4 * _values(survey, reports))
    near, beyond = spread * theta**2 + cut**2 / 2
    return far if beyond < near else step


def _told(survey: Survey) -> bool:
    return survey.channel == "told"


def _values(survey: Survey, reports: int) -> float:
    """Expected number of value reports, given the reports of one of the two other groups."""
    return reports * 2 * float((1 - survey.share) / survey.share)

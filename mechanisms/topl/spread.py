"""Errors of a mean of reports about everybody's clipped values, beside the noise of reports.

A hash decides who reports values, who narrow ones and who the range. The mean rests on the first
two, and their values are not those of everybody: at large epsilon, where reports are nearly exact,
that is the larger error. How much values differ is estimated from the reports alone.

With n_g reports of weight a_g in the mean (Σ n_g a_g = 1), N reports of all groups, and values of
variance S², a random division into groups gives the error the variance S² (Σ n_g a_g² - 1/N).
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from ...client.channels import Window
from ...client.survey import NARROW, RANGE, VALUE, Survey
from .estimate import Buckets, told_top, variances


def difference(survey: Survey, seen: Buckets) -> float:
    """S², the variance of clipped values, in squared units of the user's own.

    From the value group's reports, or from a group by Square Wave while there are none: the
    variance of their answers less the worst of their noise. One further report of the largest
    variance is counted in, so that few reports err on the safe side. S² lies within [0, top²/4],
    whatever liars answer.
    """
    groups = set(seen.group.tolist())
    others = NARROW if survey.rounds > 1 else RANGE
    group = VALUE if VALUE in groups else others
    one = seen.where(seen.group == group)
    first, second = _moments(survey, group, one)
    noise, reports = variances(survey)[group], int(one.reports.sum())
    inner = second - first**2 / reports if reports else Fraction(0)
    excess = (inner + noise + 1) / max(reports, 1) - noise
    top = told_top(survey, int(one.theta[0]) if reports else 0)
    return float(min(max(excess, Fraction(0)), Fraction(1)) * top**2 / 4)


def division(survey: Survey, seen: Buckets, difference: float) -> float:
    """Squared error of the mean of ``seen`` that its noise does not hold.

    It is that of the division into groups, and, for groups by Square Wave, that of a bucket which
    stands for its middle: at most half a bucket, squared.
    """
    precision, squares, halves = Fraction(0), Fraction(0), Fraction(0)
    for group, theta in sorted(set(zip(seen.group.tolist(), seen.theta.tolist(), strict=True))):
        if survey.rounds > 1 and group == RANGE:
            continue
        reports = int(seen.reports[(seen.group == group) & (seen.theta == theta)].sum())
        top = told_top(survey, theta)
        each = 1 / (variances(survey)[group] * top**2)
        precision += reports * each
        squares += reports * each**2
        halves += 0 if group == VALUE else reports * each * top / (2 * survey.buckets)
    if not precision:
        return 0.0
    everybody = Fraction(1, int(seen.reports.sum()))
    uneven = max(squares / precision**2 - everybody, Fraction(0))
    return difference * float(uneven) + float((halves / precision) ** 2)


def _moments(survey: Survey, group: int, seen: Buckets) -> tuple[Fraction, Fraction]:
    """Sums of the decoded answers, as values in [-1, 1], and of their squares."""
    if group != VALUE:
        return _of_window(survey.square_wave, seen)
    hybrid = survey.hybrid
    first = hybrid.piecewise.outputs
    down, up = (int(seen.reports[seen.code == first + side].sum()) for side in (0, 1))
    one, two = _of_window(hybrid.piecewise, seen.where(seen.code < first))
    reach = hybrid.two_point.reach
    return one + reach * (up - down), two + reach**2 * (up + down)


def _of_window(channel: Window, seen: Buckets) -> tuple[Fraction, Fraction]:
    place = (2 * seen.code - channel.outputs + 1).astype(object)
    one, two = (int(np.sum(seen.reports * place**power)) for power in (1, 2))
    half = channel.step / 2
    return half * one, half**2 * two

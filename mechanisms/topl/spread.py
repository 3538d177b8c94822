"""Errors of a mean of clipped values besides the noise of reports: who reports what.

A hash decides which users report values, narrow values or the range. The mean uses the first two
groups, whose values are not those of all users: at large epsilon, where reports are nearly exact,
that is the larger error. The variance of values is estimated from the reports alone.

With n_g reports of weight a_g in the mean (Σ n_g a_g = 1), N reports of all groups, and values of
variance S², a random division into groups gives the error the variance S² (Σ n_g a_g² - 1/N).
"""

from __future__ import annotations

from fractions import Fraction

from ...client.survey import NARROW, RANGE, VALUE, Survey
from .channels import worst_of
from .estimate import Buckets, moments, noise_of, told_top


def difference(survey: Survey, seen: Buckets) -> float:
    """S², the variance of clipped values, in squared units of the user's own.

    It is the variance of the value group's answers less that of their noise; as long as there are
    none, of a Square Wave group's. One further report of the largest variance is included, so that
    few reports err on the safe side. S² lies within [0, top²/4], whatever liars answer.
    """
    groups = set(seen.group.tolist())
    others = NARROW if survey.rounds > 1 else RANGE
    group = VALUE if VALUE in groups else others
    one = seen.where(seen.group == group)
    first, second = moments(survey, group, one)
    reports = int(one.reports.sum())
    told = int(one.theta[0]) if reports else 0
    noise = noise_of(survey, group, told, one)
    inner = second - first**2 / reports if reports else Fraction(0)
    excess = (inner + noise + 1) / max(reports, 1) - noise
    top = told_top(survey, told)
    return float(min(max(excess, Fraction(0)), Fraction(1)) * top**2 / 4)


def division(survey: Survey, seen: Buckets, difference: float) -> float:
    """Squared error of the mean of ``seen`` besides its noise.

    It comes from the division into groups and, for Square Wave groups, from replacing a bucket by
    its middle: at most half a bucket, squared.
    """
    precision, squares, halves = Fraction(0), Fraction(0), Fraction(0)
    for group, theta in sorted(set(zip(seen.group.tolist(), seen.theta.tolist(), strict=True))):
        if survey.rounds > 1 and group == RANGE:
            continue
        reports = int(seen.reports[(seen.group == group) & (seen.theta == theta)].sum())
        top = told_top(survey, theta)
        each = 1 / (worst_of(survey, group, theta) * top**2)
        precision += reports * each
        squares += reports * each**2
        halves += 0 if group == VALUE else reports * each * top / (2 * survey.buckets)
    if not precision:
        return 0.0
    everybody = Fraction(1, int(seen.reports.sum()))
    uneven = max(squares / precision**2 - everybody, Fraction(0))
    return difference * float(uneven) + float((halves / precision) ** 2)

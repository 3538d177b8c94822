"""Estimates from a survey's reports: buckets of reports, and exact means.

*Liars.* Let n value reports of weight 1 and m range reports of weight r count, k and j of them
false. The mean moves by at most (k·theta·C + j·r·B·c) / (n + r·m), with C and c the largest
absolute answers of Hybrid and Square Wave, and in expectation by half of that with C + 1 and c + 1.
*Proof.* The mean is Σ wᵢ xᵢ / Σ wᵢ. A liar chooses neither weight, group nor threshold, nor how
often a report counts: false answers change only some xᵢ. All answers of a value report lie in an
interval of length theta·C around theta / 2; those of a range report in one of length B·c around
B / 2. A true answer has its expectation in [0, theta], or [0, B], from which no answer is further
than theta (C + 1) / 2, or B (c + 1) / 2. ∎
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...client.channels import Window
from ...client.survey import NARROW, RANGE, STEP, VALUE, Survey
from ..columns import F64, I64
from ..keys import Keys
from .channels import least, terms, variances, worst_of
from .fit import choose_threshold, fit

# A report bucket is 32 bits: one for the group, 13 for theta, 2 for the channel, 16 for its output.
_GROUP, _THETA, _CHANNEL, _CODE = 31, 18, 16, (1 << 16) - 1
CHOSEN = 1 << 40  # row that stores theta; no bucket is that large
FOUND = CHOSEN + 1  # row that stores the range of a survey in two rounds


def pack(group: I64, theta: I64, code: I64) -> I64:
    """Report buckets as integers below 2^32; one of the Square Wave groups has no theta."""
    step = theta % STEP << _THETA | theta // STEP << _CHANNEL
    return np.asarray((group == VALUE).astype(np.int64) << _GROUP | step | code)


class Buckets(NamedTuple):
    """Report counts by bucket; all columns have equal length."""

    group: I64
    theta: I64  # told step, with its channel; 0 in the range group, the range in the narrow group
    code: I64
    reports: I64

    def where(self, rows: NDArray[np.bool_]) -> Buckets:
        """Some of the buckets."""
        return Buckets(*(column[rows] for column in self))


def unpack(key: Keys, reports: I64) -> Buckets:
    """Buckets from keys made by `pack`, without the rows `CHOSEN` and `FOUND`."""
    codes = integers(key)
    theta = (codes >> _THETA & STEP - 1) + (codes >> _CHANNEL & 3) * STEP
    group = np.where(codes >> _GROUP, VALUE, np.where(theta, NARROW, RANGE))
    return Buckets(group, theta, codes & _CODE, reports).where(codes < CHOSEN)


class Steps(NamedTuple):
    """Steps published for a window before a micro-batch; 0: none."""

    theta: int = 0  # with the channel told together with it
    within: int = 0  # the range of the narrow group


def counted(seen: Buckets, told: Steps) -> Buckets:
    """The buckets that count: the range group's, and those under the published steps.

    Reports under another threshold answer another question. A value clipped lower would pull the
    mean down, with the larger weight of its smaller variance, so a liar who chooses theta or the
    channel would choose their own weight.
    """
    own = np.where(seen.group == VALUE, told.theta, told.within)
    return seen.where((seen.group == RANGE) | (seen.theta == own))


def integers(key: Keys) -> I64:
    """Decode eight-byte keys into integers; there may be zero keys."""
    return key.codes().astype(np.int64) if len(key) else np.empty(0, np.int64)


def noise_of(survey: Survey, group: int, theta: int, one: Buckets) -> Fraction:
    """Variance of the noise of a report in ``one``, whose devices were all told ``theta``.

    For Hybrid and Square Wave it is the worst variance. For a told channel, ``a + b v²`` follows
    from the answers alone. Piecewise: their mean square is ``a + (b + 1) E[v²]``. The two-point
    channel answers ±C for any v, so only ``E[v²] ≥ E[v]²`` is known: its noise is taken to be that
    of equal values, the whole variance of the answers. Random rounding to the levels adds at most
    half a step, squared. One further report of the worst variance is included.
    """
    worst, reports = worst_of(survey, group, theta), int(one.reports.sum())
    if group != VALUE or theta < STEP or not reports:
        return worst
    a, b = terms(survey)[theta // STEP]
    first, second = (float(part) / reports for part in moments(survey, group, one))
    mean = min(max(first, -1.0), 1.0) ** 2
    square = (second - a) / (1 + b) if b > -1 else mean - (second - mean) / reports
    noise = min(a + b * min(max(square, 0.0), 1.0) + survey.levels**-2, float(worst))
    return (reports * Fraction(noise) + worst) / (reports + 1)


def moments(survey: Survey, group: int, seen: Buckets) -> tuple[Fraction, Fraction]:
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


def density(survey: Survey, seen: Buckets, smooth: bool, group: int = RANGE) -> F64:
    """Distribution over the buckets of [0, B], from the range group alone.

    In two rounds the range group's buckets are those of its scale, and the narrow group's buckets
    divide the range that it was told.
    """
    ranged = seen.where(seen.group == group)
    counts = np.zeros(survey.square_wave.outputs, np.int64)
    np.add.at(counts, ranged.code, ranged.reports)
    return fit(counts, survey.square_wave, smooth).density


def threshold(survey: Survey, seen: Buckets, exact: F64) -> int:
    """Step of the threshold, with its channel, for the density of the range group's reports.

    It is the whole range if there are no reports. The threshold is the one for Hybrid, and the
    channel the best for it: with less noise, false tail mass would raise the threshold in one
    round.
    """
    others = float((1 - survey.share) / survey.share)  # value reports per range report
    ranged = int(seen.reports[seen.group == RANGE].sum())
    if not ranged:
        return survey.buckets
    best = choose_threshold(exact, float(variances(survey)[VALUE]), ranged * others)
    _, channel = least(survey, exact)
    return best + int(channel[best - 1]) * STEP


def mean(survey: Survey, seen: Buckets) -> tuple[Fraction | None, float]:
    """Inverse-variance mean over groups and thresholds, and the variance of its noise.

    In two rounds the range group is left out: answers on the scale of octaves say little about a
    mean.

    Each group's mean is unbiased for values clipped to its range (in the range group up to half a
    bucket, since its middle stands for a bucket). The weights are public: numbers of reports and
    worst variances. The variance is that of `noise_of`.

    Returns:
        The exact mean in the user's own units (None without reports), and its noise variance.
    """
    precision, weighted, noise = Fraction(0), Fraction(0), Fraction(0)
    if survey.rounds > 1:
        seen = seen.where(seen.group != RANGE)
    for group, theta in sorted(set(zip(seen.group.tolist(), seen.theta.tolist(), strict=True))):
        one = seen.where((seen.group == group) & (seen.theta == theta))
        top = told_top(survey, theta)
        variance = worst_of(survey, group, theta) * top**2 / 4
        each = int(one.reports.sum()) / variance
        precision += each
        noise += each * noise_of(survey, group, theta, one) / worst_of(survey, group, theta)
        weighted += _said(survey, group, one) * top / variance
    if not precision:
        return None, 0.0
    return weighted / precision, float(noise / precision**2)


def told_top(survey: Survey, theta: int) -> Fraction:
    """Upper end of the values of a group that was told ``theta`` (0: nothing)."""
    return survey.threshold(theta) if theta else survey.bound


def _said(survey: Survey, group: int, seen: Buckets) -> Fraction:
    """Sum of the reported values, each as a fraction of its own range."""
    reports = int(seen.reports.sum())
    if group in (RANGE, NARROW):
        wave = survey.square_wave
        middle = Fraction(wave.inputs - 1, wave.inputs)
        return (reports + middle * _decoded(wave, seen)) / 2
    hybrid = survey.hybrid
    first = hybrid.piecewise.outputs
    down, up = (int(seen.reports[seen.code == first + side].sum()) for side in (0, 1))
    fine = _decoded(hybrid.piecewise, seen.where(seen.code < first))
    return (reports + fine + hybrid.two_point.reach * (up - down)) / 2


def _decoded(channel: Window, seen: Buckets) -> Fraction:
    """Exact sum of decoded outputs."""
    doubled = int((seen.reports * (2 * seen.code - channel.outputs + 1)).sum())
    return channel.step * Fraction(doubled, 2)

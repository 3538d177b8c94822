"""Estimates from a survey's reports: buckets of reports, and exact means.

*Liars.* Let n value reports of weight 1 and m range reports of weight r count, k and j of them
false. The mean moves by at most (k·theta·C + j·r·B·c) / (n + r·m), with C and c the largest
absolute answers of Hybrid and Square Wave, and in expectation by half of that with C + 1 and c + 1.
*Proof.* The mean is Σ wᵢ xᵢ / Σ wᵢ. A liar chooses neither weight, group nor threshold, nor how
often a report counts: false answers change only some xᵢ. All answers of a value report lie in an
interval of length theta·C, around theta / 2; those of a range report in one of length B·c, around
B / 2. A true answer has its expectation in [0, theta], or [0, B], from which no answer is further
than theta (C + 1) / 2, or B (c + 1) / 2. ∎
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...client.channels import Window
from ...client.survey import NARROW, RANGE, VALUE, Survey
from ..columns import F64, I64
from ..keys import Keys
from .fit import choose_threshold, fit, worst_variance

# A report bucket is 32 bits: one for the group, 13 for theta, 18 for the channel's output.
_GROUP, _THETA, _CODE = 31, 18, (1 << 18) - 1
CHOSEN = 1 << 40  # row that remembers theta; no bucket is that large
FOUND = CHOSEN + 1  # row that remembers the range of a survey in two rounds


def pack(group: I64, theta: I64, code: I64) -> I64:
    """Report buckets as integers below 2^32; of the groups by Square Wave, one has no theta."""
    return np.asarray((group == VALUE).astype(np.int64) << _GROUP | theta << _THETA | code)


class Buckets(NamedTuple):
    """Report counts by bucket, all of one length."""

    group: I64
    theta: I64  # 0 in the range group, the range in the narrow group
    code: I64
    reports: I64

    def where(self, rows: NDArray[np.bool_]) -> Buckets:
        """Some of the buckets."""
        return Buckets(*(column[rows] for column in self))


def unpack(key: Keys, reports: I64) -> Buckets:
    """Buckets from keys made of `pack`; the rows `CHOSEN` and `FOUND` are left out."""
    codes = integers(key)
    theta = codes >> _THETA & 0x1FFF
    group = np.where(codes >> _GROUP, VALUE, np.where(theta, NARROW, RANGE))
    return Buckets(group, theta, codes & _CODE, reports).where(codes < CHOSEN)


class Steps(NamedTuple):
    """Steps that were published for a window before a micro-batch; 0 where there was none."""

    theta: int = 0
    within: int = 0  # the range of the narrow group


def counted(seen: Buckets, told: Steps) -> Buckets:
    """The buckets that count: the range group's, and those under what was published.

    Reports under another threshold answer another question. A value clipped lower would pull the
    mean down, with the larger weight of its smaller variance, so a liar who chooses theta would
    choose his own weight.
    """
    own = np.where(seen.group == VALUE, told.theta, told.within)
    return seen.where((seen.group == RANGE) | (seen.theta == own))


def integers(key: Keys) -> I64:
    """Decode eight-byte keys into integers; there may be zero keys."""
    return key.codes().astype(np.int64) if len(key) else np.empty(0, np.int64)


@lru_cache(maxsize=64)
def variances(survey: Survey) -> dict[int, Fraction]:
    """Worst variance of one report about a value in [-1, 1], by group."""
    wave = worst_variance(survey.square_wave)
    return {RANGE: wave, NARROW: wave, VALUE: worst_variance(survey.hybrid)}


def density(survey: Survey, seen: Buckets, smooth: bool, group: int = RANGE) -> F64:
    """Distribution over the buckets of [0, B], from the range group alone.

    In two rounds the range group's buckets are those of its scale, and the narrow group's divide
    the range that it was told.
    """
    ranged = seen.where(seen.group == group)
    counts = np.zeros(survey.square_wave.outputs, np.int64)
    np.add.at(counts, ranged.code, ranged.reports)
    return fit(counts, survey.square_wave, smooth).density


def threshold(survey: Survey, seen: Buckets, exact: F64) -> int:
    """Step of the threshold for the density ``exact``, estimated from the range group's reports.

    It is the whole range where there is no report.
    """
    others = float((1 - survey.share) / survey.share)  # value reports for one range report
    ranged = int(seen.reports[seen.group == RANGE].sum())
    variance = float(variances(survey)[VALUE])
    return choose_threshold(exact, variance, ranged * others)


def mean(survey: Survey, seen: Buckets) -> tuple[Fraction | None, float]:
    """Inverse-variance mean over groups and thresholds, and its worst variance.

    Answers on the scale of octaves say little about a mean: in two rounds the range group is left
    out.

    Each group's own mean is unbiased for values clipped to its range (in the range group, where a
    bucket stands for its middle, to within half a bucket). The weights are public: numbers of
    reports and worst variances.

    Returns:
        The exact mean in the user's own units, None without reports; and the variance of its noise.
    """
    precision, weighted = Fraction(0), Fraction(0)
    if survey.rounds > 1:
        seen = seen.where(seen.group != RANGE)
    for group, theta in sorted(set(zip(seen.group.tolist(), seen.theta.tolist(), strict=True))):
        one = seen.where((seen.group == group) & (seen.theta == theta))
        top = told_top(survey, theta)
        variance = variances(survey)[group] * top**2 / 4
        precision += int(one.reports.sum()) / variance
        weighted += _said(survey, group, one) * top / variance
    if not precision:
        return None, 0.0
    return weighted / precision, float(1 / precision)


def told_top(survey: Survey, theta: int) -> Fraction:
    """Upper end of the values of a group that was told ``theta``, or nothing (0)."""
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
    """Sum of decoded outputs, exactly."""
    doubled = int((seen.reports * (2 * seen.code - channel.outputs + 1)).sum())
    return channel.step * Fraction(doubled, 2)

"""The share of values at or above a threshold, from reports by Square Wave alone.

A mean of clipped values and its interval say nothing about the clipped part. But the range group
and the narrow group also report values beyond theta, and theta is an end of one of their buckets
(or lies within one). This is post-processing of reports: devices report nothing more for it.

*Unbiased answers.* Square Wave gives bucket i the outputs i .. i+w-1 with probability h, all others
with l. A number g(j) for each output j has the expectation f(i) for every bucket i if and only if
``g(i + w - 1) - g(i - 1) = (f(i) - f(i - 1)) / (h - l)`` for i ≥ 1, and it holds for i = 0. That
leaves one number free for each residue of j modulo w; here the mean of each residue is the same,
which minimises Σ g².

*Interval.* A sharp step f has much noise, a ramp of r buckets far less. A ramp that ends at the
step lies above it, a ramp that begins there below it: ``E f_below ≤ share ≤ E f_above``. So the
mean answers of both ramps, each moved outwards by the normal quantile of ``1 - 0.05 / 2m`` times
its standard error, in each of m groups, hold the share together with a probability of at least
95 % (Bonferroni; in the limit of many reports, with theta and r fixed). The width r follows from
numbers of reports and theta.

*Liars* can choose this share, as they can choose the threshold.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

from ...client.channels import Window
from ...client.survey import NARROW, RANGE, Survey
from ..columns import F64
from .estimate import Buckets, Steps

LEVEL = 0.95
_PPM = 1_000_000


class Beyond(NamedTuple):
    """An estimated share of values and both ends of its 95 % interval, in parts per million."""

    share: int
    low: int
    high: int


class Answers(NamedTuple):
    """``whole[j] * unit + start`` for each output j: an unbiased answer of a ramp."""

    whole: tuple[int, ...]
    unit: float
    start: float

    def of(self, counts: dict[int, int]) -> tuple[float, float]:
        """The mean answer of reports, given their numbers by output, and its standard error.

        The error includes one further report of the largest answer, so that few reports do not look
        certain.
        """
        n = sum(counts.values())
        one = sum(many * self.whole[code] for code, many in counts.items())
        two = sum(many * self.whole[code] ** 2 for code, many in counts.items())
        most = max(abs(each) for each in self.whole) ** 2
        spread = math.sqrt((two + most) * n - one**2) / n / math.sqrt(n)
        return self.start + self.unit * (one / n), self.unit * spread


@lru_cache(maxsize=512)
def answers(channel: Window, first: int, width: int) -> Answers:
    """Answers of the ramp that rises by 1/width at each of the buckets from ``first`` on."""
    w, d = channel.width, channel.inputs
    steps = [0] * channel.outputs
    for i in range(1, d):
        steps[i + w - 1] = steps[i - 1] + (first <= i < first + width)
    sizes = [len(steps[place::w]) for place in range(w)]
    scale = math.lcm(*sizes)
    for place, size in enumerate(sizes):
        sum_ = sum(steps[place::w])
        steps[place::w] = [one * scale - sum_ * (scale // size) for one in steps[place::w]]
    gap = channel.high - channel.low
    unit = channel.total / (width * gap * scale)
    begins = min(max((1 - first) / width, 0.0), 1.0)
    return Answers(tuple(steps), unit, begins - sum(steps[:w]) / (width * scale))


def beyond(survey: Survey, seen: Buckets, told: Steps, density: F64) -> Beyond:
    """The share of values at or above the threshold ``told.theta``; none lie beyond B.

    Args:
        density: (d,) the distribution of the group that found the threshold. Its mass from theta
            on, clamped to the interval, is the estimate.
    """
    if told.theta == survey.buckets:
        return Beyond(0, 0, 0)
    places = {RANGE: (told.theta, told.theta)}
    if told.within:
        place = survey.threshold(told.theta) / survey.threshold(told.within) * survey.buckets
        last = survey.buckets - 1  # holds everything beyond the range
        places[NARROW] = (min(math.floor(place), last), math.ceil(place))
    counts = {group: _counts(seen, group) for group in places}
    used = [group for group in places if counts[group]]
    if not used:
        return Beyond(0, 0, _PPM)
    reach = NormalDist().inv_cdf(1 - (1 - LEVEL) / 2 / len(used))
    ends = [_ends(survey.square_wave, counts[group], *places[group], reach) for group in used]
    low, high = (_inside(end) for end in (max(e[0] for e in ends), min(e[1] for e in ends)))
    low, high = min(low, high), max(low, high)
    inner = places[NARROW if told.within else RANGE][0]
    share = min(max(float(density[inner:].sum()), low), high)
    return Beyond(round(share * _PPM), math.floor(low * _PPM), math.ceil(high * _PPM))


def _ends(
    channel: Window, counts: dict[int, int], inner: int, outer: int, reach: float
) -> tuple[float, float]:
    """Both ends of the interval from ramps around a step between the buckets inner and outer.

    The width of the ramps is the power of two that gives the shortest interval for evenly spread
    values.
    """
    n, d = sum(counts.values()), channel.inputs

    def length(width: int) -> float:
        one = answers(channel, outer, width)
        square = sum(each**2 for each in one.whole) / channel.outputs
        return reach * one.unit * math.sqrt(square / n) + width / (2 * d)

    widths = [1 << power for power in range(max(d.bit_length() - 2, 1))]
    width = min(widths, key=length)
    below, below_error = answers(channel, outer, width).of(counts)
    above, above_error = answers(channel, inner - width + 1, width).of(counts)
    return below - reach * below_error, above + reach * above_error


def _counts(seen: Buckets, group: int) -> dict[int, int]:
    """Reports of a group by output."""
    mine = seen.where(seen.group == group)
    found: dict[int, int] = {}
    for code, many in zip(mine.code.tolist(), mine.reports.tolist(), strict=True):
        found[code] = found.get(code, 0) + many
    return found


def _inside(share: float) -> float:
    return min(max(share, 0.0), 1.0)

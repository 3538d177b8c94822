"""The aggregator's side of local privacy: distributions and thresholds from perturbed reports.

Everything here is post-processing of reports that are already private, except `simulate`, which
draws many reports at once from the tables that devices use, for tests and forecasts.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...client.channels import Hybrid, TwoPoint, Window
from ...client.survey import NARROW, OCTAVES, RANGE, Survey
from ...errors import ContractError
from ..columns import F64, I64

U64 = NDArray[np.uint64]


def _below(n: int, words: U64) -> I64:
    """Integers in 0..n-1 from (k, 2) uniform words; the second is used if the first is refused.

    Both are refused with probability below (n / 2^64)², which only a simulation may neglect: a
    device draws until it is accepted.
    """
    limit = np.uint64((1 << 64) // n * n - 1)
    word = np.where(words[:, 0] <= limit, words[:, 0], words[:, 1])
    return (word % np.uint64(n)).astype(np.int64)


def _draw_window(channel: Window, level: I64, words: U64) -> I64:
    place = _below(channel.total, words)
    inside = channel.width * channel.high
    rest = (place - inside) // channel.low
    outer = rest + np.where(rest < level, 0, channel.width)
    return np.where(place < inside, level + place // channel.high, outer)


def _draw_two_point(channel: TwoPoint, level: I64, words: U64) -> I64:
    up = (channel.inputs - 1) * channel.low + level * (channel.high - channel.low)
    return (_below(channel.total, words) >= channel.total - up).astype(np.int64)


def _draw_hybrid(channel: Hybrid, scaled: F64, words: U64) -> I64:
    whole = np.floor(scaled)
    up = (words[:, 0] >> np.uint64(16)).astype(np.float64) * 2.0**-48 < scaled - whole
    level: I64 = whole.astype(np.int64) + up
    chosen = (words[:, 0] & np.uint64(0xFFFF)).astype(np.int64) < int(channel.mix * 65536)
    smooth = _draw_window(channel.piecewise, level, words[:, 1:])
    coarse = channel.piecewise.outputs + _draw_two_point(channel.two_point, level, words[:, 1:])
    return np.where(chosen, smooth, coarse)


def simulate(survey: Survey, value: F64, group: I64, theta: int, words: U64) -> I64:
    """(n,) outputs of n simulated devices, as of `Survey.perturb_range` and the other two.

    For forecasts and tests only: a stage that perturbs values has seen them, which is central
    trust, whatever the formula.

    Args:
        survey: the public parameters.
        value: (n,) raw values in the user's own units, none of them NaN.
        group: (n,) `RANGE`, `NARROW` or `VALUE`.
        theta: step told to the value group or the narrow group; for the value group it includes the
            channel.
        words: (n, 3) uniform words, the only randomness.

    Raises:
        ContractError: the shapes do not fit or a value is NaN.
    """
    if words.shape != (len(value), 3) or len(group) != len(value) or np.isnan(value).any():
        raise ContractError("simulate needs n values that are numbers, n groups and (n, 3) words")
    told = np.clip(value / float(survey.threshold(theta)), 0, 1)
    wide = _places(survey, np.clip(value / float(survey.bound), 0, 1))
    place = np.where(group == NARROW, told * survey.buckets, wide)
    bucket = np.minimum(place.astype(np.int64), survey.buckets - 1)
    ranged = _draw_window(survey.square_wave, bucket, words[:, 1:])
    by_wave = (group == RANGE) | (group == NARROW)
    _, channel = survey.said_by(theta)
    valued = _draw_hybrid(survey.mixed(channel), told * survey.levels, words)
    return np.where(by_wave, ranged, valued)


def _places(survey: Survey, share: F64) -> F64:
    """Positions of shares of B among the range group's buckets."""
    if survey.rounds == 1:
        return share * survey.buckets
    _, octave = np.frexp(np.maximum(share, 2.0**-OCTAVES))
    octave = np.minimum(octave - 1 + OCTAVES, OCTAVES - 1)
    within = np.maximum(share, 2.0**-OCTAVES) * 2.0 ** (OCTAVES - octave) - 1
    return np.asarray((octave + within) * (survey.buckets // OCTAVES))


class Fit(NamedTuple):
    """A distribution over input buckets and its likelihood."""

    density: F64  # (d,) non-negative, sums to 1
    rounds: int
    likelihood: float  # log-likelihood of the reports, in nats


class _Windows:
    """Sums over stretches of ``width`` entries of an array, cut off at its ends.

    Args:
        length: length of the array.
        width: width of each stretch.
        start: start of each stretch.
    """

    def __init__(self, length: int, width: int, start: I64) -> None:
        self._low, self._high = np.clip(start, 0, length), np.clip(start + width, 0, length)
        self._prefix = np.zeros(length + 1)

    def of(self, x: F64) -> F64:
        """(windows,) sums of an array."""
        np.cumsum(x, out=self._prefix[1:])
        return np.asarray(self._prefix[self._high] - self._prefix[self._low])


def _smoothed(x: F64) -> F64:
    """Binomial smoothing (1, 2, 1)/4; the ends are repeated so that no mass is lost there."""
    wide = np.concatenate([x[:1], x, x[-1:]])
    return np.asarray((wide[:-2] + 2 * wide[1:-1] + wide[2:]) / 4)


def fit(counts: I64, channel: Window, smooth: bool = True, rounds: int = 10_000) -> Fit:
    """The most likely input distribution given the reports, by EM; uniform without reports.

    The channel is constant outside a window, so a round costs two running sums instead of a matrix
    product. With ``smooth`` each round ends with a binomial filter, which prevents fitting the
    noise of sparse reports (Li et al., SIGMOD 2020, algorithm 1).

    Args:
        counts: (outputs,) how often each output was reported.
        smooth: whether to filter.
        rounds: most rounds; EM stops earlier when a round gains less than 0.001 nats.

    Raises:
        ContractError: ``counts`` does not fit the channel.
    """
    if counts.shape != (channel.outputs,) or (counts < 0).any():
        raise ContractError("one non-negative count per output of the channel is needed")
    x = np.full(channel.inputs, 1 / channel.inputs)
    n = int(counts.sum())
    low, gap = channel.low / channel.total, (channel.high - channel.low) / channel.total
    forth = _Windows(channel.inputs, channel.width, np.arange(channel.outputs) - channel.width + 1)
    back = _Windows(channel.outputs, channel.width, np.arange(channel.inputs))
    last, done = -np.inf, 0
    while n and done < rounds:
        done += 1
        seen = low + gap * forth.of(x)
        likelihood = float(counts @ np.log(seen))
        if likelihood - last < 1e-3 and done > 1:
            break
        last, ratio = likelihood, counts / seen
        x = x * (low * ratio.sum() + gap * back.of(ratio)) / n
        x = _smoothed(x) if smooth else x
        x = x / x.sum()
    return Fit(x, done, last if n else 0.0)


def worst_variance(channel: Window | Hybrid) -> Fraction:
    """An upper bound of the variance of a decoded output over all inputs in [-1, 1].

    Random rounding to the levels adds at most the square of half a step, 1 / (inputs - 1)².
    """
    weights: list[Window | TwoPoint] = [channel] if isinstance(channel, Window) else []
    mix = [Fraction(1)]
    if isinstance(channel, Hybrid):
        weights, mix = [channel.piecewise, channel.two_point], [channel.mix, 1 - channel.mix]
    level = np.arange(channel.inputs) * 2 / (channel.inputs - 1) - 1
    square = np.zeros(channel.inputs)
    for share, one in zip(mix, weights, strict=True):
        square += float(share) * _squares(one)
    worst = float((square - level**2).max()) * (1 + 1e-9)
    return Fraction(worst) + Fraction(1, (channel.inputs - 1) ** 2)


def square_terms(channel: Window) -> tuple[float, float]:
    """A and K: the mean square of a decoded output is ``A + K v²`` for input value v.

    This is exact: the squares of the outputs are a parabola in the output, so their sum over the
    window is a parabola in the window's position.
    """
    square, middle = _squares(channel), channel.inputs // 2
    near = (2 * middle / (channel.inputs - 1) - 1) ** 2
    slope = float(square[0] - square[middle]) / (1 - near)
    return float(square[0]) - slope, slope


def _squares(channel: Window | TwoPoint) -> F64:
    """Mean square of a decoded output for each input level."""
    if isinstance(channel, TwoPoint):
        return np.full(channel.inputs, float(channel.reach) ** 2)
    square = np.array([float(channel.decode(j)) ** 2 for j in range(channel.outputs)])
    high = _Windows(len(square), channel.width, np.arange(channel.inputs)).of(square)
    everything = channel.low * square.sum() + (channel.high - channel.low) * high
    return np.asarray(everything / channel.total)


def choose_threshold(density: F64, variance: float, reports: float) -> int:
    """The threshold step, from 1 to d, for which a mean of clipped values is most accurate.

    With theta = i/d of the range the mean of n reports has variance ``theta² V / 4n`` and bias
    ``T = E[(v - theta)+]``. The error of the estimate of T is proportional to the whole range, not
    to theta, so T² has the weight ``theta²`` (relative to the range), clamped to [1/128, 1/4];
    unweighted, T² would be mostly noise for skewed values, and theta far too large. A cut of less
    than a quarter is not worth an unknown bias: then the whole range is kept.

    Args:
        density: (d,) distribution over buckets of the range.
        variance: V, the worst variance of a report about a value in [-1, 1].
        reports: number of reports behind a mean.
    """
    d = len(density)
    if reports <= 0:
        return d
    theta = np.arange(1, d + 1) / d
    bias = mean_excess(density)
    score = theta**2 * variance / (4 * reports) + bias**2 * np.clip(theta**2, 1 / 128, 1 / 4)
    best = int(np.argmin(score)) + 1
    return d if 4 * best > 3 * d else best


def mean_excess(density: F64) -> F64:
    """(d,) E[(v - i/d)+] for i = 1..d, with mass in the middle of its bucket."""
    d = len(density)
    above = np.cumsum(density[::-1])[::-1] - density  # mass in buckets after i-1
    inside = np.concatenate([np.cumsum(above[::-1])[::-1][1:], np.zeros(1)])
    return np.asarray((inside + above / 2) / d)

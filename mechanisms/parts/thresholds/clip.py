"""Choosing a clipping threshold privately from a histogram of the warm-up.

Candidates are the public thresholds θ_0 < … < θ_{c-1} = B; the private input is the number of
warm-up records in each bucket ``(θ_{i-1}, θ_i]``. Two scores serve two purposes:

* `exceedance_scores` weighs the loss by clipping against the noise that θ causes (ToPS: Wang,
  Chen, Zhang, Su, Cheng, Li, Li, Jha, *Continuous Release of Data Streams under both Centralized
  and Local Differential Privacy*, CCS 2021). Adding or removing a record moves all scores the same
  way and by at most one, hence the noisy maximum costs ε with noise DLap(1/ε).
* `rank_scores` looks for the K-th largest record. These scores may move in different directions,
  hence DLap(2/ε).

*Why the noisy maximum is private.* Fix the winner and the noise of all others. One record moves
the winner's score and the best rival by at most 1: monotone scores move the same way, so the
margin changes by at most 1 and the winner's noise, which is DLap(1/ε), pays e^ε; otherwise the
margin changes by at most 2 (Dwork and Roth, *The Algorithmic Foundations of Differential
Privacy*, 2014, Claim 3.9). Scores and noise are integers; ties go to the smallest θ, a fixed rule,
which keeps the argument intact on a grid.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from ...columns import I64
from ...contract import Noise
from ...keys import Keys
from ...validate import at_least, positive

_PURPOSE = "threshold"
_WEIGHT = 36


def geometric_thresholds(top: int, resolution: int = 16) -> tuple[int, ...]:
    """Thresholds 1..top that grow by a factor of about 1 + 1/resolution, in exact integers.

    >>> geometric_thresholds(20, 4)
    (1, 2, 3, 4, 5, 7, 9, 12, 15, 19, 20)
    """
    at_least("top", top, 1)
    at_least("resolution", resolution, 1)
    out = [1]
    while out[-1] < top:
        out.append(min(top, out[-1] + max(1, -(-out[-1] // resolution))))
    return tuple(out)


def exceeding(histogram: I64) -> I64:
    """(c,) number of records above each threshold, from (c,) records per bucket."""
    above: I64 = histogram.sum() - np.cumsum(histogram)
    return above


def noise_penalty(
    thresholds: tuple[int, ...],
    slots: int,
    fanout: int,
    height: int,
    epsilon: Fraction,
    excess: Fraction,
) -> I64:
    """(c,) the public part of `exceedance_scores`: the noise that θ causes, in records.

    In a chunk of r = b^h slots a random range has noise of standard deviation √W·θ/ε with
    W = 2(b-1)h³, and clipping biases it by r/3·E[(v-θ)₊] (CCS 2021, Equation 4). If values above θ
    lie c above it, m0 warm-up slots with N values above θ mean a bias of r/3·c·N/m0. So the noise
    is worth ``m0·θ·√W·3/(c·r·ε)`` records (Equation 6, where 20 = c/3).

    Args:
        thresholds: candidates on the integer grid.
        slots: m0, the public number of warm-up slots.
        fanout, height: b and h.
        epsilon: ε of one record, for the hierarchy.
        excess: c, assumed distance above the threshold of values beyond it, in grid steps.

    Raises:
        ParameterError: an argument is not positive.
    """
    positive("epsilon", epsilon)
    positive("excess", excess)
    at_least("height", height, 1)
    unit = Fraction(3 * at_least("slots", slots, 1)) / (excess * fanout**height * epsilon)
    squares = [(unit * theta) ** 2 * 2 * (fanout - 1) * height**3 for theta in thresholds]
    return np.array([math.isqrt(math.floor(square)) for square in squares], np.int64)


def scale_free_penalty(
    thresholds: tuple[int, ...], slots: int, rest: int, variance: Fraction
) -> I64:
    """(c,) the public part of `exceedance_scores` if the scale of the tail is unknown.

    A random range of the n slots after the warm-up has noise √V·θ and loses n/√6·E(θ)/m0, with
    E(θ) = Σ (v-θ)₊ over the warm-up's m0 slots. As E falls by N(θ), the number of records above θ,
    for each step of θ, the sum of both is least where ``N(θ) = K = √(6V)·m0/n``: a rank that does
    not depend on the scale; the root of the sum of squares is least at √(θ/c) times that rank if
    values lie c above θ on average. A penalty that is linear in θ needs c instead, and fails where
    B is a bad guess of c. This one rises with the square root, ``36·K·√(θ/B)``: the records that a
    doubling of θ must save are at most 11K, and fewer the further θ is below B. 36 was tuned on
    streams that no documented figure uses. Running totals lose n/√3·E(θ)/m0, as ranges with twice
    the variance do.

    Args:
        thresholds: candidates on the integer grid.
        slots: m0, the public number of warm-up slots.
        rest: n, the public number of slots after them.
        variance: V, the mean noise variance of a range for θ = 1, or half that of a total.

    Raises:
        ParameterError: an argument is not positive.
    """
    positive("variance", variance)
    each = Fraction(at_least("slots", slots, 1), at_least("rest", rest, 1))
    square = _WEIGHT**2 * 6 * variance * each**2 / thresholds[-1]
    return np.array([math.isqrt(math.floor(square * theta)) for theta in thresholds], np.int64)


def exceedance_scores(histogram: I64, penalty: I64) -> I64:
    """(c,) ``-#{v > θ} - penalty(θ)``; monotone, moves by at most 1 per record."""
    return -exceeding(histogram) - penalty


def rank_scores(histogram: I64, rank: int) -> I64:
    """(c,) ``-|#{v > θ} - (K - 1)|``: best where exactly K - 1 records lie above θ.

    Raises:
        ParameterError: the rank is not positive.
    """
    at_least("rank", rank, 1)
    distance: I64 = np.abs(exceeding(histogram) - (rank - 1))
    return -distance


def noisy_max(scores: I64, scale: Fraction, noise: Noise, t: int, purpose: str = _PURPOSE) -> int:
    """Index of the largest ``score + DLap(scale)`` at trigger t; ties go to the smallest index.

    Guarantee: see the module's text. Add/remove or replacement of one record: ε-DP with
    ``scale = 1/ε`` for `exceedance_scores` and ``2/ε`` for `rank_scores`. Units of
    k records added or removed together: k times the ε, both kinds.

    Raises:
        ParameterError: there are no scores, or the scale is not positive.
    """
    at_least("candidates", len(scores), 1)
    positive("scale", scale)
    index, first = np.arange(len(scores)), np.full(len(scores), t, np.int64)
    drawn = noise.laplace(purpose, Keys.of([b"threshold"]), index, scale, first)
    return int(np.argmax(scores + drawn[0]))

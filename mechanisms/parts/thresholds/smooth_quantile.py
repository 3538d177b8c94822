"""A clipping threshold from the smooth sensitivity of a quantile, with proved arithmetic.

Perrier, Asghar, Kaafar, *Private Continual Release of Real-Valued Data Streams*, NDSS 2019 (PAK),
on Nissim, Raskhodnikova, Smith, *Smooth Sensitivity and Sampling in Private Data Analysis*, STOC
2007. With the values in order, padded by zeros below and by B above, and K counted from the top:

    S = max (x_j - x_i)·exp(-b(j-i-1))  over  i ≤ P ≤ j, i < j      (P: place of the K-th largest)
    τ = least public threshold ≥ r·(x_P + κ(S/a)(Lap(1) + G))

``L = ln(1/δ)``, ``a = ε/2``, ``b = ε/2L``, ``G = ln(1/2β)``, ``c = (e^b-1)G/a``, ``κ = 1/(1-c)``.

*Guarantee.* (ε, δ)-DP for adding, removing or replacing one record, if ``b(L+1) ≥ L(e^b-1)`` and
``c < 1``, both checked. Absent records count as infinitely many zeros, so an added record replaces
a zero. The centre ``x_P + κ(G/a)S`` has local sensitivity ≤ S + κc·S = κS, and κS is b-smooth. A
step to a neighbour first dilates the noise by at most e^b, which costs more than ε/2 only where
|z| > (ε/2+b)/(e^b-1) ≥ L, that is with probability ≤ e^-L = δ; then it shifts the noise by at most
a, which costs ε/2. Clipping, the factor r and rounding to public thresholds are post-processing.

*Arithmetic.* The scale κS/a depends on the data, so a draw cannot be put on a data-independent
grid. Instead:

1. S is the largest of products of correctly rounded doubles, with relative error < 2^-44 including
   the search, underflow aside. It is raised by the factor 1 + 2^-42 and to at least 2^-20 grid
   steps. So the result is an upper bound of the true S for b' = b - 2^-40, within a factor
   1 + 2^-41, hence b-smooth. Its weights come from decimal arithmetic, so every machine finds the
   same S.
2. The noise is z/Λ with integer z ~ DLap(Λ), Λ = 2^49. For X ~ Lap(Λ), the probabilities of z and
   of ⌈X⌉ differ by factors within e^(±1/Λ). That τ is one public threshold means that X lies in
   one interval of length w; moving both its ends by less than 1 changes its probability by a factor
   within 1 ± 4/min(Λ, w). So the discrete τ behaves as the continuous one up to a factor e^x with
   x ≤ 12/min(Λ, w) for each of two neighbours. Configuration fails unless 24/min(Λ, w) ≤ 2^-14·ε
   for the shortest possible interval, w = Λ·gap·a/(rκB); to pay for it, ε and δ are first lowered
   by 2^-14 of themselves.
3. All else is exact: rationals, and one comparison with the public thresholds.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import localcontext
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ....errors import ParameterError
from ...accounting import normal
from ...columns import F64, I64
from ...contract import Noise
from ...keys import Keys
from ...validate import at_least, between, positive

LARGEST_KAPPA = Fraction(16)
_SLACK = Fraction(1, 1 << 14)
_LAMBDA = 1 << 49
_FLOOR = Fraction(1, 1 << 20)
_RAISE = 1 + Fraction(1, 1 << 42)
_SHADE = Fraction(1, 1 << 40)
_DIGITS = 30


@dataclass(frozen=True)
class SmoothQuantile:
    """Public parameters of the smooth-sensitivity threshold.

    Raises:
        ParameterError: a parameter is out of range, or the conditions of the proof fail.
    """

    # epsilon, delta: guarantee for one record added, removed or replaced
    epsilon: Fraction
    delta: Fraction
    rank: int  # K, a public constant ≥ 1
    thresholds: tuple[int, ...]  # public candidates, increasing, the last one B
    factor: Fraction = Fraction(1)  # r ≥ 1, by which the quantile is raised
    # probability with which the noisy quantile may fall below the exact one, ≤ 1/2
    beta: Fraction = Fraction(6, 1000)

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)
        positive("delta", self.delta)
        between("delta", self.delta, 0, 0.5)
        at_least("rank", self.rank, 1)
        between("factor", self.factor, 1, 1 << 20)
        positive("beta", self.beta)
        between("beta", self.beta, 0, 0.5)
        self._check_conditions()

    def _check_conditions(self) -> None:
        if self.b * (self.log_delta + 1) < self.log_delta * self._growth:
            raise ParameterError("epsilon", self.epsilon, "too large: b(L+1) < L(e^b - 1)")
        if self.kappa > LARGEST_KAPPA:
            rule = f"kappa = 1/(1-c) exceeds {LARGEST_KAPPA}: raise beta or lower delta"
            raise ParameterError("beta", self.beta, rule)
        gaps = np.diff(np.asarray(self.thresholds, np.int64))
        width = _LAMBDA * int(gaps.min(initial=self.thresholds[-1])) * self.a
        width /= self.factor * self.kappa * self.thresholds[-1] * _RAISE
        if min(Fraction(_LAMBDA), width) * _SLACK * self.epsilon < 24:
            raise ParameterError("thresholds", len(self.thresholds), "too fine for the arithmetic")

    @property
    def log_delta(self) -> Fraction:
        """L, rounded up."""
        return normal.log_up(1 / (self.delta * (1 - _SLACK)))

    @property
    def a(self) -> Fraction:
        """Maximum shift of the noise."""
        return self.epsilon * (1 - _SLACK) / 2

    @property
    def b(self) -> Fraction:
        """Maximum dilation of the noise, as a logarithm."""
        return self.a / self.log_delta

    @property
    def _growth(self) -> Fraction:
        return normal.round_up(normal.exp_bounds(self.b).high) - 1

    @property
    def offset(self) -> Fraction:
        """G, the number of scales by which the centre is raised."""
        return normal.log_up(1 / (2 * self.beta)) if 2 * self.beta < 1 else Fraction(0)

    @property
    def kappa(self) -> Fraction:
        """κ, rounded up; infinite conditions are refused.

        >>> found = SmoothQuantile(Fraction(1), Fraction(1, 2**20), 250, (720, 1440))
        >>> round(float(found.kappa), 4)
        1.4812
        """
        c = self._growth * self.offset / self.a
        if c >= 1:
            rule = f"c = {float(c):.3g} must be below 1: raise beta or lower delta"
            raise ParameterError("beta", self.beta, rule)
        return normal.round_up(1 / (1 - c))

    def sensitivity(self, histogram: I64) -> tuple[int, Fraction]:
        """x_P and the bound of S, from (c,) records per bucket of the thresholds."""
        place, runs = _runs(histogram, np.asarray(self.thresholds, np.int64), self.rank)
        largest = smooth_bound(runs, self.b - _SHADE)
        return place, max(_FLOOR, Fraction(largest) * _RAISE)

    def choose(self, histogram: I64, noise: Noise, t: int, purpose: str = "threshold") -> int:
        """Index of τ among the thresholds; the draw is for trigger t."""
        place, bound = self.sensitivity(histogram)
        label, index, first = Keys.of([b"smooth"]), np.zeros(1, np.int64), np.full(1, t, np.int64)
        drawn = noise.laplace(purpose, label, index, Fraction(_LAMBDA), first)
        spread = self.kappa * bound / self.a
        target = self.factor * (
            place + spread * (Fraction(int(drawn[0, 0]), _LAMBDA) + self.offset)
        )
        above = [i for i, theta in enumerate(self.thresholds) if theta >= target]
        return above[0] if above else len(self.thresholds) - 1


@dataclass(frozen=True)
class Runs:
    """The values that matter: of every run of equal values, the one nearest to P.

    Attributes:
        low, low_place: (u,) values and positions at or below P, ascending.
        high, high_place: (v,) values and positions at or above P, ascending.
    """

    low: I64
    low_place: I64
    high: I64
    high_place: I64


def _runs(histogram: I64, thresholds: I64, rank: int) -> tuple[int, Runs]:
    total = max(int(histogram.sum()), rank)
    ends = np.concatenate([[0], np.cumsum(histogram)]) + total - int(histogram.sum())
    values = np.concatenate([[0], thresholds])
    starts = np.concatenate([[0], ends[:-1]]) + 1
    place = total - rank + 1
    held = ends >= starts  # non-empty runs; absent records are zeros at the bottom
    values, starts, ends = values[held], starts[held], ends[held]
    below, above = starts <= place, ends >= place
    low = np.concatenate([[0], values[below]])
    low_place = np.concatenate([[0], np.minimum(ends[below], place)])
    high = np.concatenate([values[above], [thresholds[-1]]])
    high_place = np.concatenate([np.maximum(starts[above], place), [total + 1]])
    return int(values[above][0]), Runs(low, low_place, high, high_place)


def smooth_bound(runs: Runs, b: Fraction) -> float:
    """max (x_j - x_i)·exp(-b(j-i-1)), by divide and conquer in O((u + v) log u).

    For a lower i the best j is never higher: (x_j - x_i)/(x_j' - x_i) with j > j' falls as x_i
    falls. So the best partner of the middle row splits the search. Rounding does not break this: a
    partner within a factor 1+e of the best costs no other row more than that factor.
    """
    origin = int(runs.high_place[0])
    low = _weights(origin - runs.low_place, b)
    high = _weights(runs.high_place - origin, b)
    best, first, last = 0.0, np.zeros(1, np.int64), np.array([len(runs.low)])
    left, right = np.zeros(1, np.int64), np.array([len(runs.high) - 1])
    while len(first):
        middle = (first + last) // 2
        found, value = _best_partners(runs, low, high, middle, left, right)
        best = max(best, float(value.max()))
        first, last = np.concatenate([first, middle + 1]), np.concatenate([middle, last])
        left, right = np.concatenate([left, found]), np.concatenate([found, right])
        open_ = first < last
        first, last, left, right = first[open_], last[open_], left[open_], right[open_]
    # exp(-b(j-i-1)) = exp(b)·low·high; pairs i = j = P give 0, which is harmless.
    return best * float(_weights(np.array([-1]), b)[0])


def _best_partners(
    runs: Runs, low: F64, high: F64, row: I64, left: I64, right: I64
) -> tuple[I64, F64]:
    """Find for each row the smallest best partner within left..right, and the value there."""
    widths = right - left + 1
    begin = np.cumsum(widths) - widths
    owner = np.repeat(np.arange(len(row)), widths)
    partner = np.arange(int(widths.sum())) - begin[owner] + left[owner]
    reach = (runs.high[partner] - runs.low[row[owner]]).astype(np.float64)
    value = reach * high[partner] * low[row[owner]]
    top = np.maximum.reduceat(value, begin)
    hits = np.flatnonzero(value == top[owner])
    found = partner[hits[np.unique(owner[hits], return_index=True)[1]]]
    return found, top


def _weights(distance: NDArray[np.int64], b: Fraction) -> F64:
    """exp(-b·distance), correctly rounded from decimals; far values underflow to 0."""
    with localcontext(normal.precision(_DIGITS)):
        rate = -normal.decimal(b)
        return np.array([float((rate * int(d)).exp()) for d in distance], np.float64)

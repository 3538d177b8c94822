"""Privacy loss from shifts and noise alone: how far must the draws move to explain a neighbour?

A release is linear in its draws while its decisions stay as they are. So let B be its measured
response to each draw (a planted impulse), and d the measured difference that a unit's records make
without noise. The two worlds are as far apart as the cheapest shift x of the draws with Bx = d:

* Gaussian draws: μ² = min Σ x²/σ², exactly what the released numbers reveal;
* Laplace draws: ε ≤ min Σ |x|/scale, and equal to it where B has independent columns.

Where no shift explains the difference, something was released without noise: the loss is infinite.
Both are norms of d, so m records of a unit cost most where all lie in the dearest place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from hushstream.mechanisms.in_memory import Trace
from scipy.optimize import linprog
from scipy.stats import norm

from .recorder import Label, Recorder, View

IMPULSE = 1 << 36
LARGE = 1 << 40

Look = Callable[[Trace, Recorder], View]


def nothing(label: Label) -> int:
    return 0


@dataclass
class Linear:
    """A release around one crowd: its measured responses to draws.

    Attributes:
        labels: labels of the draws.
        B: (seen numbers, draws) change of each number per step of each draw.
        rounding: largest effect of rounding on one seen number.
    """

    labels: list[Label]
    B: np.ndarray
    rounding: float = 0.0

    def gaussian(self, shifts: Iterable[np.ndarray]) -> np.ndarray:
        """(s, draws) cheapest shifts of the draws in standard deviations; inf where none does."""
        sigma = np.array([math.sqrt(one.parameter) for one in self.labels])
        D = np.array(list(shifts)).T
        scaled = self.B * sigma
        found, *_ = np.linalg.lstsq(scaled, D, rcond=1e-7)
        gap = np.abs(scaled @ found - D).max(axis=0)
        found[:, gap > self.rounding + 1e-5 * np.abs(D).max(axis=0)] = math.inf
        return found.T

    def laplace(self, shift: np.ndarray) -> float:
        """ε of the cheapest explanation of one difference."""
        if not shift.any():
            return 0.0
        weight = np.array([1 / float(one.parameter) for one in self.labels])
        size = float(np.abs(shift).max())
        slack = self.rounding / size + 1e-7
        both = np.hstack([self.B, -self.B]) / size
        found = linprog(
            np.concatenate([weight, weight]),
            A_ub=np.vstack([both, -both]),
            b_ub=np.concatenate([shift / size + slack, slack - shift / size]),
        )
        return float(found.fun) if found.status == 0 else math.inf


class Probe:
    """A mechanism whose releases are probed one draw and one record at a time.

    Args:
        look: function from trace and noise to the seen numbers.
        crowd: records of all other units.
        forced: draws that keep decisions fixed.
        watched: other draws that may explain a difference.
        rounding: see `Linear`.
        impulse: shift of a draw, in steps.
    """

    def __init__(
        self,
        look: Look,
        crowd: Trace,
        forced: Callable[[Label], int] = nothing,
        watched: Callable[[Label], bool] = lambda label: True,
        rounding: float = 0.0,
        impulse: int = IMPULSE,
    ) -> None:
        self._look, self._forced, self._impulse = look, forced, impulse
        recorder = Recorder(forced)
        self._base = look(crowd, recorder)
        self.first = recorder.asked
        labels, columns = [], []
        for one in recorder.asked:
            if watched(one) and not forced(one):
                column = self._moved(look(crowd, self._planted(one))) / impulse
                if np.abs(column).max() > 0:
                    labels.append(one)
                    columns.append(column)
        self.base = np.array(list(self._base.values()))
        B = np.array(columns).T.reshape(len(self.base), len(labels))
        self.linear = Linear(labels, B, rounding)

    def _planted(self, one: Label) -> Recorder:
        return Recorder(lambda label: self._impulse if label == one else self._forced(label))

    def _moved(self, view: View) -> np.ndarray:
        assert view.keys() == self._base.keys(), "a decision changed, so nothing is linear here"
        return np.array([view[place] - self._base[place] for place in self._base])

    def shift(self, trace: Trace) -> np.ndarray:
        """What is seen more with ``trace`` in place of the crowd alone, without noise."""
        return self._moved(self._look(trace, Recorder(self._forced)))


def joined(crowd: Trace, more: Trace) -> Trace:
    """Both traces as one, in the order of triggers."""
    assert crowd.keys.tolist() == more.keys.tolist()
    whole = Trace(
        *(np.concatenate([getattr(crowd, n), getattr(more, n)]) for n in ("trigger", "unit")),
        crowd.keys,
        *(np.concatenate([getattr(crowd, n), getattr(more, n)]) for n in ("key", "value", "sign")),
    )
    return whole.where(np.argsort(whole.trigger, kind="stable"))


def most(budget: int, options: Iterable[tuple[int, float]]) -> float:
    """The largest total loss that whole options (price, loss), each any number of times, reach."""
    best = np.zeros(budget + 1)
    known = [(price, loss) for price, loss in options if price <= budget]
    for left in range(1, budget + 1):
        best[left] = max(
            [best[left - 1], *(best[left - p] + loss for p, loss in known if p <= left)]
        )
    return float(best[budget])


def gdp_delta(mu2: float, epsilon: float) -> float:
    """δ(ε) of μ-GDP (Balle & Wang 2018, Theorem 8), in floating point."""
    mu = math.sqrt(mu2)
    first, second = norm.cdf(mu / 2 - epsilon / mu), norm.logcdf(-mu / 2 - epsilon / mu)
    return float(first - math.exp(epsilon + second))


def gdp_epsilon(mu2: float, delta: float) -> float:
    """The least ε with δ(ε) ≤ δ."""
    if math.isinf(mu2):
        return math.inf
    low, high = 0.0, 1.0 + 20 * mu2 + 40 * math.sqrt(mu2)
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if gdp_delta(mu2, middle) <= delta else (middle, high)
    return high


def choice_loss(first: np.ndarray, second: np.ndarray, scale: Fraction) -> float:
    """Largest |ln ratio| of the winners of a noisy maximum with two lists of integer scores.

    Discrete Laplace noise, ties to the smallest index, by summing over the winner's own noise.
    """
    a, reach = math.exp(-1 / float(scale)), math.ceil(80 * float(scale)) + 2
    reach += int(max(np.ptp(first), np.ptp(second)))
    z = np.arange(-reach, reach + 1)
    mass = (1 - a) / (1 + a) * np.exp(-np.abs(z) / float(scale))

    def log_cdf(x: np.ndarray) -> np.ndarray:
        low = np.exp(np.minimum(x, 0) / float(scale)) / (1 + a)
        high = 1 - np.exp(-(np.maximum(x, 0) + 1) / float(scale)) / (1 + a)
        return np.log(np.where(x < 0, low, high))

    def law(scores: np.ndarray) -> np.ndarray:
        out = []
        for place, mine in enumerate(scores):
            below = [
                log_cdf(mine + z - s - (other < place))
                for other, s in enumerate(scores)
                if other != place
            ]
            out.append(float((mass * np.exp(np.sum(below, axis=0))).sum()))
        assert abs(sum(out) - 1) < 1e-9
        return np.array(out)

    return float(np.abs(np.log(law(first)) - np.log(law(second))).max())

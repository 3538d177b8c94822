"""Formulas for the error of a histogram on a sample, without running it.

The contribution bound is applied exactly. Noise and thresholds follow from one calibrated
mechanism: both grow with the root of the bound's budget. A key appears with its probability under
the normal law at the best of a few triggers; draws at different triggers are treated as dependent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....errors import ParameterError
from ...columns import F64, I64, empty_units
from ...contract import Setting
from ...parts.bounds.bounding import Bound, decided
from ...parts.thresholds import key_selection as selection
from ...workload import Workload
from ..calibration.bound import bound_of
from ..mechanism import Histogram
from ..quantities import Quantity
from ..settings import HistogramParameters
from ..tumbling import build

REFERENCE = 12.0
_EPSILON, _DELTA = Fraction(1), Fraction(1, 10**6)
_LOOKS = 10  # triggers at which a key is checked


class WindowForecast(NamedTuple):
    """Expected figures of one window."""

    truth: F64  # (keys, outputs) exact figures, in grid steps
    error: F64  # (keys, outputs) expected distance from them; the whole figure of a hidden key
    chance: F64  # (keys,) of being public at the end
    cut: float  # records that the bound cuts off
    records: int


@dataclass(frozen=True)
class Reference:
    """A calibrated mechanism, from which those with other budgets follow.

    Attributes:
        made: the mechanism.
        squares: Σ weight·m² of one unit, in records, for which its noise meets ε and δ.
    """

    made: Histogram
    squares: float

    def times(self, bound: Bound) -> float:
        """Ratio of the variances of noise with another bound and with this one."""
        return float(Fraction(bound.sensitivity2(), bound.weights[0])) / self.squares

    def thresholds(self, parameters: HistogramParameters, bound: Bound, delta: Fraction) -> F64:
        """(T,) thresholds of keys."""
        if not self.made.threshold:
            return np.full(self.made.horizon, -np.inf)
        horizon = self.made.horizon
        last = Fraction(str(parameters.last_share))
        share = delta * Fraction(str(parameters.threshold_delta_share))
        beta = np.array([float(one) for one in selection.shares(horizon, share, last)])
        deviation = self.deviations() * math.sqrt(self.times(bound))
        q = float(Fraction(bound.sensitivity2(), bound.weights[0]))
        most = np.arange(1, max(1, min(bound.most_per_key(), math.isqrt(int(q)) or 1, 64)) + 1)
        tail = np.minimum(beta[:, None] * most**2 / q, 0.5)
        reach = most + deviation[:, None] * _upper(tail)
        found: F64 = reach.max(axis=1) + parameters.min_users - 1
        return found

    def deviations(self) -> F64:
        """(T,) standard deviations of the noise that selects keys."""
        process, none = self.made.selector, np.zeros(1, np.int64)
        every = range(1, self.made.horizon + 1)
        return np.sqrt([float(process.variance_at(t, none)[0]) for t in every])


def _upper(tail: F64) -> F64:
    """Normal quantiles x with P(Z ≥ x) = tail."""
    from scipy.special import ndtri  # here: it takes long to load

    found: F64 = -ndtri(tail)
    return found


def reference(parameters: HistogramParameters, setting: Setting) -> Reference:
    """A mechanism with these settings but other budgets, both of the bound and of ε and δ.

    Raises:
        ParameterError: the parameters contradict each other or the setting.
    """
    plain = replace(parameters, budget=REFERENCE, threshold_delta_share=0.5, last_share=0.5)
    made = _calibrated(plain, replace(setting, epsilon=_EPSILON, delta=_DELTA))
    unknown = setting.keys is None
    share = 1 - parameters.threshold_delta_share if unknown else 1.0
    paid = _mu(float(setting.epsilon), float(setting.delta) * share)
    usual = _mu(float(_EPSILON), float(_DELTA) * (0.5 if unknown else 1.0))
    squares = float(Fraction(made.bound.sensitivity2(), made.bound.weights[0]))
    return Reference(made, squares * (paid / usual) ** 2)


class BoundTerms(NamedTuple):
    """One setting of the mechanism.

    Attributes:
        known: the calibrated mechanism with another budget.
        bars: (T,) thresholds of keys.
    """

    parameters: HistogramParameters
    known: Reference
    bound: Bound
    bars: F64

    @classmethod
    def of(cls, parameters: HistogramParameters, setting: Setting) -> BoundTerms:
        """The terms; raises as `reference` does."""
        known, bound = reference(parameters, setting), bound_of(parameters, setting)
        return cls(parameters, known, bound, known.thresholds(parameters, bound, setting.delta))

    def looks(self, last: int) -> I64:
        """Triggers at which a key is checked, in a window of ``last`` triggers."""
        return np.unique(np.linspace(1, last, min(_LOOKS, last)).round().astype(np.int64))

    def appears(self, count: F64, last: int) -> tuple[I64, F64]:
        """(k,) the trigger at which each key is expected to appear, and its chance to appear.

        The trigger is the last for keys that are not expected to appear.

        Args:
            count: (k, looks) accepted records of each key.
            last: last trigger of the window.
        """
        from scipy.special import ndtr  # here: it takes long to load

        made, looks = self.known.made, self.looks(last)
        if made.public is not None:
            return np.zeros(len(count), np.int64), np.ones(len(count))
        deviation = self.known.deviations() * math.sqrt(self.known.times(self.bound))
        over = (count - self.bars[looks - 1]) / deviation[looks - 1]
        over[count < self.parameters.min_users] = -np.inf
        first = np.where((over >= 0).any(axis=1), looks[(over >= 0).argmax(axis=1)], last)
        chance: F64 = ndtr(over.max(axis=1))
        return first, chance

    def variance(self, quantity: Quantity, since: I64, last: int) -> F64:
        """(k,) variance of a quantity's noise at trigger ``last``; keys appeared at ``since``."""
        made = self.known.made
        squares: F64 = quantity.lanes[0].variance_at(last, np.zeros(len(since), np.int64))
        for lane in quantity.lanes[1:]:
            begins = np.minimum(since + made.delay, last)
            squares = squares + lane.variance_at(last, begins)
        return squares * self.known.times(self.bound)


@lru_cache(maxsize=64)
def _calibrated(parameters: HistogramParameters, setting: Setting) -> Histogram:
    made = build(parameters, setting)
    assert isinstance(made, Histogram)  # rounds have no formulas
    return made


@lru_cache(maxsize=256)
def _mu(epsilon: float, delta: float) -> float:
    """μ of the Gaussian mechanism that is (ε, δ)-private.

    Raises:
        ParameterError: no noise is enough for δ = 0.
    """
    from scipy.special import log_ndtr, ndtr  # here: it takes long to load

    if delta <= 0:
        raise ParameterError("delta", delta, "does not pay for Gaussian noise")
    low, high = 1e-9, 1e4
    for _ in range(80):
        mu = math.sqrt(low * high)
        loss = ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))
        low, high = (mu, high) if loss <= delta else (low, mu)
    return low


def forecast(
    parameters: HistogramParameters, setting: Setting, epochs: Sequence[Sequence[Workload]]
) -> list[WindowForecast]:
    """The expected figures of every window.

    Args:
        parameters: parameters with the threshold rule, not rounds.
        epochs: windows of an epoch number their units alike.

    Raises:
        ParameterError: the parameters contradict each other or the setting.
    """
    terms = BoundTerms.of(parameters, setting)
    found = []
    for epoch in epochs:
        left = np.full(max(work.users for work in epoch), terms.bound.left, np.int64)
        found += [_window(terms, work, left) for work in epoch]
    return found


def _window(terms: BoundTerms, work: Workload, left: I64) -> WindowForecast:
    """One window; ``left`` (units,) is what remains of the bound and is lowered."""
    made = terms.known.made
    edges = np.array([0, *(batch.stop for batch in work.micro_batches(made.horizon))])
    trigger = np.searchsorted(edges[1:], np.arange(len(work.unit)), side="right") + 1
    pair, before = pairs_of(work), left.copy()
    accepted = accepted_by(terms.bound, work, pair, left)
    since, chance = _appears(terms, work, trigger, accepted)
    if made.traits.lanes > 1 and made.public is None:
        left[:] = before
        public = trigger > since[work.key] + made.delay
        accepted = accepted_by(terms.bound, work, pair, left, public)
        chance = np.maximum(chance, _appears(terms, work, trigger, accepted)[1])
    counted = work.once() if terms.bound.of_units else None
    truth = work.exact(made, slice(None), counted)
    signed = work.signs(slice(None)) * accepted
    kept = work._replace(sign=signed.astype(np.int8)).exact(made, slice(None))
    hidden = np.abs(truth) * (1 - chance)[:, None]
    if not made.traits.outputs:
        return WindowForecast(truth, hidden, chance, *_lost(accepted, counted))
    spread = np.sqrt(_variances(terms, since, work.last(made.horizon)))
    error = folded(kept - truth, spread) * chance[:, None] + hidden
    return WindowForecast(truth, error, chance, *_lost(accepted, counted))


def _lost(accepted: NDArray[np.bool_], counted: F64 | None) -> tuple[float, int]:
    """Records lost to the bound, and records counted; a repeated key is no loss to a unit."""
    every = len(accepted) if counted is None else int(counted.sum())
    return max(0.0, float(every - accepted.sum())), every


def pairs_of(work: Workload) -> NDArray[np.intp]:
    """(n,) a number for each record's pair of unit and key."""
    code = work.unit.astype(np.int64) * work.keys + work.key
    pair: NDArray[np.intp] = np.unique(code, return_inverse=True)[1]
    return pair


def accepted_by(
    bound: Bound, work: Workload, pair: NDArray[np.intp], left: I64,
    public: NDArray[np.bool_] | None = None,
) -> NDArray[np.bool_]:  # fmt: skip
    """(n,) whether a bound accepts each record.

    Args:
        pair: numbers from `pairs_of`.
        left: (units,) what remains of each unit's bound; it is lowered.
        public: (n,) whether the record's key is public already; None: no key is.
    """
    lanes = len(bound.weights)
    key = lanes * pair + (public if lanes > 1 and public is not None else 0)
    hashes = np.arange(int(key.max(initial=-1)) + 1)
    units = empty_units(len(left), lanes, 0)._replace(left=left)
    unit, hashed = work.unit.astype(np.intp), hashes.astype(np.uint64)
    return decided(bound, units, unit, key, hashed // lanes, hashes % lanes).accepted


def _appears(
    terms: BoundTerms, work: Workload, trigger: NDArray[np.intp], accepted: NDArray[np.bool_]
) -> tuple[I64, F64]:
    """`BoundTerms.appears` for the keys of a window."""
    last = work.last(terms.known.made.horizon)
    looks = terms.looks(last)
    place = np.searchsorted(looks, trigger[accepted])
    flat = work.key[accepted].astype(np.int64) * len(looks) + place
    sign = work.signs(slice(None))[accepted]
    count = np.bincount(flat, sign, work.keys * len(looks)).reshape(work.keys, -1).cumsum(axis=1)
    return terms.appears(count, last)


def _variances(terms: BoundTerms, since: I64, last: int) -> F64:
    """(keys, outputs) variance of the noise at trigger ``last``."""
    made = terms.known.made
    told = made.quantities[: len(made.quantities) - len(made.squares)]
    squares = [terms.variance(one, since, last) for one in told]
    counted = int(made.quantities[0].column == 0)
    for place, column in enumerate(made.summed, counted):
        if column.middle:
            count = 0 if column.counter is None else counted + column.counter
            squares[place] = squares[place] + float(column.middle) ** 2 * squares[count]
    hidden = counted and not made.count
    return np.stack(squares[hidden:], axis=1)


def folded(bias: F64, spread: F64) -> F64:
    """E|N(bias, spread²)|."""
    from scipy.special import ndtr  # here: it takes long to load

    away = np.abs(bias) / np.maximum(spread, 1e-12)
    density = np.exp(-(away**2) / 2) * math.sqrt(2 / math.pi)
    found: F64 = spread * density + np.abs(bias) * (1 - 2 * ndtr(-away))
    return found

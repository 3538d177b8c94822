"""The designs of `table1.py`, each calibrated to the same (ε, δ) per user and day.

All except `paper` are mechanisms of the product. Two baselines do not stream, but run the product's
one-shot histogram at every trigger (`_table1_baselines` plays them):

`repeated` runs one on all data so far. The T releases share one budget, so each has a T-th of μ²
(noise √T times as large) and a T-th of the threshold's δ; releases are independent.

`incremental` runs one on each micro-batch and adds up the releases. A user has one contribution
bound for the whole day, in which a key counts anew in each micro-batch; so all releases together
cost no more than a single one, and the budget need not be split.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from hushstream.mechanisms import accounting
from hushstream.mechanisms.accounting.calibration import Need, fit
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.factorization.prefix_noise import STEPS
from hushstream.mechanisms.histogram.calibration.bound import sensitivity2
from hushstream.mechanisms.histogram.calibration.thresholds import least_counts
from hushstream.mechanisms.histogram.mechanism import Histogram
from hushstream.mechanisms.histogram.rounds.mechanism import Rounds
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.histogram.tumbling import build
from hushstream.mechanisms.parts.thresholds import key_selection as selection
from hushstream.mechanisms.validate import rational

EPSILON, DELTA = Fraction(6), Fraction(1, 10**9)
PARAMETERS: dict[str, dict[str, Any]] = {
    "paper": {"selection": "rounds", "budget": 32},
    "sound_paper": {"selection": "rounds", "budget": 32},
    "repeated": {"budget": 32, "adaptive_weight": 0},
    "incremental": {"budget": 32, "adaptive_weight": 0},
    "tree": {"bound": "per-key", "budget": 32, "per_key": 1, "factorization": "honaker"},
    "toeplitz": {"budget": 32, "adaptive_weight": 0, "factorization": "toeplitz"},
    "terminal": {"budget": 32, "adaptive_weight": 0, "factorization": "terminal"},
    "adaptive": {"budget": 12, "adaptive_weight": 0.3, "factorization": "terminal"},
    "debiased": {"budget": 4, "adaptive_weight": 0.25, "debias": True},
    "final": {"budget": 4, "adaptive_weight": 0.25, "debias": True, "factorization": "final"},
    "one_shot": {"budget": 8, "adaptive_weight": 0, "debias": True},
}
ONE_SHOT = ("repeated", "incremental", "one_shot")


def design(
    name: str, triggers: int, delay: int, changes: dict[str, Any] | None = None
) -> Histogram | Rounds:
    """A calibrated mechanism; `paper` is altered to what was published.

    Args:
        name: a key of `PARAMETERS`.
        triggers: number of triggers of the day.
        delay: triggers until records see that a key is public.
        changes: parameters that override those of `PARAMETERS`.
    """
    chosen = PARAMETERS[name] | (changes or {})
    parameters = HistogramParameters(delay=delay, **chosen)
    setting = Setting(EPSILON, DELTA, 1 if name in ONE_SHOT else triggers)
    mechanism = build(parameters, setting)
    if name == "paper":
        assert isinstance(mechanism, Rounds)
        return as_published(mechanism)
    if name == "repeated":
        assert isinstance(mechanism, Histogram)
        return repeatedly(mechanism, parameters, setting, triggers)
    return mechanism


def as_published(mechanism: Rounds) -> Rounds:
    """Noise by zCDP composition, δ with its factor 1 + e^ε, β for each trigger by itself.

    This is what the paper evaluates. It is not private: its threshold fails up to T times as often
    as claimed. It exists only here, for comparison.
    """
    rho = accounting.zcdp_rho(EPSILON, DELTA / 2)
    ratio = mechanism.loss.mu2 / (2 * rho)
    louder = replace(mechanism.selector, variance=mechanism.selector.variance * ratio)
    values = tuple(
        one._replace(lanes=tuple(replace(p, variance=p.variance * ratio) for p in one.lanes))
        for one in mechanism.quantities
    )
    beta = DELTA / 2 / Fraction(int(np.ceil(1 + np.exp(float(EPSILON)))))
    records = Fraction(mechanism.bound.left)
    marginal = (
        selection.thresholds(
            [beta] * mechanism.horizon, selection.Exposure(records, 1), louder.quantile, 1, STEPS
        )
        - STEPS
    )  # the paper's test is N + noise > threshold, without the unit's own record
    return replace(
        mechanism, selector=louder, quantities=values, threshold=tuple(marginal.tolist())
    )


def repeatedly(
    mechanism: Histogram, parameters: HistogramParameters, setting: Setting, times: int
) -> Histogram:
    """The one-shot histogram whose ``times`` releases cost the budget; ``loss`` covers them all.

    A user's accepted records so far are a subset of those of the whole day, so no release has more
    sensitivity than the last one; thresholds hold by a union bound over triggers.
    """
    factor = mechanism.quantities[0].lanes[0].factor
    unit = sensitivity2(mechanism.bound) * factor.sensitivity2 * 4**factor.bits
    selecting = setting.delta * rational("share", parameters.threshold_delta_share)
    most = mechanism.bound.left // mechanism.bound.weights[0]
    fitted = fit(setting, [Need(unit, Fraction(1, times))] * times, most, selecting)
    quantities = tuple(
        one._replace(lanes=tuple(replace(p, variance=fitted.variance[0]) for p in one.lanes))
        for one in mechanism.quantities
    )
    made = replace(mechanism, quantities=quantities, loss=fitted.loss)
    bars = least_counts(parameters, selecting / times, made.bound, made.selector)
    return replace(made, threshold=bars)


class Deployment(NamedTuple):
    """A published deployment in which a user has one record per key."""

    epsilon: int
    delta: Fraction
    triggers: int
    min_users: int
    published: int | None  # its threshold, if published

    def made(self, factorization: str = "auto", last_share: float = 0.5) -> Histogram:
        """Our mechanism at the privacy of this deployment."""
        parameters = HistogramParameters(
            budget=1, adaptive_weight=0, min_users=self.min_users, factorization=factorization,
            last_share=last_share,
        )  # fmt: skip
        made = build(parameters, Setting(Fraction(self.epsilon), self.delta, self.triggers))
        assert isinstance(made, Histogram)
        return made

    def rounds(self) -> Rounds:
        """The paper's mechanism with a sound threshold, at the same privacy."""
        parameters = HistogramParameters(selection="rounds", budget=1, min_users=self.min_users)
        made = build(parameters, Setting(Fraction(self.epsilon), self.delta, self.triggers))
        assert isinstance(made, Rounds)
        return made

    def least(self, factorization: str = "auto", last_share: float = 0.5) -> list[float]:
        """(T,) users that a key needs at each trigger with our mechanism if its noise is 0."""
        return [bar / STEPS for bar in self.made(factorization, last_share).threshold]


DEPLOYMENTS = (
    Deployment(1, DELTA, 150, 1, 120),
    Deployment(3, DELTA, 150, 1, 43),
    Deployment(10, DELTA, 150, 1, 16),
    Deployment(2, DELTA / 10, 150, 50, None),
)

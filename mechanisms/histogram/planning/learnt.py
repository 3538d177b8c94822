"""Choose a bound's budget from what an epoch has released: its profile and its counts.

`parts.unit_profile` gives noisy numbers of units by records and keys; the last release of the epoch
gives the size of its keys. Together they give, for every budget of a fixed ladder, the expected
error of all counts: what the bound cuts, noise and threshold, which grow with the root of the
budget, and the records of keys that stay hidden.

The choice needs no guarantee of its own for neighbours that differ by all records of one unit in
one epoch: it is a function of released numbers and of the configuration.

The arithmetic is in floating point, so a choice must be recorded when it is applied, and a check
reads the record. If a release is missing or uninformative, the bound stays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from ....errors import ParameterError
from ...columns import F64, I64
from ...contract import Setting
from ...entry import ActivityTold, LearntBudget
from ...parts.unit_profile import STEPS, UnitProfile, profile_of
from ..settings import HistogramParameters
from .formulas import BoundTerms, folded
from .tune import resolved

LADDER = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0)
"""Budgets to choose from; all are whole, as a bound of records requires."""

_ALARM = 0.01  # chance that noise alone fills some bucket of a profile
_BLOCKS = 200  # of the keys that were not released
_STEEPEST = 8.0


class EpochReleases(NamedTuple):
    """The releases of an epoch from which later epochs are configured."""

    profile: I64  # (buckets,) noisy numbers of units, in 1/`unit_profile.STEPS`
    variance: Fraction  # of their noise, in squared steps
    counts: I64  # (m,) released counts of keys at the last trigger of a window, in records


def told(shown: ActivityTold, counts: Sequence[float]) -> EpochReleases:
    """Releases of an epoch, from the values in its public records.

    Args:
        counts: counts of the keys at the last trigger of the window.

    Raises:
        ContractError: the activity does not have one number for each bucket.
    """
    profile = profile_of(shown.units, max(records for records, _ in shown.units))
    variance = (Fraction(shown.stddev) * STEPS) ** 2
    return EpochReleases(profile, variance, np.rint(np.array(counts, np.float64)).astype(np.int64))


def learn(
    shown: ActivityTold, counts: Sequence[float], parameters: HistogramParameters, setting: Setting
) -> LearntBudget | None:
    """`chosen`, from the values in public records (`told`)."""
    seen = told(shown, counts)
    return chosen(
        UnitProfile(max(records for records, _ in shown.units)), seen, parameters, setting
    )


class Law(NamedTuple):
    """Number of units by pattern: ``records`` each, ``own`` of them to one key."""

    units: F64
    records: F64
    own: F64


def chosen(
    profile: UnitProfile, seen: EpochReleases, parameters: HistogramParameters, setting: Setting
) -> LearntBudget | None:
    """The budget of least expected error; None where the profile shows no units.

    Args:
        profile: the grid of ``seen``.
        parameters: parameters of the epoch of ``seen``, including its budget.
        setting: setting of later epochs.

    Raises:
        ParameterError: the bound does not have one number, or the parameters are impossible.
    """
    refuse(parameters)
    law = law_of(profile, seen)
    if not law.units.sum():
        return None
    then = _terms(parameters, setting)
    keys = _keys(seen.counts, law, then, setting)
    every = [budget for budget in LADDER if budget <= profile.most or parameters.bound != "records"]
    expected = {
        budget: _error(_terms(replace(parameters, budget=budget), setting), law, keys)
        for budget in every
    }
    return LearntBudget(min(every, key=lambda one: (expected[one], one)), expected)


def default_budget(parameters: HistogramParameters, setting: Setting) -> float:
    """The budget of the bound until one is learnt: the given one, or the default."""
    return float(resolved(parameters, setting).budget or 0)


def refuse(parameters: HistogramParameters) -> None:
    """Refuse parameters whose bound is not a single number.

    Raises:
        ParameterError: there are rounds, or a bound per key.
    """
    if parameters.selection != "threshold":
        raise ParameterError("selection", parameters.selection, "its bound cannot be learnt")
    if parameters.bound == "per-key":
        rule = "has two numbers, and one can be learnt: take quadratic or records"
        raise ParameterError("bound", parameters.bound, rule)


def law_of(profile: UnitProfile, seen: EpochReleases) -> Law:
    """The units that a noisy profile shows; buckets within the noise count as empty.

    With probability 1 - `_ALARM`, by the union bound, no bucket of an empty profile exceeds the
    limit: an epoch without records then decides nothing, and a bucket of pure noise, whose pattern
    may have `most` records, does not outweigh the actual units.
    """
    limit = NormalDist().inv_cdf(1 - _ALARM / profile.buckets)
    clear = seen.profile >= limit * math.sqrt(seen.variance)
    units = np.where(clear, seen.profile, 0) / STEPS
    patterns = profile.patterns()
    return Law(units.astype(np.float64), patterns.records, patterns.own)


# What a bound lets through


def _terms(parameters: HistogramParameters, setting: Setting) -> BoundTerms:
    """The terms with all defaults resolved."""
    return BoundTerms.of(resolved(parameters, setting), setting)


def _kept(terms: BoundTerms, law: Law, public: float) -> float:
    """Share of all records that is accepted, where a share ``public`` goes to public keys."""
    total = float((law.units * law.records).sum())
    return float((law.units * law.records * _shares(terms, law, public)).sum()) / total


def _shares(terms: BoundTerms, law: Law, public: float) -> F64:
    """(c,) the share f of a pattern's records with f²·Σ weight·own² + f·Σ weight = budget."""
    bound = terms.bound
    budget = float(Fraction(bound.left, bound.weights[0]))
    if bound.kind == "records":
        return np.minimum(1.0, budget / law.records)
    weight = bound.weights[-1] / bound.weights[0]  # price of a record of a public key
    parts = (1 - public, public) if len(bound.weights) > 1 else (1.0, 0.0)
    square = law.own**2 * (parts[0] ** 2 + weight * parts[1] ** 2)
    line = (law.records - law.own) * (parts[0] + weight * parts[1])
    found: F64 = np.minimum(
        1.0, 2 * budget / (line + np.sqrt(line**2 + 4 * square * budget))
    )  # the root that stays exact where the square is small
    return found


# Keys


class _Keys(NamedTuple):
    """Keys by size: ``times`` keys of each number of records."""

    size: F64
    times: F64


def _keys(counts: I64, law: Law, then: BoundTerms, setting: Setting) -> _Keys:
    """Released keys with their sizes before the bound, and a tail of keys with the rest."""
    share = _kept(then, law, 0.5 if len(then.bound.weights) > 1 else 0.0)
    size = np.sort(np.maximum(counts, 0).astype(np.float64))[::-1] / share
    size = size[size > 0]
    rest = float((law.units * law.records).sum()) - float(size.sum())
    if setting.keys is not None or rest <= 0:
        empty = (len(setting.keys) if setting.keys is not None else len(size)) - len(size)
        return _Keys(np.append(size, 0.0), np.append(np.ones(len(size)), max(empty, 0)))
    tail = _tail(size, rest)
    return _Keys(
        np.concatenate([size, tail.size]), np.concatenate([np.ones(len(size)), tail.times])
    )


def _tail(size: F64, rest: float) -> _Keys:
    """Further keys on the power law of the released ones, until they hold ``rest`` records."""
    many = len(size)
    if many < 4:
        return _Keys(np.ones(1), np.array([rest]))
    middle = slice(many // 4, max(3 * many // 4, many // 4 + 2))
    rank = np.log(np.arange(1, many + 1))
    slope = float(np.polyfit(rank[middle], np.log(size[middle]), 1)[0])
    slope = float(np.clip(-slope, 0.0, _STEEPEST))
    last = float(np.exp(np.log(size[middle]).mean() - slope * (rank[-1] - rank[middle].mean())))
    edges = np.unique(np.rint(many * np.geomspace(1.0, 1e5, _BLOCKS + 1)))
    times, centre = np.diff(edges), np.sqrt(edges[1:] * edges[:-1])
    each = last * (centre / many) ** -slope
    upto = np.cumsum(times * each)
    before = upto - times * each
    times = np.clip((rest - before) / each, 0.0, times) * (each >= 1)
    lone = rest - float((times * each).sum())
    return _Keys(np.append(each, 1.0), np.append(times, max(lone, 0.0)))


# Errors


def _error(terms: BoundTerms, law: Law, keys: _Keys) -> float:
    """Expected distance of all counts from the exact ones, as a share of all records."""
    horizon = terms.known.made.horizon
    two = len(terms.bound.weights) > 1 and terms.known.made.public is None
    public = 0.5 if two else 0.0
    for _ in range(3 if two else 1):  # which keys are public and what is kept are interdependent
        kept = _kept(terms, law, public)
        grown = kept * keys.size[:, None] * (terms.looks(horizon) / horizon)
        since, chance = terms.appears(grown, horizon)
        late = np.minimum(since + terms.known.made.delay, horizon)
        held = keys.size * keys.times
        public = float((held * (1 - late / horizon)).sum()) / float(held.sum()) if two else 0.0
    spread = np.sqrt(terms.variance(terms.known.made.quantities[0], since, horizon))
    error = folded((kept - 1) * keys.size, spread) * chance + keys.size * (1 - chance)
    return float((error * keys.times).sum()) / float((keys.size * keys.times).sum())

"""The contribution bound of a histogram, from its settings."""

from __future__ import annotations

from fractions import Fraction

from ....errors import ParameterError
from ...contract import Setting
from ...parts.bounds.bounding import MOST, Bound
from ...validate import at_least, between, rational
from ..settings import HistogramParameters


def bound_of(parameters: HistogramParameters, setting: Setting) -> Bound:
    """The contribution bound in integers: weights wd² and wn² for w = wn/wd."""
    unknown, values = setting.keys is None, parameters.aggregate == "values"
    default = 12.0 if unknown else 4.0
    budget = rational("budget", default if parameters.budget is None else parameters.budget)
    if parameters.bound != "quadratic":
        return _record_bound(parameters, budget, setting.distinct)
    weight = _weight(parameters, budget) if unknown and values else Fraction(1)
    weights: tuple[int, ...] = (weight.denominator**2,)
    caps: tuple[int, ...] = (MOST,)
    if unknown and values and (weight < 1 or parameters.min_users > 1):
        weights, caps = (weight.denominator**2, weight.numerator**2), (MOST, MOST)
    if parameters.min_users > 1:
        caps = (1, *caps[1:])  # until a key is public its count is the number of units
    left = budget * weights[0]
    if left < max(weights):
        raise ParameterError("budget", float(budget), "must be at least 1")
    return Bound("quadratic", int(left), weights, caps=caps).storable(setting.distinct)


def _record_bound(parameters: HistogramParameters, budget: Fraction, distinct: bool) -> Bound:
    if budget.denominator != 1:
        raise ParameterError("budget", float(budget), "must be a whole number of records")
    if parameters.adaptive_weight:
        raise ParameterError("adaptive_weight", parameters.adaptive_weight, "needs bound quadratic")
    per_key = MOST
    if parameters.bound == "per-key":
        per_key = at_least("per_key", parameters.per_key or 0, 1)
    if parameters.min_users > 1 and min(per_key, int(budget)) > 1:
        raise ParameterError("min_users", parameters.min_users, "needs bound quadratic")
    return Bound("records", int(budget), (1,), per_key).storable(distinct)


def _weight(parameters: HistogramParameters, budget: Fraction) -> Fraction:
    chosen = parameters.adaptive_weight
    if chosen is None:
        return Fraction(3, 10) if budget >= 3 else Fraction(1)
    if chosen == 0:
        return Fraction(1)
    weight = rational("adaptive_weight", chosen)
    between("adaptive_weight", weight, 0, 1)
    return weight


def sensitivity2(bound: Bound) -> Fraction:
    """Bound of ``Σ m²`` per unit, weighted relative to lane 0."""
    return Fraction(bound.sensitivity2(), bound.weights[0])

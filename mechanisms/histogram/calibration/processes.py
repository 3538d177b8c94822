"""Noise of a histogram: calibrated for each quantity's share of the budget, with its cost."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from ...accounting.calibration import Fitted, Need, fit
from ...contract import Cost, Setting, Spending
from ...factorization import Factorization
from ...factorization.prefix_noise import ENDLESS, Process, factor_of
from ...parts.bounds.bounding import Bound
from ...parts.squares import Square
from ...validate import at_least, rational
from ..debias import Debias
from ..distinct import displaced, factor2
from ..quantities import Column, Quantity
from ..settings import HistogramParameters
from .bound import sensitivity2
from .shared import SharedNoise
from .spending import spending

DEBIAS_SHARE = Fraction(1, 200)
"""Share of the Gaussian budget for each pair of debiasing counters, in all shards together."""


class Processes(NamedTuple):
    """Calibrated noise of a histogram, and its cost per unit."""

    quantities: tuple[Quantity, ...]
    debias: Debias | None
    loss: Cost
    spending: Spending


def processes(
    parameters: HistogramParameters,
    setting: Setting,
    bound: Bound,
    summed: tuple[tuple[Column, ...], tuple[Square, ...]],
    selecting: Fraction,
    factor: Factorization | None = None,
) -> Processes:
    """Every quantity with the noise for its share of the budget, and the cost.

    ``factor`` is the factorisation of the noise; None: the one for these parameters and horizon.
    """
    factor = factor or factor_of(parameters.factorization, setting.horizon)
    triggers = setting.horizon if factor.name == ENDLESS else factor.horizon
    counted = setting.keys is None or setting.count
    columns, squares = summed
    names = ["count"] * counted + [f"sum:{column.name}" for column in columns]
    names += [f"square:{one.name}" for one in squares]
    sizes2 = [column.reach() ** 2 for column in columns]
    for one in squares:
        sizes2[one.column] = one.sizes2[0]
    shared = SharedNoise.of(setting.apart, sizes2)
    unit = sensitivity2(bound) * factor.sensitivity2 * 4**factor.bits
    unit *= factor2(bound, displaced(factor)) if setting.distinct else 1
    left = 1 - 2 * DEBIAS_SHARE if parameters.debias else Fraction(1)
    parts = [left * part for part in _split(parameters, len(shared.sizes2), counted)]
    sizes = [Fraction(1)] * counted + [*shared.sizes2]
    needs = [Need(unit * size2, part) for size2, part in zip(sizes, parts, strict=True)]
    own = [counted + shared.need[one.column] for one in squares]
    needs += [
        Need(unit * one.sizes2[1], parts[place], True)
        for one, place in zip(squares, own, strict=True)
    ]
    most = max(1, bound.left // min(bound.weights)) * (1 + setting.distinct)
    touched = most * triggers
    if parameters.debias:
        ends = (parameters.debias_cap, min(most, parameters.debias_cap))
        looks = at_least("shards", setting.shards, 1)  # each draws its own noise
        once = factor.sensitivity2 * 4**factor.bits
        needs += [Need(looks * once * end**2, DEBIAS_SHARE) for end in ends]
        touched += 2 * looks * parameters.debias_cap * setting.horizon
    fitted = fit(setting, needs, touched, selecting)
    quantities = []
    bought = fitted.variance[: len(sizes) + len(squares)]
    every = (*bought[:counted], *shared.variances(bought[counted : len(sizes)]))
    every += tuple(
        _of_square(one, variance, columns[one.column], every[counted + one.column])
        for one, variance in zip(squares, bought[len(sizes) :], strict=True)
    )
    for place, (name, variance) in enumerate(zip(names, every, strict=True)):
        lanes = tuple(
            Process(f"{name}/{lane}", factor.name, triggers, variance * first / weight)
            for lane, weight in zip("SV", bound.weights, strict=False)
            for first in bound.weights[:1]
        )
        quantities.append(Quantity(place + (not counted), lanes))
    debias = _debias(parameters, factor, fitted, setting.shards)
    beside = 2 if parameters.debias else 0
    paid = spending(bound, needs, fitted, touched, selecting, beside)
    return Processes(tuple(quantities), debias, fitted.loss, paid)


def _of_square(one: Square, bought: Fraction, of: Column, variance: Fraction) -> Fraction:
    """Variance of a square, at least what the lemma of `parts.squares` requires."""
    if of.counter is None:  # releases without conditions stay the same
        return bought
    first, second = one.sizes2
    return max(bought, variance * second / first)


def _debias(
    parameters: HistogramParameters, factor: Factorization, fitted: Fitted, looks: int
) -> Debias | None:
    if not parameters.debias:
        return None
    named = zip(("arrived", "accepted"), fitted.variance[-2:], strict=True)
    counters = tuple(
        Process(f"debias/{name}/{lane}", factor.name, factor.horizon, variance)
        for name, variance in named
        for lane in "SV"
    )
    return Debias(parameters.debias_cap, counters, looks)


def _split(parameters: HistogramParameters, columns: int, counted: bool) -> list[Fraction]:
    if not counted:
        return [Fraction(1, columns)] * columns
    if not columns:
        return [Fraction(1)]
    share = rational("count_share", parameters.count_share)
    return [share, *[(1 - share) / columns] * columns]

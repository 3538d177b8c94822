"""Share one (ε, δ) among several Gaussian processes, and prove that it holds."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from ...errors import ParameterError
from .. import accounting
from ..contract import Cost, Setting
from ..noise import DELTA_PER_DRAW
from . import normal


class Need(NamedTuple):
    """One process: what a unit can do to it, and its share of μ²."""

    shift2: Fraction  # bound of Σ d², in squared steps of the noise grid
    share: Fraction  # of μ²; all shares together at most 1


class Fitted(NamedTuple):
    """Noise variances in the order of the needs, and what everything costs."""

    variance: tuple[Fraction, ...]
    loss: Cost


def fit(setting: Setting, needs: Sequence[Need], touched: int, selecting: Fraction) -> Fitted:
    """Least variances for which the whole is (ε, δ)-private per unit and epoch.

    Args:
        setting: with the budget.
        needs: the processes.
        touched: bound of the number of noise coordinates that one unit can shift, per process.
        selecting: the part of δ that key selection spends.

    Raises:
        ParameterError: nothing is left of δ, or ε is too small for the noise grid.
    """
    growth = 1 + 3 ** int(-(-setting.epsilon // 1))  # at least 1 + e^ε
    extra = selecting + growth * touched * 2 * len(needs) * DELTA_PER_DRAW
    if extra >= setting.delta:
        raise ParameterError("delta", float(setting.delta), "is too small")
    epsilon = setting.epsilon
    for _ in range(20):
        mu2 = accounting.gdp_mu(epsilon, setting.delta - extra) ** 2
        made = _variances(needs, mu2, touched)
        loss = accounting.add([*made[1], Cost(delta=extra)])
        if accounting.total([loss], setting.delta)[0] <= setting.epsilon:
            return Fitted(tuple(made[0]), loss)
        epsilon -= loss.epsilon * Fraction(17, 16)  # what the noise grid costs
        if epsilon <= 0:
            break
    raise ParameterError("epsilon", float(setting.epsilon), "is too small for the noise grid")


def _variances(
    needs: Sequence[Need], mu2: Fraction, touched: int
) -> tuple[list[Fraction], list[Cost]]:
    chosen = [normal.round_up(need.shift2 / (mu2 * need.share), 40) for need in needs]
    costs = [
        accounting.gaussian_cost(need.shift2, variance, touched)
        for need, variance in zip(needs, chosen, strict=True)
    ]
    return chosen, costs

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

_LARGEST_EPSILON = 128
MEANINGLESS = "beyond about 20 it protects nobody"


class Need(NamedTuple):
    """One process: how far a unit can shift it, and its share of μ²."""

    shift2: Fraction  # bound of Σ d², in squared steps of the noise grid
    share: Fraction  # of μ²; all shares together at most 1
    joint: bool = False  # shifts together with an earlier need, whose μ² covers both

    def cost(self, variance: Fraction, touched: int) -> Cost:
        """The cost with this noise; see `fit` for ``touched``.

        Only the first of joint needs has μ²; each pays the cost of the grid for its own draws.
        """
        full = accounting.gaussian_cost(self.shift2, variance, touched)
        return full._replace(mu2=Fraction(0)) if self.joint else full


class Fitted(NamedTuple):
    """Noise variances in the order of the needs, and the cost of the whole."""

    variance: tuple[Fraction, ...]
    loss: Cost


def fit(setting: Setting, needs: Sequence[Need], touched: int, selecting: Fraction) -> Fitted:
    """Least variances for which the whole is (ε, δ)-private per unit and epoch.

    Args:
        touched: bound on the number of noise coordinates that one unit can shift, per process.
        selecting: the part of δ that key selection spends.

    Raises:
        ParameterError: nothing is left of δ, or ε is too small or too large for the grid of draws.
    """
    inexact = inexact_draws(setting.epsilon, touched * 2 * len(needs))
    extra = selecting + inexact
    if extra >= setting.delta:
        raise ParameterError("delta", float(setting.delta), too_small(setting.delta, inexact))
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
    raise unfit_for_grid(setting.epsilon)


def inexact_draws(epsilon: Fraction, draws: int) -> Fraction:
    """The δ owed for the distance of ``draws`` draws from their exact distributions.

    Both neighbours pay it, one of them times e^ε < 3^⌈ε⌉.

    >>> inexact_draws(Fraction(1), 1) == 4 * DELTA_PER_DRAW
    True

    Raises:
        ParameterError: ε is so large that e^ε draws cannot be exact enough for any δ.
    """
    if epsilon > _LARGEST_EPSILON:
        raise ParameterError(
            "epsilon",
            float(epsilon),
            f"is too large: at most {_LARGEST_EPSILON}, and {MEANINGLESS}",
        )
    return (1 + Fraction(3) ** int(-(-epsilon // 1))) * draws * DELTA_PER_DRAW


def too_small(delta: Fraction, inexact: Fraction) -> str:
    """Reasons that a δ does not cover key selection and draws."""
    if delta == 0:
        return (
            "does not pay for Gaussian noise: set budget.delta above 0, usually below "
            "1 / (number of units)"
        )
    if inexact * 100 >= delta:
        return (
            f"is too small for this epsilon: inexact draws need {float(inexact):.1e} of it, "
            "which grows with e^epsilon: choose a smaller epsilon or a larger delta"
        )
    return "is too small: key selection leaves nothing of it for the noise"


def unfit_for_grid(epsilon: Fraction) -> ParameterError:
    """The error for an ε that the grid of draws costs: the noise is too fine, or ε too small."""
    if epsilon < 1:
        rule = "is too small: the grid on which noise is drawn costs more; choose a larger one"
        return ParameterError("epsilon", float(epsilon), rule)
    rule = f"is too large: it asks for noise finer than the grid of draws, and {MEANINGLESS}"
    return ParameterError("epsilon", float(epsilon), rule)


def _variances(
    needs: Sequence[Need], mu2: Fraction, touched: int
) -> tuple[list[Fraction], list[Cost]]:
    chosen = [normal.round_up(need.shift2 / (mu2 * need.share), 40) for need in needs]
    costs = [need.cost(variance, touched) for need, variance in zip(needs, chosen, strict=True)]
    return chosen, costs

"""Shares of a budget of several pipelines: one charge, and less noise than with separate parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from ...errors import ConfigError
from ...mechanisms.accounting import add, gdp_epsilon, gdp_mu, normal
from ...mechanisms.accounting.composition import Spent, room
from ...mechanisms.accounting.costs import fits
from ...mechanisms.contract import Mechanism
from ...topics.config.load import Config
from ...topics.config.pipelines.budgets import SharedBudget
from ...topics.config.pipelines.pipeline import PipelineSettings

TRIES = 64
"""Number of shares tried, each with a squared loss that is 2 % smaller."""


@dataclass(frozen=True)
class Purse:
    """One charge per epoch of several pipelines, as compiled."""

    name: str  # of the budget
    members: tuple[str, ...]  # names of the pipelines
    one: Spent  # the charge of an epoch of all of them together
    # limit_epsilon, limit_delta: of all epochs together; None: there is none
    limit_epsilon: Fraction | None
    limit_delta: Fraction | None


def share_out(
    config: Config, build: Callable[[PipelineSettings], Mechanism]
) -> tuple[Config, Mapping[str, Purse]]:
    """Give each member of a shared budget its share.

    The members of a budget are charged for the same epochs of the same unit, so their Gaussian
    releases compose: together they are (ε, δ) differentially private if the squares of their losses
    have the sum that one pipeline could spend alone. Each gets a part of that sum by its weight,
    and a budget of its own with which its mechanism spends no more. What they spend together is
    checked with the costs of the built mechanisms; a share is made smaller until it fits.

    Args:
        build: makes the mechanism of a pipeline as configured.

    Returns:
        The configuration with the members' budgets, and the purse of each member by its name.

    Raises:
        ConfigError: no share fits, as where a member has no Gaussian noise; or the mechanism of a
            member protects something else than all records of a unit.
    """
    purses: dict[str, Purse] = {}
    for shared in config.budget:
        config, purse = _shared(config, shared, build)
        purses |= dict.fromkeys(shared.members, purse)
    return config, purses


def _shared(
    config: Config, shared: SharedBudget, build: Callable[[PipelineSettings], Mechanism]
) -> tuple[Config, Purse]:
    for part in _parts():
        given = tuple(_given(p, shared, part) for p in config.pipeline)
        made = {p.name: build(p) for p in given if p.name in shared.members}
        words = {name: one.guarantee.neighbouring for name, one in made.items()}
        if other := [name for name, said in words.items() if said != "add_remove"]:
            raise ConfigError(
                f"budget {shared.name!r}: members: {other[0]!r} protects values, and not whether a "
                "unit is there: costs under two relations do not add up; give it its own budget"
            )
        costs = [one.cost() for one in made.values()]
        joint, squares = add(costs), sum((one.epsilon**2 for one in costs), Fraction(0))
        if fits(joint, squares, shared.epsilon, shared.delta):
            one = Spent(1, shared.epsilon, shared.delta, joint, squares)
            limits = shared.limit_epsilon, shared.limit_delta
            purse = Purse(shared.name, tuple(shared.members), one, *limits)
            return replace(config, pipeline=given), purse
    raise ConfigError(
        f"budget {shared.name!r}: epsilon = {float(shared.epsilon):g}: no shares of {TRIES} fit; "
        "members whose noise is not Gaussian gain nothing from sharing: give them their own budget"
    )


def _parts() -> list[Fraction]:
    """Parts of the squared loss to try, falling; the first leaves room for rounding alone."""
    return [1 - Fraction(1, 4096), *(Fraction(49, 50) ** n for n in range(1, TRIES))]


def _given(p: PipelineSettings, shared: SharedBudget, part: Fraction) -> PipelineSettings:
    """A member with the budget of its share; another pipeline as it is."""
    weight = shared.members.get(p.name)
    if weight is None:
        return p
    share = Fraction(weight, sum(shared.members.values()))
    delta = share * shared.delta
    epsilon = share * part * shared.epsilon
    if shared.delta:  # a mechanism keeps half of δ for what is not Gaussian noise
        mu = gdp_mu(shared.epsilon, shared.delta / 2)
        epsilon = gdp_epsilon(normal.sqrt_up(share * part) * mu, delta / 2)
    return replace(p, budget=replace(p.budget, epsilon=epsilon, delta=delta))


@dataclass(frozen=True)
class Charging:
    """The charge of one epoch, and the limits of all of them together."""

    one: Spent
    limit_epsilon: Fraction | None
    limit_delta: Fraction | None

    @property
    def limited(self) -> bool:
        """Whether there is a limit."""
        return self.limit_epsilon is not None or self.limit_delta is not None

    def room(self, spent: Spent, most: int) -> int:
        """Count how many further epochs stay within the limits, up to ``most``."""
        if not self.limited:
            return most
        return room(spent, self.one, self.limit_epsilon, self.limit_delta, most)

"""Budgets of pipelines, as frozen dataclasses. Their docstrings are the reference."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

from ..toml.values import Delta, Duration, Epsilon, Instant, Name, span, within


@dataclass(frozen=True)
class PerUnit:
    """The most that one privacy unit may lose over many epochs: beyond, its records are dropped.

    Attributes:
        epsilon: ε of all epochs of a period together.
        delta: δ of all epochs of a period together.
        period: length of a period, a multiple of the epoch's, counted from the window's `origin`;
            without it there is one period without end.
    """

    epsilon: Epsilon
    delta: Delta
    period: Annotated[Duration, span("1s", "36500d")] | None = None


@dataclass(frozen=True)
class BudgetSettings:
    """Maximum cost of a privacy unit, for adding or removing all of it.

    Attributes:
        epsilon: ε per unit and epoch.
        delta: δ per unit and epoch.
        limit_epsilon: ε of all epochs together; others are refused; not with `learn`.
        limit_delta: δ of all epochs together; others are refused; not with `learn`.
        per_unit: most that one privacy unit may lose over many epochs.
    """

    epsilon: Epsilon
    delta: Delta = Fraction(0)
    limit_epsilon: Epsilon | None = None
    limit_delta: Delta | None = None
    per_unit: PerUnit | None = None


@dataclass(frozen=True)
class SharedBudget:
    """One charge per epoch for several pipelines of one input, with less noise than separate
    budgets.

    Attributes:
        name: name of the budget.
        members: weight of each pipeline, by its name, in the squared loss; these have no `budget`
            of their own.
        epsilon: ε per unit and epoch, of all members together.
        delta: δ per unit and epoch, likewise.
        limit_epsilon: ε of all epochs together; others are refused; not with `learn`.
        limit_delta: δ of all epochs together; others are refused; not with `learn`.
        per_unit: most that one privacy unit may lose over many epochs, by all members together.
    """

    name: Name
    members: dict[str, Annotated[int, within(1, 1000)]]
    epsilon: Epsilon
    delta: Delta = Fraction(0)
    limit_epsilon: Epsilon | None = None
    limit_delta: Delta | None = None
    per_unit: PerUnit | None = None


@dataclass(frozen=True)
class Learn:
    """A contribution bound that is chosen from what the first epochs have released.

    Attributes:
        share: part of the squared loss of an epoch that goes to the activity of units while the
            budget is unknown, in thousandths.
        budget: budget of the bound, from then on; `hush learn` says it.
        at: boundary between two epochs from which it holds.
    """

    share: Annotated[Fraction, within(0.001, 0.5)] = Fraction(5, 100)
    budget: Annotated[Fraction, within(1, 1_000_000)] | None = None
    at: Instant | None = None

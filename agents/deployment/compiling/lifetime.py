"""Caps for each unit: what a pipeline's configuration allows a unit over many epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

from ....errors import ConfigError, ParameterError
from ....mechanisms.accounting.lifetime import portion, purse, together
from ....mechanisms.contract import Spending
from ....mechanisms.parts.bounds.bounding import most_pairs
from ....mechanisms.parts.bounds.lifetime import Cap
from ....topics.config.load import Config
from ....topics.config.pipelines.budgets import PerUnit
from ....topics.config.pipelines.schedule import Schedule
from ....topics.config.toml.values import format_duration
from ..model import Lifetime, Pipeline


def with_caps(config: Config, pipelines: Sequence[Pipeline]) -> tuple[Pipeline, ...]:
    """Give pipelines the caps that their budgets have; a shared one is of all its members.

    Raises:
        ConfigError: a mechanism cannot have one, the period is not of whole epochs, not a single
            record could be accepted, or a unit's state could exceed a record of Kafka.
    """
    own = {p.name: p.budget.per_unit for p in config.pipeline}
    shared = {name: b.per_unit for b in config.budget for name in b.members}
    found: dict[str, Lifetime] = {}
    for p in pipelines:
        terms = shared.get(p.name) or own[p.name]
        if terms is None:
            continue
        members = (p.name,) if p.purse is None else p.purse.members
        group = [one for one in pipelines if one.name in members]
        found[p.name] = _lifetime(p, terms, group)
    return tuple(replace(p, lifetime=found.get(p.name)) for p in pipelines)


def _lifetime(p: Pipeline, terms: PerUnit, group: Sequence[Pipeline]) -> Lifetime:
    part = portion(together(map(_spending, group)), terms.epsilon, terms.delta)
    spending = _spending(p)
    try:
        most = purse(spending, p.traits.bound, part)
    except ParameterError as error:
        asked = f"epsilon = {float(terms.epsilon):g}, delta = {float(terms.delta):g}"
        raise _refused(p, f"{asked}: pays for {error}") from error
    cap = Cap(most, spending.opening, _epochs(p, terms))
    _check_size(p, cap, spending.least)
    return Lifetime(
        terms.epsilon,
        terms.delta,
        terms.period,
        tuple(one.name for one in group),
        part,
        cap,
    )


def _spending(p: Pipeline) -> Spending:
    if p.mechanism.spending is None:
        raise _refused(
            p, f"{p.kind} has no cap for each unit: only histogram and quantile have one"
        )
    return p.mechanism.spending


def _epochs(p: Pipeline, terms: PerUnit) -> int | None:
    """Epochs of a period; None: there is no end."""
    if terms.period is None:
        return None
    windows: Schedule = p.windows
    if windows.arrival:
        raise _refused(p, "period needs window.length: windows of arrival have no fixed length")
    if windows.calendar is not None:
        raise _refused(
            p, "period needs windows of a fixed length; leave it out: then the cap holds for good"
        )
    length = windows.length * windows.per_epoch
    if terms.period % length:
        raise _refused(
            p,
            f"period = {format_duration(terms.period)} is not a multiple of an epoch's length, "
            f"{format_duration(length)}",
        )
    return terms.period // length


def _check_size(p: Pipeline, cap: Cap, least: int) -> None:
    """Refuse a bound with which a unit's row, which holds all open epochs, could be too large."""
    windows: Schedule = p.windows
    late = windows.lateness + p.max_future_skew
    epochs = 2 + late // (windows.length * windows.per_epoch)
    epochs = min(epochs, cap.epochs or epochs)
    each, most = p.traits.bound // least, most_pairs(p.traits.pairs)
    if min(epochs * each, cap.most // least) > most:
        budget = p.mechanism.bounds(p.unit_name)["budget"]
        raise _refused(
            p,
            f"mechanism.budget = {budget}: a unit's state may have to hold {epochs} open epochs of "
            f"{each:,} keys or values each, and has room for {most:,} in all: lower "
            "mechanism.budget",
        )


def _refused(p: Pipeline, why: str) -> ConfigError:
    return ConfigError(f"pipeline {p.name!r}: budget.per_unit: {why}")


class ChargedCap(NamedTuple):
    """The most that a unit loses over many epochs, as a charge states it."""

    epsilon: Fraction
    delta: Fraction
    period: int | None  # microseconds; None: for good
    members: tuple[str, ...]  # names of the pipelines that share it; () if one has its own

    @property
    def time(self) -> str | None:
        """The period as a text; None: for good."""
        return None if self.period is None else format_duration(self.period)

    @property
    def in_words(self) -> str:
        """The amount, whose it is, and for how long it holds."""
        whose = f" by {' and '.join(self.members)} together" if self.members else ""
        over = "all epochs" if self.time is None else f"each period of {self.time}"
        return f"ε={float(self.epsilon):g}, δ={float(self.delta):g}{whose} over {over}"


def cap_of(charge: Mapping[str, Any]) -> ChargedCap | None:
    """The cap that the body of a charge states; None: there is none."""
    if "per_unit_epsilon" not in charge:
        return None
    budget = charge["config"]["budget"]
    shared = budget.get("shared", {})
    terms = shared.get("per_unit")
    members = tuple(shared["members"]) if terms else ()
    epsilon, delta = (Fraction(charge[f"per_unit_{name}"]) for name in ("epsilon", "delta"))
    return ChargedCap(epsilon, delta, (terms or budget["per_unit"])["period"], members)


def capped(charge: Mapping[str, Any]) -> str:
    """Say in a sentence what a unit ever loses by a charge's body; empty where it states no cap."""
    cap = cap_of(charge)
    if cap is None:
        return ""
    return (
        f"  A {charge['unit']} loses at most {cap.in_words}, however many are charged: what it has "
        "spent of its bounds is kept, and once that is used up its records are dropped.\n"
    )

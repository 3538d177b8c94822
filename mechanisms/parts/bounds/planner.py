"""The planner of a map's contribution bound, the number of records of a unit that it counts.

The law of records per unit comes from a stated shape or from a public or synthetic sample, never
from the protected stream; `maps` does the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ....errors import ParameterError
from ...columns import I64
from ...planner import Option, PlanTable, Question
from ...workload import Sample
from .maps import BoundForecast, predicted, proposed


class UnitLaw(NamedTuple):
    """Records that a unit sends in an epoch."""

    law: I64  # (k,) numbers of units that send 0, 1, 2, … records, over all epochs of the sample
    units: int  # of an epoch, on average


class BoundPlanner:
    """Proposals for a bound; see `planner.Planner`.

    Attributes:
        kind: kind of the mechanism; its settings have ``bound``, ``debias`` and ``debias_cap``.
    """

    kind: ClassVar[str]
    options: frozenset[Option] = frozenset({"sample", "shape"})

    def ticks(self, question: Question) -> int:
        """Zero: errors follow from formulas."""
        return 0

    def propose(self, question: Question, tick: Callable[[], None]) -> dict[str, Any]:
        """The bound of least predicted error, compared with the configured one."""
        found, given = law_of(question), question.parameters
        best, now = proposal(question, found), configured(question, found)
        changed = best is not None and best[:2] != now[:2]
        # A configured private total is kept: if the bound stays, only its cap may change.
        changed |= best is not None and best.debias and best.cap != now.cap
        shown = best if best is not None and changed else now
        settings = settings_of(shown)
        return {
            "kind": self.kind,
            "source": question.source,
            "units": found.units,
            "records": float((found.law * np.arange(len(found.law))).sum()),
            "settings": settings,
            "toml": "\n".join(f"{name} = {_plain(value)}" for name, value in settings.items()),
            "changed": changed,
            "share_cut": {"proposed": shown.share_cut, "configured": now.share_cut},
            "expected_error": {"proposed": shown.error, "configured": now.error},
            "notes": list(_notes(found, shown, best is None, given)),
        }

    def table(self, name: str, body: dict[str, Any]) -> PlanTable:
        """Shares cut off and errors of a large region, as configured and as proposed."""
        error, cut = body["expected_error"], body["share_cut"]
        rows = [("units of an epoch", f"{body['units']:,}")]
        for which in ("configured", "proposed"):
            off = f"a large region off by about {error[which]:.0%} of its count"
            rows.append((which, f"{cut[which]:.1%} of the records cut off, {off}"))
        intro = (
            f"{name}: records that one unit sends, after {body['source']}. This must be a guess, "
            "or public or synthetic data: a bound chosen by the protected stream leaks it."
        )
        return PlanTable(intro, f"{name}: contribution bound", (), tuple(rows))


def law_of(question: Question) -> UnitLaw:
    """Count the inserted records of each unit in each epoch of the sample.

    Raises:
        ParameterError: there is no sample.
    """
    sample: Sample | None = question.sample
    if sample is None:
        raise ParameterError("sample", None, "a bound is proposed for a sample or a shape")
    every = []
    for epoch in sample.epochs:
        sent = np.zeros(max((work.users for work in epoch), default=0), np.int64)
        for work in epoch:
            inserted = work.unit[work.signs(slice(None)) > 0]
            sent += np.bincount(inserted, minlength=len(sent))[: len(sent)]
        every.append(sent[sent > 0])
    law = np.bincount(np.concatenate(every)) if every else np.zeros(1, np.int64)
    return UnitLaw(law, max(1, round(float(law[1:].sum()) / max(len(every), 1))))


def proposal(question: Question, found: UnitLaw) -> BoundForecast | None:
    """The bound and cap of least predicted error; None where records are deleted."""
    given = question.parameters
    if given.deletions or getattr(given, "lifetime", 0):
        return None
    return proposed(found.law, found.units, question.setting.epsilon, _triggers(question))


def configured(question: Question, found: UnitLaw) -> BoundForecast:
    """Prediction for the given settings, by the arithmetic of `proposal`."""
    given = question.parameters
    cap = max(given.debias_cap, given.bound) if given.debias else None
    asked = (found.law, found.units, question.setting.epsilon, _triggers(question))
    return predicted(*asked, given.bound, cap)


def settings_of(one: BoundForecast) -> dict[str, Any]:
    """The settings of a mechanism for this bound and cap."""
    settings: dict[str, Any] = {"bound": one.bound, "debias": one.debias}
    return settings | ({"debias_cap": one.cap} if one.debias else {})


def bounded(question: Question, given: Any) -> list[Any]:
    """The settings with the bound proposed for the sample's records per unit, if there is one."""
    found = proposal(question, law_of(question))
    return [] if found is None else [replace(given, **settings_of(found))]


def _triggers(question: Question) -> int:
    """Number of releases in an epoch, which share a unit's bound."""
    return question.setting.horizon * question.setting.windows


def _notes(found: UnitLaw, shown: BoundForecast, none: bool, given: Any) -> list[str]:
    sent = np.repeat(np.arange(len(found.law)), found.law)
    spread = (
        f"half of the units send {int(np.median(sent))} records or fewer, the busiest "
        f"{int(sent.max(initial=0))}"
    )
    if none:
        return [spread, "records are deleted here, for which a bound must leave room: "
                "none is proposed"]  # fmt: skip
    if not shown.share_cut:
        return [spread, f"a bound of {shown.bound} cuts nothing, so there is nothing to scale up"]
    if not shown.debias:
        return [spread, "noise grows with the bound; counting more of each unit would lose more "
                "than it gains, and so would a private number of all records"]  # fmt: skip
    return [
        spread,
        f"noise grows with the bound, so the map counts {shown.bound} of each unit; a private "
        f"number of all records, up to {shown.cap} of each, gives it the right size, provided that "
        "units with many records are in the same places as others",
    ]


def _plain(value: bool | int) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

"""A learnt bound: the pipelines that a pipeline with a table ``learn`` stands for.

While the bound's budget is unknown, ``pages`` uses the budget that it states, and shares its charge
with ``pages-activity``, which releases its units' activity. At ``learn.at`` both are retired, and
``pages-learnt`` follows with the whole charge and ``learn.budget``. So nothing changes within a
pipeline: ledger, replay and readers see ordinary pipelines.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from ...errors import ParameterError
from ...mechanisms.catalogue import ACTIVITY, find
from .aggregates.partial import Count
from .pipelines.budgets import Learn
from .pipelines.pipeline import PipelineSettings
from .toml.lines import Path
from .toml.read import Problem

if TYPE_CHECKING:
    from .model import Config

Table = dict[str, Any]

SEEN = (
    "input", "key", "derive", "where", "public_keys", "public_keys_file", "sign", "unit_name",
    "neighbouring", "schedule", "lateness", "until", "noise_key_file", "forget_keys", "session",
)  # fmt: skip
"""Settings that select records and units; the activity pipeline has the same ones."""

_WHOLE = 1000


def activity_of(pipeline: str) -> str:
    """Name of the pipeline that releases the activity of a pipeline's units."""
    return f"{pipeline}-activity"


def learnt_of(pipeline: str) -> str:
    """Name of the pipeline that follows a pipeline once its bound is learnt."""
    return f"{pipeline}-learnt"


def stand_for(data: Table, lines: dict[Path, int]) -> Iterator[tuple[Path, str]]:
    """Add the pipelines that tables ``learn`` stand for; yield contradictions and their places.

    Args:
        data: tables of the file; added pipelines are appended.
        lines: lines of the file by place; extended so that mistakes name a line.
    """
    listed = data.get("pipeline")
    for place, table in enumerate(list(listed) if isinstance(listed, list) else ()):
        learn = table.get("learn") if isinstance(table, dict) else None
        if not isinstance(learn, dict) or not isinstance(table.get("name"), str):
            continue
        where: Path = ("pipeline", place, "learn")
        if (wrong := _wrong(data, table, learn)) is not None:
            yield where, wrong
            continue
        for made in _stand_for(data, table, learn):
            lines[("pipeline", len(data["pipeline"]))] = lines.get(where, lines.get(where[:2], 1))
            data["pipeline"].append(made)


def _wrong(data: Table, table: Table, learn: Table) -> str | None:
    window, budget = table.get("window"), table.get("budget")
    shared = data.setdefault("budget", [])
    if not isinstance(window, dict) or "length" not in window:
        return "needs window.length: the bound changes at a boundary of event time"
    if not isinstance(budget, dict):
        return "needs a budget of the pipeline's own, which it shares with the activity of units"
    names = {str(one.get("name")) for one in data["pipeline"] if isinstance(one, dict)}
    if taken := names & {activity_of(table["name"]), learnt_of(table["name"])}:
        return f"needs the name {min(taken)!r}, which another pipeline has"
    if "per_unit" in budget:
        return "is not possible with budget.per_unit: the activity of units has no cap for each"
    for name in ("limit_epsilon", "limit_delta"):
        if name in budget:
            return (
                f"is not possible with budget.{name} = {budget[name]}: "
                f"{learnt_of(table['name'])!r} would have the whole limit anew; leave it out, and "
                "bound the number of epochs with until, which ends both"
            )
    if "session" in table:
        return "is not possible with session: the activity of units is of records, not of sessions"
    if ("budget" in learn) != ("at" in learn):
        return "needs budget and at together, or neither: `hush learn` prints both"
    return None if isinstance(shared, list) else "stands beside a budget that is no list of tables"


def _stand_for(data: Table, table: Table, learn: Table) -> list[Table]:
    """The added pipelines; ``table`` becomes the first generation, without a budget."""
    name, whole = table["name"], table.pop("budget")
    weight = _weight(learn.get("share"))
    members = {name: _WHOLE - weight, activity_of(name): weight}
    data["budget"].append({"name": name, "members": members, **whole})
    made = []
    if "at" in learn:
        mechanism = {**table.get("mechanism", {}), "budget": learn["budget"]}
        silent = ("learn", "query", "clip")
        later = {n: value for n, value in table.items() if n not in silent}
        own = {"name": learnt_of(name), "follows": name, "budget": whole, "mechanism": mechanism}
        made.append(later | own | {"window": _without(table["window"], "origin")})
        table["until"] = learn["at"]
    seen = {n: table[n] for n in SEEN if n in table}
    length = table["window"]["length"]
    made.append(
        seen | {"name": activity_of(name), "window": _without(table["window"], "hop"),
                "triggers": {"every": length}, "mechanism": dict(ACTIVITY)}
    )  # fmt: skip
    return made


def _without(table: Table, name: str) -> Table:
    return {n: value for n, value in table.items() if n != name}


def _weight(share: Any) -> int:
    """A share in thousandths; an invalid one is reported later."""
    try:
        number = Learn.share if share is None else Decimal(str(share))
        return int(number * _WHOLE) if Decimal("0.001") <= number < 1 else 1
    except InvalidOperation:
        return 1


def contradictions(config: Config) -> Iterator[Problem]:
    """Yield settings with which a bound cannot be learnt."""
    for place, p in enumerate(config.pipeline):
        found = () if p.learn is None else _objections(p)
        yield from (Problem.under(("pipeline", place), one) for one in found)


def _objections(p: PipelineSettings) -> Iterator[tuple[str, str]]:
    learner = find(p.mechanism.kind).learner
    if learner is None:
        yield "learn", f"is not possible with {p.mechanism.kind}, whose bound cannot be learnt"
        return
    try:
        learner.refuse(p.mechanism.parameters)
    except ParameterError as error:
        yield "learn", str(error)
    if p.schedule == "external":
        yield "learn", "needs triggers that follow the clock: an epoch's end is a time of it"
    if p.window.hop is not None or p.epoch not in (None, p.window.length):
        yield "learn", "needs windows that are epochs: leave out epoch and window.hop"
    if count_of(p) is None:
        yield "learn", 'needs an aggregate { kind = "count" } without where: its counts are used'


def count_of(p: PipelineSettings) -> str | None:
    """Name of the released number of all records of a key; None if it is not released."""
    plain = (one for one in p.aggregate if isinstance(one, Count) and not one.where)
    return next((one.label for one in plain), None)

"""The facts of a deployment's public page, for programs: promises and spending."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from ...agents.clock.ledger import Ledger, totals
from ...formats.events.decode import utc
from ..joint import joint
from .budget import cap, local, purses, spent
from .conditions import in_words
from .declared import MILLI, Declared, declared

SCHEMA = "hush.promise/1"


class Limits(NamedTuple):
    """Limits on the total cost of a pipeline's epochs; None: none is known."""

    epsilon: float | None = None
    delta: float | None = None


def facts(ledger: Ledger, limits: Mapping[str, Limits]) -> dict[str, Any]:
    """Collect the facts of the page, for programs.

    Args:
        ledger: the verified ledger.
        limits: limits by pipeline or shared budget, from the configuration (the ledger has none).

    Raises:
        LedgerError: a declaration or a charge cannot be read.
    """
    pipelines = declared(ledger)
    sums = totals(ledger, pipelines)
    return {
        "schema": SCHEMA,
        "deployment": ledger.genesis["deployment"],
        "as_of": utc(ledger.records[-1].time // 1_000_000 * 1_000_000),
        "ledger": {"records": len(ledger.records), "head": ledger.head},
        "public_key": ledger.public_key,
        "pipelines": [
            _pipeline(ledger, one, limits.get(name, Limits())) for name, one in pipelines.items()
        ],
        "shared_budgets": [
            {
                "name": one.name,
                "pipelines": list(one.members),
                "per_epoch": _cost(one.epsilon, one.delta),
                "epochs": one.spent.epochs,
                "spent": _cost(one.spent.composed(), one.spent.delta),
                "limit": limits.get(one.name, Limits())._asdict(),
            }
            for one in purses(ledger, sums)
        ],
        "units": [
            {"unit": one.kind.unit, "neighbouring": one.kind.neighbouring,
             "spent": _cost(one.epsilon, one.delta)}
            for one in joint({ledger.genesis["deployment"]: ledger}).sums
        ],
    }  # fmt: skip


def _cost(epsilon: Fraction, delta: Fraction) -> dict[str, float]:
    return {"epsilon": float(epsilon), "delta": float(delta)}


def _pipeline(ledger: Ledger, one: Declared, limits: Limits) -> dict[str, Any]:
    sums, windows = spent(ledger, one, limits.epsilon), one.windows
    shared = one.config["budget"].get("shared")
    end = ledger.retired.get(one.name)
    losses = [body for body in ledger.losses if one.name in body["epochs"]]
    return {
        "name": one.name,
        "topic": one.topic,
        "mechanism": one.mechanism,
        "unit": one.unit,
        "neighbouring": _charge(ledger, one.name).get("neighbouring"),
        "on_device": local(ledger, one),
        "released": _released(one),
        "window": windows.shown,
        "epoch": windows.epoch_shown,
        "per_epoch": {"epsilon": sums["epsilon"], "delta": sums["delta"]},
        "shared_budget": None if shared is None else shared["name"],
        "epochs": {"charged": sums["charged"], "refused": sums["refused"]},
        "spent": {"epsilon": sums["total"], "delta": sums["total_delta"], "sum": sums["sum"]},
        "limit": {"epsilon": limits.epsilon, "delta": limits.delta},
        "left": sums["left"],
        "per_unit": cap(one),
        "follows": (ledger.pipelines[one.name].get("follows") or {}).get("pipeline"),
        "ends": None if end is None else utc(end["until"]),
        "incomplete_epochs": [list(body["epochs"][one.name]) for body in losses],
        "newest_epochs": [
            {"epoch": e["epoch"], "begin": _date(e["start"]), "end": _date(e["end"])}
            | (
                {"refused": True}
                if e["refused"]
                else {"epsilon": e["epsilon"], "so_far": e["total"]}
            )
            for e in sums["epochs"]
        ],
    }


def _charge(ledger: Ledger, pipeline: str) -> Mapping[str, Any]:
    """Body of a pipeline's latest charge (all have the same terms); {} before the first."""
    own = (r.body for (name, _), r in ledger.charges.items() if name == pipeline)
    return next(own, {})


def _released(one: Declared) -> list[str]:
    """List what is published, in the configuration's names, and of which records."""
    every = one.config.get("where")
    if (own := one.published) is not None:
        field = one.config["inputs"].get("value")
        return [own + (f" of {field}" if field else "") + _where(every)]
    found = []
    for each in one.config["aggregate"] or ():
        field = f" of {each['field']}" if "field" in each else ""
        found.append(f"{each['kind']}{field}{_where(every, each.get('where'))}")
    return found or [f"keys{_where(every)}"]


def _where(*conditions: Mapping[str, Any] | None) -> str:
    """Say which records count; nothing if all do."""
    given = [one for one in conditions if one is not None]
    whole = given[0] if len(given) == 1 else {"kind": "every", "parts": given}
    return f" where {in_words(whole)}" if given else ""


def _date(millis: int) -> str:
    return utc(millis * MILLI)

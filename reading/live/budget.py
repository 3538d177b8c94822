"""Budget of a pipeline by epoch, from the ledger: what was charged, and what is left."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from ...agents.clock.ledger import Ledger, cost_of, number
from ...mechanisms.accounting import add
from ...mechanisms.accounting.composition import Spent
from ...topics.config.toml.values import format_duration
from .declared import MILLI, Declared

MOST = 400  # epochs listed; totals cover all


class SharedSum(NamedTuple):
    """A budget that several pipelines share."""

    name: str  # of the budget
    members: tuple[str, ...]  # names of the declared pipelines
    epsilon: Fraction  # of one epoch of all members together
    delta: Fraction  # of one epoch
    spent: Spent  # in all epochs that any member has charged


def purses(ledger: Ledger, sums: Mapping[str, Spent]) -> list[SharedSum]:
    """Add up, for each shared budget, what a unit pays for all its pipelines.

    Args:
        sums: what was charged, by pipeline.
    """
    told: dict[str, dict[str, Any]] = {}
    for body in ledger.pipelines.values():
        if (shared := body.get("config", {}).get("budget", {}).get("shared")) is not None:
            told[shared["name"]] = shared
    found = []
    for name, shared in told.items():
        members = tuple(member for member in shared["members"] if member in sums)
        epochs = len({epoch for member, epoch in ledger.charges if member in members})
        parts = add(sums[member].joint for member in members)
        squares = sum((sums[member].squares for member in members), Fraction(0))
        epsilon, delta = number(shared["epsilon"]), number(shared["delta"])
        whole = Spent(epochs, epochs * epsilon, epochs * delta, parts, squares)
        found.append(SharedSum(name, members, epsilon, delta, whole))
    return found


def spent(ledger: Ledger, pipeline: Declared, limit: float | None) -> dict[str, Any]:
    """Sum up a pipeline's charges.

    Args:
        ledger: the ledger as far as it was read.
        limit: limit on ε of all epochs together (and all members of a shared budget), from the
            newest manifest; None: no limit is known.

    Returns:
        A JSON object: ``epsilon`` and ``delta`` of one epoch, the composed ``total`` of all charged
        epochs and the plain ``sum`` of their ε, ``left`` of the limit, and ``epochs``, newest
        first, each with its dates in milliseconds since 1970, its ε, and the ``total`` and ``left``
        after it. ``shared``, the pipeline's shared budget if it has one, holds ``epsilon``,
        ``total`` and the like for all ``members`` together; ``left`` then refers to it. ``cap`` is
        the result of `cap`.

    Raises:
        LedgerError: a charge lacks a valid number.
    """
    total, listed, shared = Spent(), [], _shared(ledger, pipeline)
    for (name, epoch), record in ledger.charges.items():  # in the order of charging
        if name == pipeline.name:
            one = cost_of(record.body)
            total = total.plus(one)
            listed.append((epoch, one, total))
    own = limit if shared is None else None  # a member of a budget has no limit of its own
    shown = [_span(pipeline, n) | _sum(one, so_far, own) for n, one, so_far in listed[-MOST:]]
    refused = [
        _span(pipeline, epoch) | {"refused": True}
        for name, epoch in sorted(ledger.refused)
        if name == pipeline.name
    ]
    budget = pipeline.config["budget"]
    whole = float(total.composed()) if shared is None else shared["total"]
    return {
        "epsilon": float(number(budget["epsilon"])),
        "delta": float(number(budget["delta"])),
        "total": float(total.composed()),
        "sum": float(total.epsilon),
        "total_delta": float(total.delta),
        "limit": limit,
        "left": None if limit is None else max(limit - whole, 0.0),
        "shared": shared,
        "cap": cap(pipeline),
        "charged": total.epochs,
        "refused": len(refused),
        "epochs": sorted(shown + refused, key=lambda one: -int(one["epoch"]))[:MOST],
    }


def cap(pipeline: Declared) -> dict[str, Any] | None:
    """State the promised cap on a unit's loss over many epochs; None: there is none.

    Returns:
        ``epsilon``, ``delta``, ``period`` (None: without end), and ``pipelines`` that share it.

    Raises:
        LedgerError: the declaration lacks a valid number.
    """
    budget = pipeline.config["budget"]
    shared = budget.get("shared") or {}
    terms = shared.get("per_unit") or budget.get("per_unit")
    if terms is None:
        return None
    return {
        "epsilon": float(number(terms["epsilon"])),
        "delta": float(number(terms["delta"])),
        "period": None if terms["period"] is None else format_duration(terms["period"]),
        "pipelines": list(shared["members"]) if shared.get("per_unit") else [pipeline.name],
    }


def _shared(ledger: Ledger, pipeline: Declared) -> dict[str, Any] | None:
    """Sum up the shared budget of a pipeline, over all its members; None: it has its own."""
    shared = pipeline.config["budget"].get("shared")
    if shared is None:
        return None
    sums = {name: ledger.spent(name) for name in ledger.pipelines}
    one = next(one for one in purses(ledger, sums) if one.name == shared["name"])
    return {
        "name": one.name,
        "members": list(one.members),
        "epsilon": float(one.epsilon),
        "delta": float(one.delta),
        "charged": one.spent.epochs,
        "total": float(one.spent.composed()),
        "sum": float(one.spent.epsilon),
    }


def local(ledger: Ledger, pipeline: Declared) -> bool:
    """Whether values stay on devices, as the pipeline's charges state it."""
    own = (one.body for (name, _), one in ledger.charges.items() if name == pipeline.name)
    return any(body.get("definition") == "local" for body in own)


def _sum(one: Spent, so_far: Spent, limit: float | None) -> dict[str, Any]:
    total = float(so_far.composed())
    left = None if limit is None else max(limit - total, 0.0)
    return {"epsilon": float(one.epsilon), "total": total, "left": left, "refused": False}


def _span(pipeline: Declared, epoch: int) -> dict[str, Any]:
    windows = pipeline.windows
    start, end = windows.begin(epoch), windows.begin(epoch + 1)
    return {"epoch": epoch, "start": start // MILLI, "end": end // MILLI}

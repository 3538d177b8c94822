"""Budget of a pipeline by epoch, as the ledger has it: what was charged, and what is left."""

from __future__ import annotations

from typing import Any

from ...agents.clock.ledger import Ledger, cost_of, number
from ...mechanisms.accounting.composition import Spent
from .declared import MILLI, Declared

MOST = 400  # epochs that are listed; the totals are of all


def spent(ledger: Ledger, pipeline: Declared, limit: float | None) -> dict[str, Any]:
    """Sum up a pipeline's charges.

    Args:
        ledger: as far as it was read.
        pipeline: one of its pipelines.
        limit: on the sum of ε, from the newest manifest; None: there is none, or none is known.

    Returns:
        A JSON object: ``epsilon`` and ``delta`` of one epoch, ``total`` of all charged ones
        together and the ``sum`` of their ε, ``left`` of the limit, and ``epochs``, newest first,
        each with its dates in milliseconds since 1970, its ε, and the ``total`` and what was
        ``left`` after it.

    Raises:
        LedgerError: a charge holds something else where a number should be.
    """
    total, listed = Spent(), []
    for (name, epoch), record in ledger.charges.items():  # in the order in which they were charged
        if name == pipeline.name:
            one = cost_of(record.body)
            total = total.plus(one)
            listed.append((epoch, one, total))
    shown = [_span(pipeline, n) | _sum(one, so_far, limit) for n, one, so_far in listed[-MOST:]]
    refused = [
        _span(pipeline, epoch) | {"refused": True}
        for name, epoch in sorted(ledger.refused)
        if name == pipeline.name
    ]
    budget = pipeline.config["budget"]
    return {
        "epsilon": float(number(budget["epsilon"])),
        "delta": float(number(budget["delta"])),
        "total": float(total.composed()),
        "sum": float(total.epsilon),
        "total_delta": float(total.delta),
        "limit": limit,
        "left": None if limit is None else max(limit - float(total.composed()), 0.0),
        "charged": total.epochs,
        "refused": len(refused),
        "epochs": sorted(shown + refused, key=lambda one: -int(one["epoch"]))[:MOST],
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
    start = windows.start(epoch * windows.per_epoch)
    end = start + windows.length * windows.per_epoch
    return {"epoch": epoch, "start": start // MILLI, "end": end // MILLI}

"""Budget of a pipeline by epoch, as the ledger has it: what was charged, and what is left."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from ...agents.clock.ledger import Ledger, number
from .declared import MILLI, Declared

MOST = 400  # epochs that are listed; the totals are of all


def spent(ledger: Ledger, pipeline: Declared, limit: float | None) -> dict[str, Any]:
    """Sum up a pipeline's charges.

    Args:
        ledger: as far as it was read.
        pipeline: one of its pipelines.
        limit: on the sum of ε, from the newest manifest; None: there is none, or none is known.

    Returns:
        A JSON object: ``epsilon`` and ``delta`` of one epoch, ``total`` of all charged ones,
        ``left`` of the limit, and ``epochs``, newest first, each with its dates in milliseconds
        since 1970, its ε, and the ``total`` and what was ``left`` after it.

    Raises:
        LedgerError: a charge holds something else where a number should be.
    """
    charges = [
        (int(epoch), number(record.body.get("epsilon")), number(record.body.get("delta")))
        for (name, epoch), record in ledger.charges.items()
        if name == pipeline.name
    ]
    total, delta, listed = Fraction(0), Fraction(0), []
    for epoch, epsilon, more in charges:  # in the order in which they were charged
        total, delta = total + epsilon, delta + more
        listed.append(_span(pipeline, epoch) | _sum(epsilon, total, limit))
    refused = [
        _span(pipeline, epoch) | {"refused": True}
        for name, epoch in sorted(ledger.refused)
        if name == pipeline.name
    ]
    budget = pipeline.config["budget"]
    return {
        "epsilon": float(number(budget["epsilon"])),
        "delta": float(number(budget["delta"])),
        "total": float(total),
        "total_delta": float(delta),
        "limit": limit,
        "left": None if limit is None else max(limit - float(total), 0.0),
        "charged": len(charges),
        "refused": len(refused),
        "epochs": sorted(listed + refused, key=lambda one: -int(one["epoch"]))[:MOST],
    }


def local(ledger: Ledger, pipeline: Declared) -> bool:
    """Whether values stay on devices, as the pipeline's charges state it."""
    own = (one.body for (name, _), one in ledger.charges.items() if name == pipeline.name)
    return any(body.get("definition") == "local" for body in own)


def _sum(epsilon: Fraction, total: Fraction, limit: float | None) -> dict[str, Any]:
    left = None if limit is None else max(limit - float(total), 0.0)
    return {"epsilon": float(epsilon), "total": float(total), "left": left, "refused": False}


def _span(pipeline: Declared, epoch: int) -> dict[str, Any]:
    windows = pipeline.windows
    start = windows.start(epoch * windows.per_epoch)
    end = start + windows.length * windows.per_epoch
    return {"epoch": epoch, "start": start // MILLI, "end": end // MILLI}

"""Ledger bodies for the end of a pipeline, and for a pipeline that follows another."""

from __future__ import annotations

from typing import Any

from ...errors import LedgerError
from ...topics.config.toml.values import format_instant
from ..deployment.model import Pipeline
from .ledger import Ledger


def earliest_end(pipeline: Pipeline, ledger: Ledger, now: int) -> int:
    """Find the first boundary at which a pipeline can be retired, microseconds since 1970.

    No epoch beyond it has begun or was charged. For a pipeline triggered by request, charges alone
    decide, since its windows do not follow the clock.
    """
    windows = pipeline.windows
    charged = [epoch + 1 for name, epoch in ledger.charges if name == pipeline.name]
    begun = [] if pipeline.external else [windows.epoch_at(now) + 1]
    return windows.begin(max(charged + begun, default=0))


def retirement(pipeline: Pipeline, ledger: Ledger, now: int) -> dict[str, Any] | None:
    """Make the body of the record that ends a pipeline; None if it has an end, or needs none.

    Args:
        now: microseconds since 1970.

    Raises:
        LedgerError: an epoch beyond the end has begun, or was charged.
    """
    until = pipeline.until
    if until is None or pipeline.name in ledger.retired:
        return None
    least = earliest_end(pipeline, ledger, now)
    if until < least:
        raise LedgerError(
            f'pipeline {pipeline.name!r}: until = "{format_instant(until)}" is too early: the '
            "epoch that begins then has begun or was charged, and ends under the terms that it "
            f'has; the earliest is until = "{format_instant(least)}"'
        )
    epoch = pipeline.windows.epoch_at(until)
    return {"pipeline": pipeline.name, "until": until, "epoch": epoch}


def following(pipeline: Pipeline, ledger: Ledger, now: int) -> dict[str, Any]:
    """Make the part of a declaration that names the followed pipeline; {} if there is none.

    Args:
        ledger: ledger, with the end of the followed pipeline.
        now: microseconds since 1970.

    Raises:
        LedgerError: the followed pipeline is not retired, has already ended, or has a follower.
    """
    other = pipeline.follows
    if other is None:
        return {}
    name, begin = pipeline.name, pipeline.windows.origin
    end = ledger.retired.get(other, {}).get("until")
    if end is None or end != begin:
        held = "does not end" if end is None else f"ends at {format_instant(end)}"
        raise LedgerError(
            f"pipeline {name!r}: it would follow {other!r} from {format_instant(begin)} on, but by "
            f"the ledger {other!r} {held}"
        )
    if end <= now:
        raise LedgerError(
            f"pipeline {name!r}: {other!r} ended at {format_instant(end)}, so a follower would "
            "miss the records since then: declare a pipeline without follows, with a "
            "release.topic of its own"
        )
    if (second := ledger.follower(other)) is not None:
        raise LedgerError(f"pipeline {name!r}: {second!r} already follows {other!r}")
    return {"follows": {"pipeline": other, "from": end}}

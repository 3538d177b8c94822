"""What a stage's pure function returns; the shard turns it into one transaction."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from ...topics.records import Marker
from ..state.store import Changes


class Out(NamedTuple):
    """One record to produce."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int | None = None  # milliseconds; None = now, for internal topics only
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass
class Step:
    """The effect of one step.

    Attributes:
        out: records of the transaction, in order.
        rows: changed rows, sent to the changelog and written to the store.
        local: changed rows that are derived and stay local.
        marker: what has been applied after this step.
        counts: operator-only figures, by (pipeline, outcome).
        more: whether the stage has more to do without new input.
        not_before: wall-clock microseconds before which this step must not be committed.
        watermark: per pipeline, time of the last clock entry that was used.
    """

    marker: Marker
    out: list[Out] = field(default_factory=list)
    rows: Changes = field(default_factory=dict)
    local: Changes = field(default_factory=dict)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    more: bool = False
    not_before: int = 0
    watermark: dict[str, int] = field(default_factory=dict)

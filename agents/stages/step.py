"""A stage and its steps: the input and output of a pure function, and the routing of its records.

A shard turns a step into one Kafka transaction; a replay applies it in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ...errors import RewoundError
from ...mechanisms.keys import Keys
from ...mechanisms.parts.bounds.bounding import pair_hash
from ...topics.records import Marker
from ..state.layout import UNIT_WIDTH
from ..state.rows.columns import NO_ROWS, Found, RowColumns, pick, put_in
from ..state.rows.table import HeldTable
from ..state.store import Changes, StateReader

UNIT_BYTES = 64  # of a unit's row, about


class LogFrame(NamedTuple):
    """One record of an internal topic, or of a release topic, with its headers and timestamp."""

    offset: int
    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp: int = 0  # milliseconds


class Out(NamedTuple):
    """One record to produce."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int | None = None  # milliseconds; None = now, for internal topics only
    headers: tuple[tuple[str, bytes], ...] = ()


class ChangedUnits:
    """Changed rows of units by key; the newest row of a key counts."""

    def __init__(self) -> None:
        self._only: RowColumns | None = None  # most steps change units once
        self._table: HeldTable | None = None

    def __len__(self) -> int:
        if self._table is not None:
            return len(self._table)
        return 0 if self._only is None else len(self._only.keys)

    def put(self, rows: RowColumns) -> None:
        """Change rows of distinct keys."""
        if self._only is None and self._table is None:
            self._only = rows
        else:
            self._joined().put(rows)

    def read(self, reader: StateReader, keys: Keys) -> Keys:
        """Read rows of distinct keys with this step's changes; an empty row means none."""
        if len(self) == 0:
            return reader.get_columns(keys)
        found: Found = self._joined().look(keys)
        rows = np.flatnonzero(~found.known)
        if len(rows) == 0:
            return found.values
        return put_in(found.values, rows, reader.get_columns(pick(keys, rows)))

    def columns(self) -> RowColumns:
        """All changed rows, each key once."""
        if self._table is not None:
            return self._table.rows()
        return NO_ROWS if self._only is None else self._only

    def _joined(self) -> HeldTable:
        if self._table is None:
            self._table = HeldTable(UNIT_WIDTH)
            if self._only is not None:
                self._table.put(self._only)
                self._only = None
        return self._table


@dataclass
class Step:
    """The effect of one step.

    Attributes:
        marker: marker after this step.
        out: records of the transaction, in order.
        rows: changed rows, sent to the changelog and written to the store.
        units: changed rows of units, likewise; they precede ``rows``.
        local: changed rows that are derived and stay local.
        counts: operator-only figures, by (pipeline, outcome).
        more: whether the stage has more to do without new input.
        not_before: wall-clock microseconds before which this step, a publication, must not be
            committed; 0: it is none.
        watermark: time of the last clock entry that was used, per pipeline, microseconds.
        tells: lines about public events, for the log once the step is committed.
    """

    marker: Marker
    out: list[Out] = field(default_factory=list)
    rows: Changes = field(default_factory=dict)
    units: ChangedUnits = field(default_factory=ChangedUnits)
    local: Changes = field(default_factory=dict)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    more: bool = False
    not_before: int = 0
    watermark: dict[str, int] = field(default_factory=dict)
    tells: list[str] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Approximate bytes of its records and rows."""
        rows = sum(map(len, self.rows)) + sum(map(len, filter(None, self.rows.values())))
        return rows + sum(len(out.value or b"") for out in self.out) + UNIT_BYTES * len(self.units)


class Stage(Protocol):
    """The stage that a shard runs on one partition of its topic: ingest, bound, aggregate or view.

    ``position`` is the next input offset that the stage wants. It may be ahead of the committed
    marker, while state is only in memory.
    """

    @property
    def position(self) -> int:
        """The next input offset that the stage wants."""

    def open(self, reader: StateReader, marker: Marker) -> None:
        """Take up committed state."""

    def step(
        self, reader: StateReader, marker: Marker, records: Sequence[Any], fetched: int
    ) -> Step | None:
        """Apply the records of one transaction; None if there is nothing to commit.

        Args:
            marker: the last committed one.
            records: records from ``position`` on, in offset order.
            fetched: offset before which ``records`` is complete.

        Raises:
            EngineError: the logs contradict each other, and continuing would break the guarantee.
        """


def missing_barrier(pipeline: str, due: int, came: int) -> RewoundError:
    """Make the error for a topic between stages that lacks the barrier of a trigger.

    The stage that writes the topic sends a barrier for every trigger, in order, in one transaction
    with its own position. So if one is missing, the topic and that stage's tables are not of one
    history.

    Args:
        due: ordinal of the trigger whose barrier was due.
        came: ordinal of the trigger whose barrier came.
    """
    return RewoundError(
        f"a barrier is missing in pipeline {pipeline!r}: that of trigger {due} was expected, "
        f"that of trigger {came} came"
    )


def route(keys: Keys, partitions: int) -> NDArray[np.intp]:
    """Compute the (k,) cells partitions of k keys by a stable public hash."""
    return (pair_hash(keys, 0) % np.uint32(partitions)).astype(np.intp)


def route_units(digests: NDArray[np.uint8], partitions: int) -> NDArray[np.intp]:
    """Compute the (n,) units partitions of (n, 16) keyed digests, from their first four bytes."""
    head = np.ascontiguousarray(digests[:, :4]).view(">u4").reshape(-1)
    return (head % np.uint32(partitions)).astype(np.intp)

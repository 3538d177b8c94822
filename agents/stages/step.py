"""A stage and its step: the input and output of a pure function.

A shard turns a step into one Kafka transaction; a replay applies it in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from ...errors import RewoundError
from ...topics.records import Marker
from ..state.store import Changes, StateReader
from ..state.units.changed import ChangedUnits

UNIT_BYTES = 64  # of the row of a unit, about


class LogFrame(NamedTuple):
    """One record of an internal topic, or of a release topic: then with headers and time."""

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


@dataclass
class Step:
    """The effect of one step.

    Attributes:
        marker: what has been applied after this step.
        out: records of the transaction, in order.
        rows: changed rows, sent to the changelog and written to the store.
        units: changed rows of units, likewise; before those of ``rows``.
        local: changed rows that are derived and stay local.
        counts: operator-only figures, by (pipeline, outcome).
        more: whether the stage has more to do without new input.
        not_before: wall-clock microseconds before which this step must not be committed.
        watermark: per pipeline, time of the last clock entry that was used, microseconds.
        tells: lines for the log once the step is committed, of what is public by then.
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
        """Bytes of its records and rows, about."""
        rows = sum(len(key) + len(value or b"") for key, value in self.rows.items())
        return rows + sum(len(out.value or b"") for out in self.out) + UNIT_BYTES * len(self.units)


class Stage(Protocol):
    """A stage that a shard runs: ingest, bound, aggregate or view over one partition of its topic.

    ``position`` is the input offset that the stage wants next; it may be ahead of the
    committed marker where state is only held in memory.
    """

    @property
    def position(self) -> int:
        """The input offset that is wanted next."""

    def open(self, reader: StateReader, marker: Marker) -> None:
        """Take up committed state."""

    def step(
        self, reader: StateReader, marker: Marker, records: Sequence[Any], fetched: int
    ) -> Step | None:
        """Use as many records as make one transaction; None if nothing is to be committed.

        Args:
            marker: the last committed one.
            records: records at or above ``position``, in offset order.
            fetched: offset before which ``records`` is complete.

        Raises:
            EngineError: the logs contradict each other; going on would break the guarantee.
        """


def missing_barrier(pipeline: str, due: int, came: int) -> RewoundError:
    """Say that a topic between the stages lacks the barrier of a trigger.

    A stage before it writes one for every trigger, in order, together with its own position. So the
    topic and the tables of that stage are not of one history.

    Args:
        due: ordinal of the trigger whose barrier was to come.
        came: ordinal of the one that came.
    """
    return RewoundError(
        f"a barrier is missing in pipeline {pipeline!r}: that of trigger {due} was to come, that "
        f"of trigger {came} came"
    )

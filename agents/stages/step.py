"""A stage and its steps: the input and output of a pure function, and the routing of its records.

A shard turns a step into one Kafka transaction; a replay applies it in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from msgspec.structs import replace
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
NUMBER = "number"  # header with the number of a frame
UNKNOWN = -1


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
    marker, while state is only in memory. ``watermark`` is the time of the last clock entry that it
    has used, per pipeline, microseconds since 1970, also of one that no step has committed.
    """

    watermark: Mapping[str, int]

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


class Sent:
    """Numbers the frames from one shard to others: each must come once, and none be missing.

    A sender commits its numbers with the records that it has applied, and a receiver those that it
    has taken with its sums. Suppose a sender's changelog loses its end (a truncated topic, an
    unclean election) and no table of it is left. It then applies the same records again, and
    nothing but the numbers shows that their sums were sent before: each unit would count twice.
    Likewise a log of frames that has lost its end.

    Frames of earlier versions have no number. A deployment may go back to such a version, so a
    frame without one says that the next number is not known.

    Args:
        topics: pipeline and number of partitions for each topic with frames of this shard.
    """

    def __init__(self, topics: Mapping[str, tuple[str, int]]) -> None:
        self._topics = topics

    def number(self, marker: Marker, step: Step | None) -> Step | None:
        """Number the frames of a step; its marker gets the last number for each partition.

        Args:
            marker: last committed marker.
        """
        if step is None:
            return None
        sent = dict(marker.sent)
        for pipeline, partitions in self._topics.values():
            sent[pipeline] = list(_last(marker, marker.sent, pipeline, partitions))
        for place, out in enumerate(step.out):
            if (to := self._topics.get(out.topic)) is not None:
                last = sent[to[0]]
                if last[out.partition] != UNKNOWN:
                    number = b"%d" % (last[out.partition] + 1)
                    step.out[place] = out._replace(headers=((NUMBER, number),))
                last[out.partition] = max(last[out.partition], 0) + 1
        step.marker = replace(step.marker, sent=sent)
        return step


class Received:
    """The last number of each upstream shard, as far as frames were taken.

    Args:
        marker: marker up to which they were taken.
        upstreams: number of shards that send frames.
    """

    def __init__(self, pipeline: str, marker: Marker, upstreams: int) -> None:
        self._pipeline = pipeline
        self._last = list(_last(marker, marker.received, pipeline, upstreams))

    @property
    def last(self) -> dict[str, list[int]]:
        """The last numbers by pipeline, as a marker keeps them."""
        return {self._pipeline: list(self._last)}

    def check(self, origin: int, frame: Any) -> int:
        """Return the number of the next frame of a shard, a record with headers.

        Raises:
            RewoundError: another number was due.
        """
        self._last += [0] * (origin + 1 - len(self._last))  # a raw partition that was added
        said = next((value for name, value in frame.headers if name == NUMBER), None)
        number = UNKNOWN if said is None else int(said)
        last = self._last[origin]
        # How many frames a shard sends depends on raw data, so the text names no number.
        if UNKNOWN not in (number, last) and number != last + 1:
            how = "came twice" if number <= last else "is missing"
            raise RewoundError(
                f"a frame of pipeline {self._pipeline!r} {how} between its stages: the logs of the "
                "sender and of its frames are not of one history"
            )
        return number

    def take(self, origin: int, number: int) -> None:
        """Note that the next frame of a shard was taken."""
        self._last[origin] = number


def _last(marker: Marker, kept: Mapping[str, list[int]], name: str, many: int) -> list[int]:
    """The last numbers of a pipeline, as kept in a marker, for so many partitions.

    A marker of an earlier version keeps none; a shard that has not begun has the marker without a
    transaction.
    """
    if name not in kept:
        return [UNKNOWN if marker.transaction else 0] * many
    return kept[name] + [0] * (many - len(kept[name]))


def route(keys: Keys, partitions: int) -> NDArray[np.intp]:
    """Compute the (k,) cells partitions of k keys by a stable public hash."""
    return (pair_hash(keys, 0) % np.uint32(partitions)).astype(np.intp)


def route_units(digests: NDArray[np.uint8], partitions: int) -> NDArray[np.intp]:
    """Compute the (n,) units partitions of (n, 16) keyed digests, from their first four bytes."""
    head = np.ascontiguousarray(digests[:, :4]).view(">u4").reshape(-1)
    return (head % np.uint32(partitions)).astype(np.intp)

"""Intervals of fetched records, and positions that can no longer be fetched."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from aiokafka.errors import NoOffsetForPartitionError, OffsetOutOfRangeError
from aiokafka.structs import TopicPartition as TP  # Faust's is an equal tuple, slow to import

from ...errors import EngineError
from ...formats.events.raw import RawBatch, RawChunk

GONE_SECONDS = 30.0
RECORD_BYTES = 100  # Python's overhead for one record
_OFFSET = attrgetter("offset")

Positions = Callable[[], Mapping[TP, int]]
"""The position that each open shard wants next."""


class Interval(NamedTuple):
    """Records of one partition in [start, end), in order; possibly none."""

    tp: TP
    # start, end: offsets; the interval covers control records and aborted transactions in between
    start: int
    end: int
    records: Sequence[Any]
    size: int = 0  # bytes of keys, values and headers


class Most(NamedTuple):
    """The limits of one interval.

    ``size`` is in bytes, and may be exceeded by one record or chunk. ``largest`` is, by topic, the
    most bytes of a record in a compressed batch; larger ones are not read. ``columns`` are the
    topics that are read in chunks, without an object per record.
    """

    records: int
    size: int = 1 << 30
    largest: Mapping[str, int] = MappingProxyType({})
    columns: Collection[str] = ()


class Taken:
    """Records and chunks as they were taken.

    Attributes:
        size: bytes of their keys, values and headers, with Python's overhead.
    """

    def __init__(self) -> None:
        self.number = self.size = 0
        self._parts: list[Sequence[Any]] = []
        self._plain: list[Any] = []

    def add(self, one: Any) -> None:
        """Take a record, or a chunk of them."""
        if isinstance(one, RawChunk):
            self._end_plain()
            self._parts.append(one.records)
            self.number += len(one.records)
            self.size += one.size
            return
        self._plain.append(one)
        self.number += 1
        self.size += len(one.key or b"") + len(one.value or b"") + RECORD_BYTES
        if one.headers:
            self.size += sum(len(name) + len(value or b"") for name, value in one.headers)

    def _end_plain(self) -> None:
        if self._plain:
            self._parts.append(self._plain)
            self._plain = []

    def records(self) -> Sequence[Any]:
        """List all of them, in order."""
        if not self._parts:
            return self._plain
        self._end_plain()
        return joined(self._parts)


def joined(parts: Sequence[Sequence[Any]]) -> Sequence[Any]:
    """Join lists or batches into one; the result is a batch if all non-empty parts are."""
    parts = [part for part in parts if len(part)] or parts[:1]
    if len(parts) <= 1:
        return parts[0] if parts else []
    batches = [part for part in parts if isinstance(part, RawBatch)]
    if len(batches) == len(parts):
        return RawBatch.joined(batches)
    return [record for part in parts for record in part]


def since(records: Sequence[Any], position: int) -> Sequence[Any]:
    """Take the records, sorted by offset, at or above a position."""
    return records[_place(records, position) :] if len(records) else records


def below(records: Sequence[Any], position: int) -> Sequence[Any]:
    """Take the records, sorted by offset, below a position."""
    return records[: _place(records, position)] if len(records) else records


def _place(records: Sequence[Any], position: int) -> int:
    if isinstance(records, RawBatch):
        return int(np.searchsorted(records.offset, position))
    return bisect_left(records, position, key=_OFFSET)


class Gone:
    """Positions that the broker no longer has.

    Such a position is not an error at once, because two cases resolve themselves:

    - When a partition is assigned, the client starts at the group's offset, which may be missing or
      trimmed. A moment later, the shard seeks to its own position.
    - Another worker may have overtaken a suspended one, and applied and trimmed more. A moment
      later, the suspended worker learns of it.

    A position counts as lost only after an open shard has wanted it for ``patience``. Time without
    a request, in an outage or while suspended, does not count, since the checks for a rewound
    cluster did not run then either.

    Args:
        patience: seconds.
        doubt: called with a partition after a third of that time, so that its shard checks its
            position again.
    """

    def __init__(
        self, patience: float = GONE_SECONDS, doubt: Callable[[TP], None] = lambda _: None
    ) -> None:
        self._patience = patience
        self._doubt = doubt
        self._doubted: set[tuple[TP, int]] = set()
        self._since: dict[tuple[TP, int], float] = {}
        self._looked = time.monotonic()

    def check(self, failed: Any, wanted: Mapping[TP, int]) -> None:
        """Raise the error of a failed fetch, unless it may be transient.

        Args:
            wanted: the position that each open shard wants next.

        Raises:
            EngineError: an open shard has wanted a lost position for ``patience``.
        """
        try:
            failed.check_raise()
        except NoOffsetForPartitionError:
            return
        except OffsetOutOfRangeError as error:
            asked = {(TP(tp.topic, tp.partition), n) for tp, n in error.args[0].items()}
            self._judge({(tp, n) for tp, n in asked if n >= wanted.get(tp, n + 1)})

    def _judge(self, missing: set[tuple[TP, int]]) -> None:
        now = time.monotonic()
        if now - self._looked > self._patience:  # suspended, or an outage: it does not count
            self._since.clear()
        self._looked = now
        partitions = {tp for tp, _ in missing}
        known = {one: t for one, t in self._since.items() if one[0] not in partitions}
        self._since = known | {one: self._since.get(one, now) for one in missing}
        self._doubted &= self._since.keys()
        for one in missing - self._doubted:
            if now - self._since[one] >= self._patience / 3:
                self._doubted.add(one)
                self._doubt(one[0])
        lost = [one for one in missing if now - self._since[one] >= self._patience]
        if lost:
            # Never log the offset: in a raw topic it is an exact count.
            places = ", ".join(sorted(f"{tp.topic}-{tp.partition}" for tp, _ in lost))
            raise EngineError(
                f"the next record to read is gone: {places}; it was deleted before it was applied "
                "(retention of the topic), or the topic was cut short: restore it, or begin a new "
                "deployment (another deployment.name)"
            ) from None

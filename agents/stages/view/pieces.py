"""Complete releases of one pipeline, taken from its release topic in the order of its triggers.

Each shard publishes its triggers in order, and all of them write one partition. So releases become
complete in the order of triggers, and one that is overtaken never does: its beginning was deleted,
or lies before the place from which the topic is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from ....formats.values.codec import ReleaseCodec
from ....topics.assembly import Released, ReleaseParts
from ....topics.releases import Row, WindowSpan, decode_public
from .records import Of

Order = tuple[int, int, int]
"""Scheduled time in milliseconds, start of the window in microseconds, number of the trigger."""


class Complete(NamedTuple):
    """A complete release, its place among all, and the offset of its first record."""

    order: Order
    released: Released
    of: Of
    first: int


class _Open:
    """A release of which something has come."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.pieces = ReleaseParts()
        self.manifests: dict[int, bytes] = {}


class InOrder:
    """Puts the releases of one pipeline together.

    Args:
        pipeline: name of the pipeline; records of others on the topic are skipped.
        codec: codec of its records.
        done: the last release that was used; records of it and of earlier ones are passed over.
    """

    def __init__(self, pipeline: str, codec: ReleaseCodec, done: Order | None = None) -> None:
        self._pipeline = pipeline
        self._known = {one.number: one for one in codec.records.values()}
        self._codec = codec
        self._done = done
        self._open: dict[Order, _Open] = {}

    @property
    def first(self) -> int | None:
        """Offset of the oldest record of a release that is not complete; None: there is none."""
        return min((one.first for one in self._open.values()), default=None)

    def take(self, record: Any) -> Complete | None:
        """Take a record of the topic; return the release that it completes.

        Raises:
            EngineError: the record is damaged, or of a schema that this pipeline does not have.
        """
        told = decode_public(record.headers, record.value, self._known)
        if told is None or told.pipeline != self._pipeline:
            return None
        order = (record.timestamp, _micros(told.window), told.trigger)
        if self._done is not None and order <= self._done:
            return None
        one = self._open.setdefault(order, _Open(record.offset))
        if isinstance(told, Row):
            one.pieces.rows[told.release_id] = told
        else:
            one.pieces.manifests[told.shard] = told
            one.manifests[told.shard] = record.value
        released = one.pieces.whole()
        if released is None:
            return None
        self._done = order
        self._open = {place: left for place, left in self._open.items() if place > order}
        return Complete(order, released, self._of(one, record.timestamp), one.first)

    def _of(self, one: _Open, millis: int) -> Of:
        body: Mapping[str, Any] = msgspec.json.decode(
            self._codec.to_json(one.manifests[min(one.manifests)])
        )
        return Of(body, millis)


def _micros(window: WindowSpan) -> int:
    return round(window.start.timestamp() * 1_000_000)

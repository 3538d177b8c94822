"""Complete releases from the records of a release topic, which come in pieces.

Each shard writes a manifest after its rows, and partitions do not become visible together. A
release is complete once there are manifests of all shards and as many rows as they say.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from statistics import NormalDist
from typing import Any

from .cut_share import CutShare, cut_share
from .releases import Manifest, Row, WindowSpan

REMEMBERED = 1000  # releases that are known to be complete


@dataclass(frozen=True)
class Released:
    """A complete release: all rows of one trigger of one window."""

    rows: tuple[Row, ...]  # rows in no particular order
    manifests: tuple[Manifest, ...]  # one per shard, by its number

    @property
    def manifest(self) -> Manifest:
        """The first shard's manifest; the others differ in shard, rows and nonce alone."""
        return self.manifests[0]

    @property
    def cut(self) -> CutShare | None:
        """The share of records that the contribution bound cut; None: the release does not say.

        Every shard states it from the same counts with a noise of its own: their mean is nearer.
        The intervals of values do not cover what is cut, whether it is known or not.
        """
        every = [one.cut for one in self.manifests if one.cut is not None]
        if not every:
            return None
        # In a simulation all shards have one noise, and look once.
        told = list({(one.arrived, one.accepted): one for one in every}.values())
        looks, first = len(told), told[0]
        return cut_share(
            sum(one.arrived for one in told) / looks,
            first.arrived_stddev / looks**0.5,
            sum(one.accepted for one in told) / looks,
            first.accepted_stddev / looks**0.5,
            NormalDist().inv_cdf((1 + self.manifest.confidence_level) / 2),
        )

    @property
    def pipeline(self) -> str:
        """Name of the pipeline, which is a later generation where one follows another."""
        return self.manifest.pipeline

    @property
    def window(self) -> WindowSpan:
        """Event time that the release is about."""
        return self.manifest.window

    @property
    def trigger(self) -> int:
        """Number of the trigger in its window, from 1 on."""
        return self.manifest.trigger

    @property
    def final(self) -> bool:
        """Whether it is the last one of its window."""
        return self.manifest.final

    @property
    def scheduled(self) -> datetime:
        """Scheduled time of the trigger."""
        return self.manifest.emitted_at


At = tuple[str, datetime, int]
"""Pipeline, start of the window, and trigger: what a release is known by."""


@dataclass
class ReleaseParts:
    rows: dict[str, Row] = field(default_factory=dict)
    manifests: dict[int, Manifest] = field(default_factory=dict)

    def whole(self) -> Released | None:
        """The release, once it is complete."""
        told = [self.manifests[shard] for shard in sorted(self.manifests)]
        if not told or len(told) < told[0].shards:
            return None
        if len(self.rows) < sum(manifest.rows for manifest in told):
            return None
        return Released(tuple(self.rows.values()), tuple(told))


class Assembly:
    """Records of one pipeline in, complete releases out; other pipelines' records are passed over.

    ``onward`` also takes the pipelines that follow it: a manifest names whom it follows.
    """

    def __init__(self, pipeline: str, onward: bool = False) -> None:
        self._pipeline = pipeline
        self._onward = onward
        self._open: dict[At, ReleaseParts] = {}
        self._done: set[At] = set()
        self._order: deque[At] = deque()

    def take(self, record: Row | Manifest | None) -> Released | None:
        """Take a record of the topic; return the release that it completes. None is passed over."""
        if record is None or (record.pipeline != self._pipeline and not self._onward):
            return None
        place = (record.pipeline, record.window.start, record.trigger)
        if place in self._done:
            return None  # read again after a restart of the follower
        pieces = self._open.setdefault(place, ReleaseParts())
        if isinstance(record, Row):
            pieces.rows[record.release_id] = record
        else:
            pieces.manifests[record.shard] = record
        release = pieces.whole()
        if release is None:
            return None
        self._finish(place)
        told = release.manifest
        return release if self._pipeline in (told.pipeline, *told.follows) else None

    def _finish(self, place: At) -> None:
        del self._open[place]
        self._done.add(place)
        self._order.append(place)
        if len(self._order) > REMEMBERED:
            self._done.discard(self._order.popleft())

    @property
    def incomplete(self) -> int:
        """Releases of which something is there, but not all."""
        return len(self._open)


def newest(releases: Sequence[Released]) -> list[tuple[Released, Row]]:
    """The newest row of each window and key of complete releases of one pipeline, with its release.

    Where a release replaces the one before, keys that the last one of a window lacks are gone.
    """
    windows: dict[datetime, dict[tuple[Any, ...], tuple[Released, Row]]] = {}
    for release in sorted(releases, key=lambda one: (one.window.start, one.trigger)):
        shown = windows.setdefault(release.window.start, {})
        if release.manifest.replaces:
            shown.clear()
        shown.update((in_order(row), (release, row)) for row in release.rows)
    return [shown[key] for shown in windows.values() for key in sorted(shown)]


def in_order(row: Row, names: Sequence[str] | None = None) -> tuple[Any, ...]:
    """A key that rows are sorted and told apart by: truth values, numbers, then texts.

    Args:
        names: columns of the key in their order; None: as they are in the record.
    """
    values = row.key.values() if names is None else (row.key[name] for name in names)
    return tuple((isinstance(value, str), not isinstance(value, bool), value) for value in values)

"""Complete releases, assembled from the records of a release topic.

Each shard writes a manifest after its rows, and partitions do not become visible together. A
release is complete once all shards' manifests and as many rows as they state are there.
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

REMEMBERED = 1000  # complete releases remembered


@dataclass(frozen=True)
class Released:
    """A complete release: all rows of one trigger of one window."""

    rows: tuple[Row, ...]  # those of a view in its order, others in no particular one
    manifests: tuple[Manifest, ...]  # one per shard, by shard number

    @property
    def manifest(self) -> Manifest:
        """The first shard's manifest; the others differ only in shard, rows and nonce."""
        return self.manifests[0]

    @property
    def cut(self) -> CutShare | None:
        """The share of records that the contribution bound cut; None if it is not stated.

        Every shard states it from the same counts with its own noise, so their mean is closer.
        The intervals of values never cover what is cut.
        """
        every = [one.cut for one in self.manifests if one.cut is not None]
        if not every:
            return None
        # In a simulation all shards have the same noise, so one states it.
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
        """Name of the pipeline; of its generation if pipelines follow each other."""
        return self.manifest.pipeline

    @property
    def window(self) -> WindowSpan:
        """Event time that the release covers."""
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
    def of_view(self) -> bool:
        """Whether a view computed it."""
        return bool(bytes(self.manifest.view))

    @property
    def scheduled(self) -> datetime:
        """Scheduled time of the trigger."""
        return self.manifest.emitted_at


At = tuple[str, datetime, int]
"""Identity of a release: pipeline, start of the window, and trigger."""


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
    """Records of one pipeline in, complete releases out; other pipelines' records are skipped.

    ``onward`` also includes the pipelines that follow it: a manifest names its predecessor.
    """

    def __init__(self, pipeline: str, onward: bool = False) -> None:
        self._pipeline = pipeline
        self._onward = onward
        self._open: dict[At, ReleaseParts] = {}
        self._done: set[At] = set()
        self._order: deque[At] = deque()

    def take(self, record: Row | Manifest | None) -> Released | None:
        """Take a record of the topic; return the release that it completes. None is skipped."""
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
        """Releases of which only a part is there."""
        return len(self._open)


def newest(releases: Sequence[Released]) -> list[tuple[Released, Row]]:
    """The newest row of each window and key in one pipeline's complete releases, with its release.

    If each release replaces its predecessor, keys that a window's last release lacks are gone.
    """
    windows: dict[datetime, dict[tuple[Any, ...], tuple[Released, Row]]] = {}
    views = set()
    for release in sorted(releases, key=lambda one: (one.window.start, one.trigger)):
        shown = windows.setdefault(release.window.start, {})
        if release.manifest.replaces:
            shown.clear()
        if release.of_view:
            views.add(release.window.start)
        shown.update((in_order(row), (release, row)) for row in release.rows)
    return [
        shown[key]
        for start, shown in windows.items()
        for key in (shown if start in views else sorted(shown))
    ]


def sorted_rows(release: Released) -> list[Row]:
    """Rows by key; those of a view in its order, in which it writes them into one partition."""
    return list(release.rows) if release.of_view else sorted(release.rows, key=in_order)


def in_order(row: Row, names: Sequence[str] | None = None) -> tuple[Any, ...]:
    """A key to sort and identify rows by: truth values first, then numbers, then texts.

    Args:
        names: columns of the key in order; None: the record's order.
    """
    values = row.key.values() if names is None else (row.key[name] for name in names)
    return tuple((isinstance(value, str), not isinstance(value, bool), value) for value in values)

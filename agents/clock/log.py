"""The clock log as read so far by a worker or a replay."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any

from ...errors import EngineError
from ...topics.records import (
    Beat,
    ClockRecord,
    Offsets,
    PipelineStanding,
    Snapshot,
    Trigger,
    decode_clock,
    is_beat,
)
from ..deployment.model import Pipeline
from .timeline import Over, Timeline, advance, copied, fold, resumed

ALL = 1 << 62  # no offset is as large
Entry = tuple[int, ClockRecord]  # (offset in the clock topic, record)
RECENT = 256  # beats at the end of the log that are read at once; older ones are read when needed


def entries_of(records: Sequence[Any], beats_from: int) -> list[Entry]:
    """Decode records of the clock topic, skipping most beats below ``beats_from``.

    Beats are written each second, and other records are few, so decoding all would make
    a start slower every day. The last beat of a list is always decoded: it has the log's progress.
    """
    beats = [place for place, r in enumerate(records) if is_beat(r.value)]
    passed = {place for place in beats[:-1] if records[place].offset < beats_from}
    kept = [r for place, r in enumerate(records) if place not in passed]
    return [(r.offset, decode_clock(r.value)) for r in kept]


class ClockLog:
    """Records of the clock topic in order, from the first that shards of this worker still need.

    Earlier records are folded into the timelines of all pipelines at ``base``.

    Args:
        horizons: triggers per window, by pipeline.
        forgets: whether a snapshot drops windows that all shards of the deployment have finished. A
            replay keeps them, because its own shards are elsewhere.
    """

    def __init__(
        self, horizons: dict[str, int], entries: Iterable[Entry] = (), forgets: bool = True
    ) -> None:
        self._horizons = horizons
        self._forgets = forgets
        self._entries: list[Entry] = []
        self._at_base = fold((), horizons)
        self._at_end = fold((), horizons)
        self._over = {name: Over() for name in horizons}
        self._snapshots: dict[int, Snapshot] = {}
        self._called: dict[str, tuple[int, Offsets]] = {}
        self._whole = 0  # offset from which on records other than beats are complete
        self._base = 0  # offset from which on beats are complete, too
        self._dropped: Entry | None = None  # the last one, which shards may have passed
        self._reached: Offsets = {}
        self._covered: Offsets | None = {}  # last beat or cut below ``_base``; None: unknown
        self.end = 0
        for place, record in entries:
            self.append(place, record)

    def begin(self, place: int, snapshot: Snapshot) -> None:
        """Begin with a snapshot, before anything else is read."""
        self._at_base = resumed(snapshot, self._horizons)
        self._at_end = resumed(snapshot, self._horizons)
        for name, over in self._over.items():
            over.rebase(snapshot.pipelines.get(name, PipelineStanding()))
        self._whole = self._base = self.end = place
        self._reached = dict(snapshot.offsets)
        self._covered = dict(snapshot.offsets)

    def append(self, place: int, record: ClockRecord) -> None:
        """Take the next record of the topic.

        Raises:
            EngineError: the log has a gap, or contradicts a snapshot.
        """
        if place < self.end:
            return  # a follower that lost its broker reads parts of the log again
        self.end = place + 1
        self._note(place, record)
        if not isinstance(record, Snapshot):  # shards do not use snapshots
            self._entries.append((place, record))

    def since(self, place: int, most: int | None = None) -> list[Entry]:
        """List entries from ``place`` on, at most ``most``.

        Raises:
            EngineError: entries after ``place`` were dropped; the log must be read again.
        """
        if place < self._base:
            raise EngineError("the clock log was dropped below this position; it is read again")
        begin = self._index(place)
        return self._entries[begin:] if most is None else self._entries[begin : begin + most]

    def passed(self, place: int) -> int | None:
        """Time of the entry just before ``place``, microseconds since 1970.

        Returns:
            0 if no entry is there; None if it was dropped.
        """
        begin = self._index(place)
        entry = self._entries[begin - 1] if begin else self._dropped
        if entry is not None and entry[0] == place - 1:
            return entry[1].time
        return None if place <= self._base else 0

    def _index(self, place: int) -> int:
        return bisect_left(self._entries, place, key=lambda e: e[0])

    def timelines(self, place: int) -> dict[str, Timeline]:
        """Compute the timelines of all pipelines just before ``place``.

        Raises:
            EngineError: the records before ``place`` were dropped.
        """
        if place < self._whole:
            raise EngineError("the clock log was dropped below this position; it is read again")
        lines = copied(self._at_base)
        for _, record in self._entries[: self._index(place)]:
            advance(lines, record)
        return lines

    def opening(
        self, place: int, pipelines: Iterable[str], raw: tuple[str, int] | None = None
    ) -> int:
        """Find the place from which a shard of a raw partition that has reached ``place`` goes on.

        A shard that has never committed skips the log before its pipelines began. A shard of an
        added partition begins at the first beat that covers the partition: nothing earlier concerns
        it, and feedback that it would wait for there may have been deleted.

        Raises:
            EngineError: entries after its place were dropped, so the log must be read again; or its
                place is not reached yet.
        """
        if place > self.end:
            raise EngineError("the clock log was not read up to this position yet")
        if place == 0 and raw is not None and (first := self._covering(*raw)) is not None:
            return first
        if place >= self._base:
            return place
        begun = self.timelines(self._base)
        if place == 0 and all(begun[name].first is None for name in pipelines):
            return self._base
        raise EngineError("the clock log was dropped below this position; it is read again")

    def _covering(self, topic: str, partition: int) -> int | None:
        """Find the first entry that covers an added partition; None if there is none."""
        if self._covered is None:
            return None
        added = partition >= len(self._covered.get(topic, [0] * (partition + 1)))
        for place, record in self._entries:
            if isinstance(record, Beat | Trigger) and topic in record.offsets:
                if partition < len(record.offsets[topic]):
                    return place if added else None
                added = True
        return self.end if added else None

    def prune(self, place: int) -> None:
        """Drop entries below ``place``."""
        if place <= self._base:
            return
        cut = self._index(place)
        for at, record in self._entries[:cut]:
            advance(self._at_base, record)
            self._dropped = at, record
            if isinstance(record, Beat | Trigger) and self._covered is not None:
                self._covered = self._covered | record.offsets
        del self._entries[:cut]
        self._whole = self._base = place

    def skip(self, place: int) -> None:
        """Note that beats below ``place`` were skipped."""
        if place > self._base:
            self._covered = None
        self._base = max(self._base, place)

    def restore(
        self, start: int, snapshot: Snapshot | None, place: int, entries: Iterable[Entry]
    ) -> None:
        """Replace the log by one read again, with beats from ``place`` on; keep newer records."""
        fresh = list(entries)
        end = fresh[-1][0] + 1 if fresh else start
        lines = fold((), self._horizons)
        if snapshot is not None:
            lines = resumed(snapshot, self._horizons)
        for at, record in fresh:
            if at >= self.end:
                self._note(at, record)  # the follower has not read it yet
        kept = [e for e in fresh if not isinstance(e[1], Snapshot)]
        self._at_base, self._dropped = lines, None
        self._entries = kept + [e for e in self._entries if e[0] >= end]
        self._whole, self._base = start, max(start, place)
        self._covered = {} if snapshot is None else dict(snapshot.offsets)
        if self._base > start:
            self._covered = None
        self.end = max(self.end, end)

    def over(self, pipeline: str) -> Over:
        """Look up the windows of a pipeline that are over."""
        return self._over[pipeline]

    def _note(self, place: int, record: ClockRecord) -> None:
        advance(self._at_end, record)
        if isinstance(record, Trigger):
            self._called[record.pipeline] = place, record.offsets
        if isinstance(record, Beat | Trigger):
            self._reached = self._reached | record.offsets
        name = getattr(record, "pipeline", None)
        if name in self._over:
            self._over[name].apply(record)
        if isinstance(record, Snapshot) and self._forgets:
            self._forget(place, record)

    def _forget(self, place: int, record: Snapshot) -> None:
        """Drop closed windows: every shard of the deployment is at or above the needed snapshot."""
        self._snapshots[place] = record
        if (least := self._snapshots.get(record.needed)) is not None:
            for name, over in self._over.items():
                over.rebase(least.pipelines.get(name, PipelineStanding()))
        for old in [at for at in self._snapshots if at < record.needed]:
            del self._snapshots[old]

    def called(self, pipeline: str) -> tuple[int, int]:
        """Return the place of a pipeline's last trigger, -1 if it was not read, and its ordinal."""
        return self._called.get(pipeline, (-1, {}))[0], self._at_end[pipeline].ordinal

    def cut(self, pipeline: str, topic: str, partition: int) -> int:
        """End of a raw partition by a pipeline's last trigger; 0 if that does not name it."""
        ends = self._called.get(pipeline, (-1, {}))[1].get(topic, [])
        return ends[partition] if partition < len(ends) else 0

    def first(self, pipeline: str) -> int | None:
        """The first window that a pipeline serves; None before it has started."""
        return self._at_end[pipeline].first

    def scheduled(self, pipeline: Pipeline, until: int) -> int | None:
        """Look up when the next trigger of a pipeline is scheduled, microseconds since 1970.

        Returns:
            None if it is later than ``until``, or the pipeline is triggered by request.
        """
        timeline = self._at_end[pipeline.name]
        if pipeline.external or timeline.first is None:
            return None
        due = pipeline.windows.due(timeline, until, 1, timeline.end)
        return due[0].scheduled if due else None

    def reached(self, topic: str, partition: int) -> int:
        """End of a raw partition by its last beat or cut; 0 before the first."""
        ends = self._reached.get(topic, [])
        return ends[partition] if partition < len(ends) else 0

    @property
    def base(self) -> int:
        """Offset from which on all records are complete."""
        return self._base

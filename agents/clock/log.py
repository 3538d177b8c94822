"""The clock log, as far as one worker, or a replay, has read it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any

from ...errors import EngineError
from ...topics.records import Beat, ClockRecord, Trigger, decode_clock, is_beat
from .timeline import Over, Timeline, fold

ALL = 1 << 62  # no offset is as large
Entry = tuple[int, ClockRecord]  # (offset in the clock topic, record)
RECENT = 256  # beats at the end of the log that are read at once; older ones when they are wanted


def entries_of(records: Sequence[Any], beats_from: int) -> list[Entry]:
    """Decode records of the clock topic; most beats below ``beats_from`` are passed over.

    There are several beats a second, for ever, and few records of any other kind, so decoding all
    would make a start slower with every day. The last beat of a list is decoded in any case: it
    says how far the log had come.

    Args:
        records: a list, in offset order.
        beats_from: offset in the clock topic.
    """
    beats = [place for place, r in enumerate(records) if is_beat(r.value)]
    passed = {place for place in beats[:-1] if records[place].offset < beats_from}
    kept = [r for place, r in enumerate(records) if place not in passed]
    return [(r.offset, decode_clock(r.value)) for r in kept]


class ClockLog:
    """Records of the clock topic in order.

    Beats that every shard of this worker has passed are dropped; all other records are kept,
    since they say where each pipeline stands. A place is an offset in the clock topic.

    Args:
        horizons: triggers per window, by pipeline.
        entries: records that are known already, from the first one on.

    Attributes:
        end: the place after the last record.
    """

    def __init__(self, horizons: dict[str, int], entries: Iterable[Entry] = ()) -> None:
        self._horizons = horizons
        self._entries: list[Entry] = list(entries)
        self._over = self._overs()
        self._base = 0  # beats below it may be missing
        self.end = self._entries[-1][0] + 1 if self._entries else 0

    def append(self, place: int, record: ClockRecord) -> None:
        """Take the next record of the topic; one that is known already changes nothing."""
        if place < self.end:
            return  # a follower that lost its broker reads some of the log again
        self._entries.append((place, record))
        self.end = place + 1
        self._note(self._over, record)

    def since(self, place: int, most: int | None = None) -> list[Entry]:
        """List entries at or above ``place``, at most the first ``most``.

        Raises:
            EngineError: beats above ``place`` were dropped; the log must be read again.
        """
        if place < self._base:
            raise EngineError("the clock log was dropped below this position; it is read again")
        begin = bisect_left(self._entries, place, key=lambda e: e[0])
        return self._entries[begin:] if most is None else self._entries[begin : begin + most]

    def timelines(self, place: int) -> dict[str, Timeline]:
        """Fold the log up to ``place``, which is left out; returns a timeline by pipeline."""
        before = self._entries[: bisect_left(self._entries, place, key=lambda e: e[0])]
        return fold((record for _, record in before), self._horizons)

    def prune(self, place: int) -> None:
        """Drop beats below ``place``."""
        if place <= self._base:
            return
        self._base = place
        self._entries = [e for e in self._entries if e[0] >= place or not isinstance(e[1], Beat)]

    def skip(self, place: int) -> None:
        """Note that beats below ``place`` were passed over."""
        self._base = max(self._base, place)

    def restore(self, place: int, entries: Iterable[Entry]) -> None:
        """Take the log from ``place`` on anew, beats included; what came meanwhile is kept.

        Args:
            place: where ``entries`` begin.
            entries: without a gap.
        """
        fresh = list(entries)
        end = fresh[-1][0] + 1 if fresh else place
        before = [e for e in self._entries if e[0] < place]
        for _, record in (e for e in fresh if e[0] >= self.end):
            self._note(self._over, record)  # the follower has not seen it yet
        self._entries = before + fresh + [e for e in self._entries if e[0] >= end]
        self._base = min(self._base, place)
        self.end = max(self.end, end)

    def over(self, pipeline: str) -> Over:
        """Look up the windows of a pipeline that are over."""
        return self._over[pipeline]

    def _overs(self) -> dict[str, Over]:
        overs = {name: Over() for name in self._horizons}
        for _, record in self._entries:
            self._note(overs, record)
        return overs

    def _note(self, overs: dict[str, Over], record: ClockRecord) -> None:
        name = getattr(record, "pipeline", None)
        if name in overs:
            overs[name].apply(record)

    def reached(self, topic: str, partition: int) -> int:
        """End of a raw partition, as the last beat or cut of it says; 0 before the first."""
        for _, record in reversed(self._entries):
            if isinstance(record, Beat | Trigger) and topic in record.offsets:
                return record.offsets[topic][partition]
        return 0

    @property
    def base(self) -> int:
        """The place from which on no beat is missing."""
        return self._base

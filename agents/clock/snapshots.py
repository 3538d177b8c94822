"""Snapshots of the clock's state: readers of the clock log begin at one, and trimming follows them.

The clock's owner writes a snapshot every few thousand records, in an ordinary transaction. A
snapshot is the fold of all records before it. A reader begins at the newest snapshot that every
shard has passed (``needed``). The log is deleted below the newest snapshot that is older than
`engine.keep_clock`. A reader that passes a snapshot checks it against the records that it has read.

Other logs are trimmed by the same rule: requests below those that a snapshot has read, units topics
below the oldest snapshot from which a replay may begin, and selected topics below the first window
that a shard may still need.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from aiokafka.structs import TopicPartition

from ...errors import EngineError
from ...topics.config.model import Kafka
from ...topics.names import Names
from ...topics.records import (
    ClockRecord,
    Kept,
    Marker,
    PipelineStanding,
    Snapshot,
    Trigger,
    decode_clock,
    is_snapshot,
)
from ..deployment.model import Deployment
from ..kafka.clients import backwards, read_span, reader
from ..kafka.markers import last_markers
from .log import Entry

MANY = 10_000  # offsets of the clock log after which a snapshot is due
FEW = 100  # offsets after which a snapshot is due if the last is old
PARTS = 16  # spacings of snapshots kept for replays in `engine.keep_clock`
TAIL = 12_000  # offsets before the end that are searched first for the last snapshot
GROWTH = 8  # factor by which the search grows each time

Trim = Callable[[Mapping[TopicPartition, int], Mapping[str, int]], Awaitable[None]]
"""Deletes below places that are no longer needed, and windows before the first still needed."""


class ShardMarkers(NamedTuple):
    """Last committed markers of all shards; None if a shard has none."""

    ingest: Mapping[str, Sequence[Marker | None]]  # by input
    bound: Mapping[str, Sequence[Marker | None]]  # by pipeline, in the order of partitions
    aggregate: Mapping[str, Sequence[Marker | None]]

    def later(self, pipeline: str) -> Iterator[Marker | None]:
        """Yield the markers of a pipeline's shards after ingest."""
        yield from self.bound.get(pipeline, ())
        yield from self.aggregate[pipeline]

    def units(self) -> dict[str, list[int]]:
        """List applied offsets of the units topics, by pipeline and partition of bound shards."""
        return {
            name: [0 if one is None else max(one.applied, 0) for one in found]
            for name, found in self.bound.items()
        }


def changelogs(deployment: Deployment, names: Names) -> dict[str, tuple[str, str, int]]:
    """Map each changelog to its stage, its input or pipeline, and its number of partitions."""
    found = {}
    for source in deployment.streams:
        found[names.changelog("ingest", source.name)] = "ingest", source.name, source.partitions
        for p in source.pipelines:
            log_name = names.changelog("aggregate", p.name)
            found[log_name] = "aggregate", p.name, p.cells_partitions
            if not p.direct:
                log_name = names.changelog("bound", p.name)
                found[log_name] = "bound", p.name, p.units_partitions
    return found


def grouped(
    deployment: Deployment, names: Names, found: Mapping[str, Sequence[Marker | None]]
) -> ShardMarkers:
    """Group markers of changelogs by stage, and by input or pipeline."""
    stages: dict[str, dict[str, Sequence[Marker | None]]] = defaultdict(dict)
    for topic, (stage, whose, _) in changelogs(deployment, names).items():
        stages[stage][whose] = found[topic]
    return ShardMarkers(stages["ingest"], stages["bound"], stages["aggregate"])


async def read_markers(kafka: Kafka, deployment: Deployment, names: Names) -> ShardMarkers:
    """Read the last markers of all shards, on any worker."""
    wanted = changelogs(deployment, names)
    numbers = {topic: partitions for topic, (_, _, partitions) in wanted.items()}
    return grouped(deployment, names, await last_markers(kafka, numbers, names.place))


def passed(place: int, snapshot: Snapshot, deployment: Deployment, markers: ShardMarkers) -> bool:
    """Whether every shard has passed a snapshot, so that all can open from it."""
    blank = PipelineStanding()
    for source in deployment.streams:
        standings = [snapshot.pipelines.get(p.name, blank) for p in source.pipelines]
        begun = any(one.first is not None for one in standings)
        for marker in markers.ingest[source.name]:
            if begun and (marker is None or marker.clock < place):
                return False
        for p, one in zip(source.pipelines, standings, strict=True):
            for marker in markers.later(p.name):
                if (0 if marker is None else marker.closed.get(p.name, 0)) < one.ordinal:
                    return False
    return True


class Opening:
    """Checks the first records of a clock log that is read from a given place on.

    Args:
        start: place; unless it is 0, the first record must be a snapshot.
    """

    def __init__(self, start: int) -> None:
        self._due = start > 0

    def first(self, entries: Sequence[Entry]) -> Snapshot | None:
        """Return the snapshot at the beginning of these entries, if there is one.

        Raises:
            EngineError: it is missing, so another program has trimmed the log.
        """
        if not (self._due and entries):
            return None
        self._due = False
        record = entries[0][1]
        if not isinstance(record, Snapshot):
            raise EngineError(
                "the clock log does not begin with a snapshot: records of it were deleted; "
                "restore the topic, or begin a new deployment (another deployment.name)"
            )
        return record

    def end(self) -> None:
        """Note that the log has been read to its end.

        Raises:
            EngineError: nothing was read, although the log was longer.
        """
        if self._due:
            raise EngineError(
                "the clock log is empty, and has not always been: restore the topic, or begin a "
                "new deployment (another deployment.name)"
            )


def needed(values: Iterable[bytes | None]) -> int | None:
    """Find the place that the last snapshot among records names as needed; None without one."""
    last = None
    for value in values:
        if value is not None and is_snapshot(value):
            last = value
    if last is None:
        return None
    record = decode_clock(last)
    return record.needed if isinstance(record, Snapshot) else None


async def beginning(kafka: Kafka, topic: str) -> int:
    """Find where a reader of the clock log begins: at the needed snapshot, or at its start."""
    tp = TopicPartition(topic, 0)
    async with reader(kafka) as client:
        client.assign([tp])
        begin: int = (await client.beginning_offsets([tp]))[tp]
        end: int = (await client.end_offsets([tp]))[tp]
        for start in backwards(begin, end, TAIL, GROWTH):
            if (found := needed(await _values(client, tp, start, end))) is not None:
                return max(found, begin)
        return begin


async def _values(client: Any, tp: TopicPartition, start: int, end: int) -> list[bytes]:
    values: list[bytes] = []
    async for found, _ in read_span(client, tp, start, end):
        values += [r.value for r in found if is_snapshot(r.value)]
    return values


class Snapshots:
    """The snapshots known to the clock's owner, and when the next is due.

    Args:
        keep: microseconds for which the clock log is kept for replays.
    """

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._seen: list[tuple[int, Snapshot]] = []  # from the needed snapshot on
        self._kept: list[Kept] = []
        self._begun: int | None = None  # first place read
        self._fired = -1

    def take(self, place: int, record: ClockRecord) -> None:
        """Take the next record of the log."""
        if self._begun is None:
            self._begun = place
        if isinstance(record, Trigger):
            self._fired = place
        if not isinstance(record, Snapshot):
            return
        self._fired = max(self._fired, record.fired)
        self._seen = [one for one in self._seen if one[0] >= record.needed]
        self._seen.append((place, record))
        self._kept = list(record.kept)
        spaced = not self._kept or record.time - self._kept[-1].time >= self._keep // PARTS
        if spaced:
            self._kept.append(Kept(place, record.time, record.units))

    @property
    def last(self) -> Snapshot | None:
        """The newest snapshot."""
        return self._seen[-1][1] if self._seen else None

    def due(self, end: int, now: int) -> bool:
        """Whether to write a snapshot at the end of the log."""
        if self._begun is None:
            return False
        since = end - (self._seen[-1][0] if self._seen else self._begun)
        old = self.last is None or now - self.last.time >= self._keep // PARTS
        return since >= MANY or (since >= FEW and old)

    def make(
        self,
        now: int,
        offsets: Mapping[str, list[int]],
        standings: Mapping[str, PipelineStanding],
        paid: tuple[int, str],
        requests: tuple[Mapping[str, int], int],
        deployment: Deployment,
        markers: ShardMarkers,
    ) -> Snapshot:
        """Make the next snapshot.

        Args:
            now: microseconds.
            paid: number of ledger records, and the hash of the last one.
            requests: requests in force, and the place before which requests were read.
            markers: markers of all shards, read after all earlier records were committed.
        """
        before = self.last.needed if self.last is not None else 0
        free = [at for at, one in self._seen if passed(at, one, deployment, markers)]
        least = max([before, *free])
        kept = self._still_kept(least, now)
        return Snapshot(
            now, dict(offsets), dict(standings), *paid, self._fired, least, kept,
            dict(requests[0]), requests[1], markers.units(),
        )  # fmt: skip

    def _still_kept(self, least: int, now: int) -> list[Kept]:
        """List snapshots, beginning with the one to which the log may be trimmed.

        The last trigger is always kept, because the witness reads it.
        """
        old = [
            place
            for place, one in enumerate(self._kept)
            if one.offset <= min(least, self._fired) and now - one.time >= self._keep
        ]
        return self._kept[old[-1] :] if old else list(self._kept)

    def floor(self) -> Kept | None:
        """The snapshot below which the log is no longer needed; None: all of it is needed."""
        if self.last is None or not self.last.kept:
            return None
        first = self.last.kept[0]
        trimmed = first.offset <= min(self.last.needed, self.last.fired)
        return first if trimmed and self.last.time - first.time >= self._keep else None

    def below(self, names: Names) -> dict[TopicPartition, int]:
        """Places of the clock log and of units topics below which records may be deleted."""
        first = self.floor()
        if first is None:
            return {}
        found = {
            TopicPartition(*names.place(names.units(name), number)): place
            for name, places in first.units.items()
            for number, place in enumerate(places)
        }
        return {TopicPartition(names.clock, 0): first.offset} | found

    def windows(self) -> dict[str, int]:
        """Find the first window of each pipeline that a shard may still need, if known."""
        found = [one for at, one in self._seen if self.last and at == self.last.needed]
        return {
            name: standing.floor
            for one in found
            for name, standing in one.pipelines.items()
            if standing.first is not None
        }

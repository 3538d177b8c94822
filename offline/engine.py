"""The whole path in memory: the workers' own stages over recorded logs.

``simulate`` and ``replay`` use it: the same logs give the same bytes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..agents.clock.log import ClockLog, Entry
from ..agents.deployment.model import Deployment
from ..agents.stages.aggregate.computation import NoiseKey
from ..agents.stages.aggregate.nonces import Opening, steady
from ..agents.stages.aggregate.secrets import Secrets
from ..agents.stages.ingest.schemas import SchemaSource
from ..agents.stages.ingest.stage import IngestStage
from ..agents.stages.step import LogFrame, Out, Stage, Step
from ..agents.stages.topology import VIEW, StageFactory, StageSpec, Topology
from ..agents.state.layout import index_entries
from ..agents.state.memory import MemoryStore
from ..formats.events.decode import RawRecord
from ..topics.names import Names
from ..topics.records import Beat, Marker, Snapshot, Trigger
from ..topics.signatures import Sealing

Place = tuple[str, int]  # topic, partition
STEP = 40_000  # records given to one step


class Source(Protocol):
    """The input of a stage: one partition, in offset order."""

    def since(self, offset: int, limit: int) -> tuple[Sequence[Any], int]:
        """Read up to ``limit`` records from ``offset`` on, and the offset up to which all are."""


class Log:
    """One partition of a virtual topic, with its first records in offset order.

    ``end`` is the next offset; None: after the last record.
    """

    def __init__(self, records: Sequence[Any] = (), end: int | None = None) -> None:
        self.records: list[Any] = list(records)
        self._offsets = [r.offset for r in self.records]
        self.end = (self._offsets[-1] + 1 if self._offsets else 0) if end is None else end

    def append(self, out: Out) -> None:
        """Add one produced record at the end."""
        time = out.timestamp or 0
        self.records.append(LogFrame(self.end, out.value or b"", out.headers, time))
        self._offsets.append(self.end)
        self.end += 1

    def since(self, offset: int, limit: int) -> tuple[list[Any], int]:
        """Read up to ``limit`` records from ``offset`` on, and the offset up to which all are."""
        start = bisect_left(self._offsets, offset)
        records = self.records[start : start + limit]
        return records, records[-1].offset + 1 if len(records) == limit else self.end

    def trim(self, below: int) -> None:
        """Drop most records below an offset; their number affects only speed."""
        start = bisect_left(self._offsets, below)
        if 2 * start > len(self.records):  # else moving the rest costs more than it saves
            del self.records[:start], self._offsets[:start]


class LogsBeside:
    """Topics that state attributes, among the logs of a run."""

    def __init__(self, raw: Mapping[Place, Sequence[RawRecord] | Source]) -> None:
        self._raw = raw
        self._logs: dict[Place, Source] = {}

    def read(
        self, topic: str, partition: int, begin: int, end: int
    ) -> tuple[Sequence[RawRecord], int]:
        """Read some records in [begin, end), and the offset up to which all were read."""
        place = topic, partition
        if place not in self._logs:
            log = self._raw.get(place, ())
            self._logs[place] = Log(log) if isinstance(log, Sequence) else log
        records, reached = self._logs[place].since(begin, STEP)
        whole = len(records) < STEP or reached >= end
        return [one for one in records if one.offset < end], end if whole else reached


class VirtualShard:
    """A stage with its state and input, stepped by the caller.

    ``genesis`` is the hexadecimal id in the marker; ``trim`` drops input that the stage has taken.
    """

    def __init__(
        self, stage: Stage, log: Source, genesis: str, trim: bool = False, clock: int = 0
    ) -> None:
        self.stage = stage
        self._log = log
        self._trim = trim
        self._store = MemoryStore()
        self._marker = Marker(genesis, 0, clock)
        stage.open(self._store, self._marker)

    def advance(self, limit: int, take: Callable[[Step], None]) -> bool:
        """Run one step of at most ``limit`` records; return whether anything moved.

        ``take`` is called with the step once its rows are stored.
        """
        before = self.stage.position
        records, fetched = self._log.since(max(before, 0), limit)
        step = self.stage.step(self._store, self._marker, records, fetched)
        if self._trim and isinstance(self._log, Log):
            self._log.trim(self.stage.position)
        if step is None:
            return self.stage.position > before
        for key, value in step.rows.items():
            step.local.update(index_entries(key, value))
        self._store.write({**step.rows, **step.local}, step.units.columns())
        self._marker = step.marker
        take(step)
        return True


@dataclass(frozen=True)
class Recorded:
    """A deployment's records besides its raw and clock logs; a simulation has none.

    Attributes:
        units: internal logs that are read instead of produced (re-partitioned units).
        opening: the source of nonces; the default is for simulations.
        begun: offset of a snapshot in the clock log, and the snapshot; None: the log is whole.
        schemas: schemas by id; None: no input has any.
        own: noise keys of pipelines that do not use the root key.
        sealing: signer of releases; None: they are not signed.
    """

    units: Mapping[Place, Sequence[LogFrame] | Source] = field(default_factory=dict)
    opening: Opening = steady
    begun: tuple[int, Snapshot] | None = None
    schemas: SchemaSource | None = None
    own: Mapping[str, NoiseKey] | None = field(default=None, repr=False)
    sealing: Sealing | None = None


@dataclass(frozen=True)
class Streaming:
    """Handling of records in a run over logs that do not fit into memory.

    Attributes:
        sent: called with every record that no stage here reads; records that it refuses stay in
            ``outs``.
        trim: whether to drop records that have been read.
    """

    sent: Callable[[Out], bool] = lambda out: False
    trim: bool = False


class OfflineEngine:
    """All shards of a deployment in one thread.

    Args:
        names: names of topics, with the genesis id of the logs.
        raw: raw logs per (topic, partition); ``ends`` their end offsets if known.
        entries: the clock log, or its source, which is read as shards need it.
        recorded: what else is read instead of recomputed.
        streaming: handling of records that were read or made; None: all are kept.

    Attributes:
        outs: records by topic that no stage here reads.
        counts: figures of all steps, by (pipeline, outcome).
    """

    def __init__(
        self,
        deployment: Deployment,
        names: Names,
        secret: bytes,
        raw: Mapping[Place, Sequence[RawRecord] | Source],
        entries: Sequence[Entry] | Source,
        recorded: Recorded | None = None,
        streaming: Streaming | None = None,
    ) -> None:
        recorded = recorded or Recorded()
        begun = recorded.begun
        self._names = names
        self._begun = 0 if begun is None else begun[0]
        self._given = recorded.units
        self._streaming = streaming or Streaming()
        self.outs: dict[str, list[Out]] = defaultdict(list)
        self.counts: Counter[tuple[str, str]] = Counter()
        self._logs: dict[Place, Log] = defaultdict(Log)
        horizons = {p.name: p.traits.horizon for p in deployment.pipelines}
        known = entries if isinstance(entries, Sequence) else ()
        self._clock = ClockLog(horizons, known, forgets=False)
        if begun is not None:
            self._clock.begin(*begun)
        self._unread = None if isinstance(entries, Sequence) else entries
        self._ingests: list[IngestStage] = []
        secrets = Secrets(secret, recorded.opening, recorded.own or {}, recorded.sealing)
        factory = StageFactory(
            deployment, names, secrets, self._clock, None, recorded.schemas, LogsBeside(raw)
        )
        self._selected = {names.selected(name): f for name, f in factory.feedback.items()}
        specs = Topology(deployment, names).specs
        self._viewed = {spec.topic for spec in specs if spec.stage == VIEW}
        self._shards = [
            self._shard(factory, spec, n, raw) for spec in specs for n in range(spec.partitions)
        ]

    def _shard(
        self,
        factory: StageFactory,
        spec: StageSpec,
        partition: int,
        raw: Mapping[Place, Sequence[RawRecord] | Source],
    ) -> VirtualShard:
        if spec.pipeline is not None:
            return self._internal(factory.make(spec, partition), (spec.topic, partition))
        stage = factory.ingest(spec, partition)
        self._ingests.append(stage)
        log = raw.get((spec.topic, partition), ())
        if isinstance(log, Sequence):
            log = Log(log, used_below(self._clock.since(0), spec.topic, partition))
        return VirtualShard(stage, log, self._names.genesis, clock=self._begun)

    def _internal(self, stage: Stage, place: Place) -> VirtualShard:
        log = self._given.get(place)
        if log is None:
            log = self._logs[place]
        source = Log(log) if isinstance(log, Sequence) else log
        return VirtualShard(stage, source, self._names.genesis, self._streaming.trim)

    def run(self, progress: Callable[[int], None] | None = None) -> None:
        """Step all shards in turn until none makes progress.

        Args:
            progress: called after a step with the number of events that it used.
        """

        def take(step: Step) -> None:
            used = self._take(step)
            if progress is not None:
                progress(used)

        moved = True
        while moved:
            moved = self._read_clock()
            for shard in self._shards:
                moved |= shard.advance(STEP, take)

    def _read_clock(self) -> bool:
        """Read on unless the slowest shard has enough left; drop beats that all shards passed."""
        if self._unread is None:
            return False
        low = min((stage.clock_position for stage in self._ingests), default=0)
        self._clock.prune(low)
        if self._clock.end - low > STEP:
            return False
        entries, _ = self._unread.since(self._clock.end, STEP)
        for entry in entries:
            self._clock.append(entry.offset, entry.record)
        return len(entries) > 0

    def _take(self, step: Step) -> int:
        """Pass on the records of a step; return the number of events that it used."""
        self.counts.update(step.counts)
        internal = f"{self._names.base}."
        for out in step.out:
            if out.topic in self._selected:
                self._selected[out.topic].apply(out.value or b"")
            elif out.topic.startswith(internal) and (out.topic, out.partition) not in self._given:
                self._logs[out.topic, out.partition].append(out)
            else:
                if out.topic in self._viewed:
                    self._logs[out.topic, out.partition].append(out)
                if not self._streaming.sent(out):
                    self.outs[out.topic].append(out)
        return sum(n for (_, what), n in step.counts.items() if what in ("seen", "routed"))


def used_below(entries: Sequence[Entry], topic: str, partition: int) -> int:
    """The last cut or beat of a raw partition (0: none); records above it must not be used."""
    ends = [
        record.offsets[topic][partition]
        for _, record in entries
        if isinstance(record, Beat | Trigger) and partition < len(record.offsets.get(topic, []))
    ]
    return max(ends, default=0)

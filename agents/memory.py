"""The whole path in memory: the workers' own stages on logs that were read beforehand.

Used by ``simulate`` and ``replay``: the same logs give the same bytes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from hushstream.topics.events import Raw
from hushstream.topics.names import Names
from hushstream.topics.records import Beat, Marker, Trigger

from .aggregate import Frame
from .clocklog import ClockLog, Entry
from .feedback import Feedback
from .model import Deployment
from .rows import derived
from .stages import AggregateShard, IngestShard, Stage, UnitsShard, bound_upstreams
from .step import Out
from .store import MemoryStore

RawLogs = dict[tuple[str, int], list[Raw]]


class Log:
    """One partition of a virtual topic."""

    def __init__(self, records: Sequence[Any] = (), end: int | None = None) -> None:
        self.records: list[Any] = list(records)
        self._offsets = [r.offset for r in self.records]
        self.end = (self._offsets[-1] + 1 if self._offsets else 0) if end is None else end

    def append(self, out: Out) -> None:
        """Add one produced record at the end."""
        self.records.append(Frame(self.end, out.value or b""))
        self._offsets.append(self.end)
        self.end += 1

    def since(self, offset: int, limit: int) -> list[Any]:
        """Up to ``limit`` records at or above ``offset``."""
        start = bisect_left(self._offsets, offset)
        return self.records[start : start + limit]


class VirtualShard:
    """A stage with its state and input, stepped by hand."""

    def __init__(self, stage: Stage, log: Log, genesis: str) -> None:
        self.stage = stage
        self._log = log
        self._store = MemoryStore()
        self._marker = Marker(genesis, 0)
        self._more = False
        stage.open(self._store, self._marker)

    def advance(self, limit: int, take: Callable[[Any], None]) -> bool:
        """Run one step; returns whether anything moved."""
        before = self.stage.position
        records = self._log.since(max(before, 0), limit)
        fetched = records[-1].offset + 1 if len(records) == limit else self._log.end
        step = self.stage.step(self._store, self._marker, records, fetched)
        if step is None:
            return self.stage.position > before
        for key, value in step.rows.items():
            step.local.update(derived(key, value))
        self._store.write({**step.rows, **step.local})
        self._marker = step.marker
        take(step)
        return True


class Engine:
    """All shards of a deployment in one thread.

    Args:
        deployment: compiled pipelines.
        names: names of topics, with the genesis id of the logs.
        secret: the root key.
        raw: raw logs per (topic, partition); ``ends`` their end offsets if known.
        entries: the clock log.
        given: internal logs that were read instead of being produced (re-partitioned units).
        keep: which produced topics to keep beside those that other stages read.
    """

    def __init__(
        self,
        deployment: Deployment,
        names: Names,
        secret: bytes,
        raw: RawLogs,
        entries: Sequence[Entry],
        given: dict[tuple[str, int], list[Frame]] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self._names = names
        self._given = set(given or {})
        self._progress = progress or (lambda used: None)
        self.outs: dict[str, list[Out]] = defaultdict(list)
        self.counts: Counter[tuple[str, str]] = Counter()
        self._logs: dict[tuple[str, int], Log] = defaultdict(Log)
        self._logs |= {place: Log(frames) for place, frames in (given or {}).items()}
        horizons = {p.name: p.mechanism.horizon for p in deployment.pipelines}
        self._clock = ClockLog(horizons, entries)
        self._feedback = {
            p.name: Feedback(p.cells_partitions)
            for p in deployment.pipelines
            if p.mechanism.feedback
        }
        self._selected = {names.selected(name): f for name, f in self._feedback.items()}
        self._shards = list(self._build(deployment, secret, raw))

    def _build(self, deployment: Deployment, secret: bytes, raw: RawLogs) -> Any:
        names, feedback, genesis = self._names, self._feedback, self._names.genesis
        for source in deployment.inputs:
            for n in range(source.partitions):
                stage = IngestShard(source, n, names, secret, self._clock, feedback)
                log = Log(raw.get((source.topic, n), ()), self._end(source.topic, n))
                yield VirtualShard(stage, log, genesis)
            for p in source.pipelines:
                for n in range(0 if p.direct else p.units_partitions):
                    units = UnitsShard(p, n, names, source.partitions, self._clock, feedback)
                    yield VirtualShard(units, self._logs[names.units(p.name), n], genesis)
                for n in range(p.cells_partitions):
                    upstreams = bound_upstreams(p, source)
                    last = AggregateShard(p, n, names, secret, upstreams, self._clock)
                    yield VirtualShard(last, self._logs[names.cells(p.name), n], genesis)

    def _end(self, topic: str, partition: int) -> int:
        """The last cut or beat: nothing above it may be used."""
        ends = [
            record.offsets[topic][partition]
            for _, record in self._clock.since(0)
            if isinstance(record, Beat | Trigger) and topic in record.offsets
        ]
        return max(ends, default=0)

    def run(self) -> None:
        """Step every shard until nothing moves."""
        moved = True
        while moved:
            moved = False
            for shard in self._shards:
                while shard.advance(20_000, self._take):
                    moved = True

    def _take(self, step: Any) -> None:
        self.counts.update(step.counts)
        internal = f"{self._names.base}."
        for out in step.out:
            if out.topic in self._selected:
                self._selected[out.topic].apply(out.value or b"")
            elif not out.topic.startswith(internal) or (out.topic, out.partition) in self._given:
                self.outs[out.topic].append(out)
            else:
                self._logs[out.topic, out.partition].append(out)
        used = sum(n for (_, what), n in step.counts.items() if what in ("seen", "routed"))
        if used:
            self._progress(used)

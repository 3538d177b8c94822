"""Shards over one input partition, as several workers open them, with a stage that counts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faust.types import TP
from hushstream.agents.kafka.cluster import Cluster
from hushstream.agents.kafka.intervals import Interval
from hushstream.agents.kafka.logs import read_topic
from hushstream.agents.snapshots.copies import Copies
from hushstream.agents.snapshots.objects import Objects
from hushstream.agents.stages.step import Out, Step
from hushstream.agents.stages.topology import Place
from hushstream.agents.state.layout import MARKER, units_of
from hushstream.agents.state.rocks import RocksStore
from hushstream.agents.state.rows.columns import RowColumns
from hushstream.agents.worker.metrics import OperatorMetrics
from hushstream.agents.worker.shards.shard import Shard
from hushstream.agents.worker.shards.spec import ShardSpec
from hushstream.agents.worker.shared import Shared
from hushstream.formats.events.decode import RawRecord
from hushstream.mechanisms.keys import Keys
from hushstream.topics.config.model import Kafka
from hushstream.topics.records import Marker
from rocksdict import Cache

UNIT = units_of(0) + bytes(24)
GHOST = b"g"  # a row that only a forged table has


class Tally:
    """A stage that counts its input in a row and repeats the input on another topic."""

    watermark: Mapping[str, int] = {}

    def __init__(self, out: str) -> None:
        self.out = out
        self.position = 0
        self.opened: list[int] = []

    def open(self, reader: Any, marker: Marker) -> None:
        self.position = marker.applied
        self.opened.append(marker.applied)

    def step(
        self, reader: Any, marker: Marker, records: Sequence[Any], fetched: int
    ) -> Step | None:
        if fetched <= marker.applied:
            return None
        (row,) = reader.get_many([b"n"])
        step = Step(Marker(marker.genesis, fetched))
        fresh = [r for r in records if r.offset >= marker.applied]
        # The same count in a row of a unit, which is stored separately: neither may be ahead.
        held = step.units.read(reader, Keys.of([UNIT])).tolist()
        assert held == [row or b""], "the two counts differ"
        step.rows[b"n"] = str(int(row or b"0") + len(fresh)).encode()
        step.units.put(RowColumns(Keys.of([UNIT]), Keys.of([step.rows[b"n"] or b""])))
        step.out = [Out(self.out, 0, None, r.value) for r in fresh]
        self.position = fetched
        return step


@dataclass
class Bench:
    """Shards over one input partition, as several workers open them."""

    kafka: Kafka
    name: str
    folder: Path
    genesis: str = "abcdef"
    hold: int = 3
    seeks: list[int] = field(default_factory=list)
    flows: list[bool] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)
    cache: Any = field(default_factory=lambda: Cache(1 << 20))
    executor: Any = field(default_factory=lambda: ThreadPoolExecutor(2))
    store: Objects | None = None  # for snapshots
    apart: bool = False  # whether publications have a producer of their own

    @property
    def out(self) -> str:
        return f"{self.name}-out"

    def shard(self, worker: str = "one", begin: int = 0) -> Shard:
        shared = Shared(
            self.kafka, self.genesis, self.folder / worker, self.cache, 1 << 20, self.executor,
            OperatorMetrics(), 10_000, copies=self.copies(worker),
        )  # fmt: skip
        written = {(f"{self.name}-log", 0)}, {(self.out, 0)} if self.apart else set[Place]()
        spec = ShardSpec(
            TP(self.name, 0), f"{self.name}.id", f"{self.name}-log", written,
            f"{self.name}.public" if self.apart else "", begin, self.hold,
        )  # fmt: skip
        return Shard(shared, spec, Tally(self.out), self)

    def copies(self, worker: str = "one") -> Copies | None:
        if self.store is None:
            return None
        return Copies(self.store, bytes(32), self.genesis, self.folder / worker / "snapshots")

    def flow(self, tp: TP, open_: bool) -> None:
        self.flows.append(open_)

    async def seek(self, tp: TP, position: int) -> None:
        self.seeks.append(position)

    async def before_open(self, tp: TP, marker: Marker, end: int) -> None:
        """Prepare nothing."""

    def fail(self, error: BaseException) -> None:
        self.failures.append(error)

    def path(self, worker: str = "one") -> Path:
        return self.folder / worker / self.genesis / f"{self.name}-log" / "0"

    def rows(self, worker: str = "one") -> dict[bytes, bytes | None]:
        store = RocksStore(self.path(worker), None, 1 << 20)
        found = store.get_many([b"n", GHOST, MARKER])
        store.close()
        return dict(zip([b"n", GHOST, MARKER], found, strict=True))

    def published(self, committed: bool = True) -> list[bytes]:
        if committed:
            visible(self.kafka, self.out)
        return [r.value or b"" for r in read_topic(self.kafka, self.out, 1, committed)[0].records]


def interval(start: int, end: int, name: str = "in") -> Interval:
    return Interval(TP(name, 0), start, end, [_record(n) for n in range(start, end)])


def _record(n: int) -> RawRecord:
    return RawRecord(n, 0, None, b"%d" % n)


def visible(kafka: Kafka, topic: str) -> None:
    """Wait until a topic is committed to its end: a commit returns before readers see it."""
    offsets, end = Cluster(kafka).offsets, time.monotonic() + 30
    while offsets.ends(topic, 1) != [offsets.written(topic, 0)] and time.monotonic() < end:
        time.sleep(0.02)


async def until(true: Callable[[], bool], seconds: float = 150) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.02)


def unopened(tmp_path: Path) -> Bench:
    return Bench(Kafka(bootstrap="127.0.0.1:1"), "in", tmp_path)


def held(shard: Shard) -> list[int]:
    return [record.offset for record in shard._backlog.records]


async def applied(shard: Shard, position: int) -> None:
    await until(lambda: shard.applied == position)

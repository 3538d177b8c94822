"""One event, whole: what a worker computes for it, without the broker and its client.

A shard of a direct pipeline and its aggregate shard, in one thread, with their tables on disk:
batches of the raw log are parsed, their records decoded, digested, bounded and added up, the frames
and the changelog written as batches, and the rows kept. Rows of users are as dense as in one of
four shards, and the table has a quarter of a worker's default memory.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import engine
import numpy as np
from hushstream.agents.clock.log import ClockLog
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.kafka.batches.header import OVERHEAD, BatchHeader
from hushstream.agents.kafka.batches.pack import packed
from hushstream.agents.kafka.batches.record_columns import RecordColumns
from hushstream.agents.kafka.batches.scan import scan
from hushstream.agents.kafka.clients import BATCH_BYTES
from hushstream.agents.stages.aggregate.nonces import steady
from hushstream.agents.stages.aggregate.secrets import Secrets
from hushstream.agents.stages.step import LogFrame, Stage, Step
from hushstream.agents.stages.topology import StageFactory, Topology
from hushstream.agents.state.layout import MARKER, POSITION, index_entries
from hushstream.agents.state.rocks import RocksStore
from hushstream.agents.state.units.room import UnitRoom
from hushstream.agents.worker.shards.maker import HELD
from hushstream.formats.events.raw import RawBatch
from hushstream.mechanisms.keys import Keys
from hushstream.topics.config.load import loads
from hushstream.topics.config.model import Engine
from hushstream.topics.names import Names
from hushstream.topics.records import Beat, Marker, Start, encode
from numpy.typing import NDArray
from rocksdict import Cache

MIB = 1 << 20
SHARE = 4  # shards of a worker among which memory is divided
HOUR = 3_600_000
STEP = Engine().step_records


class _Shard:
    """A stage, its marker and its table."""

    def __init__(self, stage: Stage, folder: Path, hold: int, names: Names) -> None:
        given = Engine()
        room = UnitRoom(given.unit_cache_mb * MIB // SHARE)
        cache = Cache(given.block_cache_mb * MIB // SHARE)
        self.table = RocksStore(folder, cache, given.write_buffer_mb * MIB, hold, room)
        self._stage, self._marker = stage, Marker(names.genesis, 0)
        self.written = 0  # bytes of changelog and frames
        stage.open(self.table, self._marker)

    def step(self, records: Any, fetched: int) -> Step | None:
        """Process all given records: compute, pack for the log, and keep."""
        step = self._stage.step(self.table, self._marker, records, fetched)
        if step is None:
            return None
        keys, values = step.units.columns()
        rows = RecordColumns(keys, values, np.diff(values.offsets) == 0)
        self._pack(rows.then(RecordColumns.of({**step.rows, MARKER: encode(step.marker)})))
        if step.out:
            frames = Keys.of(out.value or b"" for out in step.out)
            none = np.zeros(len(frames), np.bool_)
            self._pack(RecordColumns(Keys.of([b""] * len(frames)), frames, none))
        for key, value in step.rows.items():
            step.local.update(index_entries(key, value))
        kept = {**step.rows, **step.local, MARKER: encode(step.marker), POSITION: b"0" * 60}
        self.table.write(kept, step.units.columns())
        self._marker = step.marker
        return step

    def _pack(self, rows: RecordColumns) -> None:
        sent = 0
        while sent < len(rows.gone):
            data, sent = packed(rows, sent, BATCH_BYTES)
            self.written += len(data)


class Whole:
    """Shards of one partition, and records for them.

    Args:
        folder: where their tables are kept.
        users: number of users of the partition.
        keys: number of distinct keys.
    """

    def __init__(self, folder: Path, users: int, keys: int) -> None:
        self.users, self._keys, self._end = users, keys, 0
        self._random = np.random.default_rng(users)
        text = '[deployment]\nname = "p"\n' + engine.CONFIG.format(
            topic="events", partitioner="murmur2", name="p", mechanism=", adaptive_weight = 0"
        ).replace("cells_partitions = 2", "cells_partitions = 1")
        made, names = compile_config(loads(text, environ={}), {"events": 1}), Names("p", "abcdef")
        (pipeline,) = made.pipelines
        self._clock = ClockLog({pipeline.name: pipeline.traits.horizon})
        first = pipeline.windows.window(engine.START * 1_000)
        self._clock.append(0, Start(pipeline.name, first, engine.START * 1_000))
        factory = StageFactory(made, names, Secrets(bytes(32), steady), self._clock)
        specs = {spec.stage: spec for spec in Topology(made, names).specs}
        stages = {name: factory.make(spec, 0) for name, spec in specs.items()}
        self.ingest = _Shard(stages["ingest"], folder / "ingest", HELD, names)
        self._aggregate = _Shard(stages["aggregate"], folder / "aggregate", 0, names)
        self._sent = self._number = 0
        self.seen = 0

    def take(self, who: NDArray[np.integer[Any]], most: int) -> float:
        """Take an event of each given user, as a worker with a backlog of ``most`` does.

        Returns:
            Microseconds of CPU per event.
        """
        batches = [self._batch(who[n : n + 10_000]) for n in range(0, len(who), 10_000)]
        self._end += len(who)
        self._number += 1
        self._clock.append(self._number, Beat(engine.START * 1_000 + HOUR, {"events": [self._end]}))
        begun = time.process_time()
        parts, base = list[RawBatch](), self._end - len(who)
        for data in batches:
            found = scan(data)
            found.offset += base
            base += len(found)
            parts.append(found)
        self._steps(RawBatch.joined(parts), most)
        return 1e6 * (time.process_time() - begun) / len(who)

    def _steps(self, records: RawBatch, most: int) -> None:
        begin = self._end - len(records)
        for at in range(0, len(records), most):
            some = records[at : at + most]
            step = self.ingest.step(some, begin + at + len(some))
            if step is None:
                raise SystemExit("the gate is closed")
            self.seen += sum(n for (_, what), n in step.counts.items() if what == "seen")
            frames = [LogFrame(self._sent + n, out.value or b"") for n, out in enumerate(step.out)]
            self._sent += len(frames)
            self._aggregate.step(frames, self._sent)

    def _batch(self, who: NDArray[np.integer[Any]]) -> memoryview:
        pages = self._random.integers(0, self._keys, len(who)).tolist()
        body = b'{"user":"u%d","page":"p%d","t":%d,"price":12.5}'
        rows = [
            body % (user, page, engine.START)
            for user, page in zip(who.tolist(), pages, strict=True)
        ]
        keys, values = Keys.of(b"u%d" % user for user in who.tolist()), Keys.of(rows)
        data, end = packed(RecordColumns(keys, values, np.zeros(len(who), np.bool_)), 0, 1 << 24)
        assert end == len(who)
        start = engine.START
        BatchHeader(
            0, len(data) - OVERHEAD, 0, 2, 0, 0, end - 1, start, start, -1, -1, -1, end
        ).write(data)
        return memoryview(data)

    def fill(self) -> None:
        """Give each user an event."""
        for begun in range(0, self.users, 200_000):
            self.take(np.arange(begun, min(begun + 200_000, self.users)), STEP)

    def round(self, events: int) -> float:
        """Take events of uniform users; returns microseconds of CPU per event."""
        return self.take(self._random.integers(0, self.users, events), STEP)

    def close(self) -> None:
        """Release the tables."""
        for shard in (self.ingest, self._aggregate):
            shard.table.close()

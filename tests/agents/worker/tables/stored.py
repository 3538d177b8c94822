"""Snapshots that a test makes, and a store that may be away."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hushstream.agents.snapshots.objects import Objects
from hushstream.agents.snapshots.sealed import TableKeys
from hushstream.agents.worker.metrics import OperatorMetrics
from hushstream.agents.worker.shards.shard import Shard
from hushstream.agents.worker.tables import evidence
from hushstream.agents.worker.tables.uploads import Uploads
from hushstream.errors import SnapshotError
from prometheus_client import generate_latest

from ..bench import UNIT, Bench, applied, interval

GOES_ON = "goes on from its snapshot"


class Store(Objects):
    """A folder that may be unavailable."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"file://{folder}")
        self.folder = folder
        self.away = False
        self.puts = 0

    async def put(self, name: str, data: bytes) -> None:
        if self.away:
            raise SnapshotError("an object cannot be written (Away)")
        self.puts += 1
        await super().put(name, data)


class Made:
    """A shard of one worker, with the uploads of its snapshots."""

    def __init__(self, bench: Bench, shard: Shard, every: float = 0.0) -> None:
        self.bench, self.shard, self.metrics = bench, shard, OperatorMetrics()
        self.shards = {shard.tp: shard}
        here = bench.copies()
        assert here is not None
        self.uploads = Uploads(here, every, self.shards, self.metrics)

    async def steps(self, to: int) -> None:
        self.shard.deliver(interval(self.shard.wanted, to))
        await applied(self.shard, to)

    async def snapshot(self) -> None:
        """A round wants a seal, a step writes it, a round uploads, a step ends the snapshot."""
        await self.uploads.round()
        await self.steps(self.shard.applied + 1)
        await self.uploads.round()
        await self.steps(self.shard.applied + 1)

    @property
    def at(self) -> Path:
        """The folder of the table's objects."""
        assert isinstance(self.bench.store, Store)
        return self.bench.store.folder / self.bench.genesis / f"{self.bench.name}-log" / "0"

    @property
    def position(self) -> int:
        """The changelog position from which the snapshot continues."""
        keys = TableKeys(bytes(32), f"{self.bench.genesis}/{self.bench.name}-log/0")
        known = evidence.known_of(*keys.open_head((self.at / "head").read_bytes()).rows)
        assert known is not None and known.start is not None
        return known.start

    def number(self, name: str) -> float:
        lines = generate_latest(self.metrics.series).decode().splitlines()
        return float(next(line for line in lines if line.startswith(name)).split()[-1])


Working = Callable[[Made], Any]


def with_snapshot(bench: Bench, then: Working) -> None:
    """Make a snapshot of a table of seven records, then run ``then``."""

    async def run() -> None:
        shard = bench.shard()
        await shard.open()
        made = Made(bench, shard)
        await made.steps(5)
        await made.snapshot()
        await then(made)
        await shard.close()

    asyncio.run(run())
    assert bench.failures == []


async def opened(bench: Bench, caplog, worker: str = "two") -> tuple[bool, Any]:
    """Open the shard on an empty disk: whether it began with a snapshot, and its rows."""
    shutil.rmtree(bench.folder / worker, ignore_errors=True)
    caplog.clear()
    caplog.set_level("INFO")
    state = bench.shard(worker)._state  # without a producer, which would fence the shard
    marker = await state.open()
    assert marker is not None
    rows = state.table.get_many([b"n", UNIT])
    assert rows[0] == b"%d" % marker.applied == rows[1]
    state.close()
    return GOES_ON in caplog.text, rows

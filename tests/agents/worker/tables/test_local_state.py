"""The table of a shard, without a broker; other tests cover tables with real changelogs."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hushstream.agents.kafka.markers import Sought
from hushstream.agents.state.layout import MARKER, POSITION, UNIT, UNIT_WIDTH
from hushstream.agents.state.rocks import RocksStore
from hushstream.agents.state.rocks_errors import told
from hushstream.agents.worker.metrics import OperatorMetrics
from hushstream.agents.worker.shared import Shared
from hushstream.agents.worker.tables import local_state
from hushstream.agents.worker.tables.local_state import LocalState
from hushstream.errors import EngineError, RewoundError, TrimmedError
from hushstream.formats.events.raw import RawBatch, RawRecord
from hushstream.topics.config.model import Kafka
from hushstream.topics.records import Marker, encode
from rocksdict import Cache


async def changelog(*_, columns: bool):
    """A changelog with one row and a marker."""
    yield [], 0, 2
    marker = encode(Marker("g", 1))
    yield [RawRecord(0, 0, b"kept", b"1"), RawRecord(1, 0, MARKER, marker)], 2, 2


def test_what_an_interrupted_restore_has_left_is_dropped(tmp_path: Path, monkeypatch):
    """Since then, the changelog may have lost the deletion of such a row."""
    monkeypatch.setattr(local_state, "read_to_end", changelog)
    shared = Shared(
        Kafka(), "g", tmp_path, Cache(1 << 20), 1 << 20, ThreadPoolExecutor(1), OperatorMetrics(), 1
    )
    store = RocksStore(tmp_path / "g" / "log" / "0", None, 1 << 20)
    store.write({b"deleted": b"1"})
    store.close()
    state = LocalState(shared, "log", 0, 0, lambda: None)
    marker = asyncio.run(state.open())
    assert marker is not None and marker.applied == 1
    assert state.table.get_many([b"deleted", b"kept"]) == [None, b"1"]
    assert not state.old
    monkeypatch.setattr(local_state, "FRESH_SECONDS", -1.0)
    assert state.old
    before = state.table.get_many([POSITION])
    state.renew()
    assert state.position == 2 and state.table.get_many([POSITION]) != before
    state.close()


def test_a_table_is_not_closed_under_the_thread_that_fills_it(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(local_state, "read_to_end", changelog)
    pool = ThreadPoolExecutor(1)
    shared = Shared(Kafka(), "g", tmp_path, Cache(1 << 20), 1 << 20, pool, OperatorMetrics(), 1)
    state = LocalState(shared, "log", 0, 0, lambda: None)
    asyncio.run(state.open())
    store, begun, found = state.table, threading.Event(), []

    def slow(store: RocksStore, records: RawBatch, position: int) -> None:
        begun.set()
        time.sleep(0.2)
        found.append(store.get_many([b"kept"]))

    async def closed_early() -> None:
        columns = np.zeros((8, 1), np.int64)
        records = RawBatch(np.zeros(1, np.uint8), *columns)
        writing = state._put(store, records, 3)
        begun.wait()
        state.close()
        await writing
        await state._put(store, records, 4)  # for a closed table

    monkeypatch.setattr(local_state, "apply", slow)
    asyncio.run(closed_early())
    assert found == [[b"1"]]


@pytest.mark.parametrize(
    "error",
    [told(Path("t"), "written", "No space left on device"), RewoundError("log-0 ends before that")],
)
def test_an_error_while_a_table_catches_up_takes_nothing_from_it(
    tmp_path: Path, monkeypatch, error: EngineError
):
    pool = ThreadPoolExecutor(1)
    shared = Shared(Kafka(), "g", tmp_path, Cache(1 << 20), 1 << 20, pool, OperatorMetrics(), 1)
    monkeypatch.setattr(local_state, "read_to_end", changelog)
    state = LocalState(shared, "log", 0, 0, lambda: None)
    asyncio.run(state.open())
    state.close()

    async def same(_self: LocalState, _known: object) -> Sought:
        return Sought(None, True, True)

    async def failing(*_: object, columns: bool):
        yield [], 2, 3
        raise error

    monkeypatch.setattr(LocalState, "_sought", same)
    monkeypatch.setattr(local_state, "check_same", lambda *_: True)
    monkeypatch.setattr(local_state, "read_to_end", failing)
    state = LocalState(shared, "log", 0, 0, lambda: None)
    with pytest.raises(type(error)):
        asyncio.run(state.open())
    assert state._store is not None and state._store.get_many([b"kept"]) == [b"1"]
    state.close()

    async def trimmed(kafka: object, topic: str, part: int, start: int | None, columns: bool):
        if start is not None:
            raise TrimmedError("log-0 does not hold the position that is wanted")
        async for one in changelog(columns=columns):
            yield one

    monkeypatch.setattr(local_state, "read_to_end", trimmed)
    state = LocalState(shared, "log", 0, 0, lambda: None)
    assert asyncio.run(state.open()).applied == 1
    state.close()


def test_a_block_that_only_the_close_reads_may_be_damaged(tmp_path: Path, monkeypatch):
    """A close merges the changed rows of units into blocks that it reads for this alone."""
    monkeypatch.setattr(local_state, "read_to_end", changelog)
    pool = ThreadPoolExecutor(1)
    shared = Shared(Kafka(), "g", tmp_path, Cache(1 << 20), 1 << 20, pool, OperatorMetrics(), 1)
    units = [UNIT + n.to_bytes(UNIT_WIDTH - 1, "big") for n in range(5_000)]

    state = LocalState(shared, "log", 0, 10_000, lambda: None)
    asyncio.run(state.open())
    state.write(dict.fromkeys(units, b"before"), 2)
    state.table.flush()
    state.write(dict.fromkeys(units[::7], b"after"), 2)
    for blocks in state.path.glob("*.sst"):
        data = bytearray(blocks.read_bytes())
        middle = len(data) // 3
        data[middle : middle + 64] = bytes(64)
        blocks.write_bytes(data)
    state.close()
    assert (state.path.parent / "damaged-0").is_dir() and not state.path.exists()
    assert asyncio.run(state.open()) == Marker("g", 1)  # from its changelog
    state.close()

"""A commit that brokers answered and then forgot: tables that have it, and tables that do not.

Covers: agents/kafka/markers.py, agents/worker/tables/local_state.py
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hushstream.agents.kafka.batches.record_columns import RecordColumns
from hushstream.agents.kafka.clients import start_producer, stop_quietly, transactional_producer
from hushstream.agents.kafka.cluster import Cluster
from hushstream.agents.state.layout import MARKER
from hushstream.agents.worker.shards import producers
from hushstream.agents.worker.shards.transaction import send
from hushstream.agents.worker.tables.evidence import check_tables
from hushstream.topics.names import Names
from hushstream.topics.records import Marker, encode

from ..bench import GHOST, UNIT, Bench, applied, interval, visible
from .test_evidence import forged, stepped, told

FORGOTTEN = "forgotten-2"


async def hanging(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> tuple[int, Marker]:
    """Leave a transaction open in the changelog; the next producer that starts decides its end.

    Returns:
        The offset of its first record, and its marker.
    """
    log = f"{bench.name}-log"
    producer = transactional_producer(bench.kafka, f"{bench.name}.other", 60_000)
    await start_producer(producer)
    await producer.begin_transaction()
    marker = Marker(bench.genesis, 5, transaction=FORGOTTEN)
    rows = RecordColumns.of({b"n": b"5", UNIT: b"5", MARKER: encode(marker)})
    sent = [await one for one in await send(producer, log, 0, rows)]
    left = [producer]

    async def started(mine: Any, own: Any, public: Any, answered: Any) -> None:
        await start_producer(mine)
        if left:
            commit = await answered()
            other = left.pop()
            await (other.commit_transaction() if commit else other.abort_transaction())
            await stop_quietly(other)
            visible(bench.kafka, log)

    monkeypatch.setattr(producers, "start_producer", started)
    return sent[-1].offset, marker


def test_what_a_table_has_is_committed(bench, monkeypatch):
    async def run() -> None:
        await stepped(bench, "two", 3)
        offset, marker = await hanging(bench, monkeypatch)
        forged(bench, marker, 0.0, offset)
        shard = bench.shard()
        await shard.open()
        assert (shard.applied, shard._state.table.get_many([GHOST])) == (5, [b"1"])
        await shard.close()
        assert [one.transaction for _, one in told(bench)][-1] == FORGOTTEN

    asyncio.run(run())


@pytest.mark.parametrize("steps", [True, False])
def test_what_no_table_has_is_aborted_and_a_table_that_comes_back_is_restored(
    bench, steps: bool, monkeypatch
):
    """Even if the worker that aborted it ends before its first step."""
    names, folder = Names("any", bench.genesis), bench.folder / "one"

    async def run() -> None:
        await stepped(bench, "two", 3)
        offset, marker = await hanging(bench, monkeypatch)
        forged(bench, marker, 0.0, offset)  # of a worker that has lost the partition since
        other = bench.shard("two")
        await other.open()
        assert other.applied == 3
        assert [one.aborted for _, one in told(bench)] == ["", FORGOTTEN]  # before any step
        if steps:
            other.deliver(interval(3, 4))
            await applied(other, 4)
        else:
            assert not other.moved
        await other.close()
        assert [one.aborted for _, one in told(bench)] == ["", FORGOTTEN, *[""] * steps]
        assert check_tables(bench.kafka, Cluster(bench.kafka), names, folder) == 1
        shard = bench.shard()
        await shard.open()
        row = b"4" if steps else b"3"
        assert shard._state.table.get_many([b"n", GHOST]) == [row, None]
        assert shard.applied == 3 + steps
        await shard.close()
        await stepped(bench, "one", 5)
        assert [one.aborted for _, one in told(bench)] == ["", FORGOTTEN, *[""] * steps, ""]

    asyncio.run(run())

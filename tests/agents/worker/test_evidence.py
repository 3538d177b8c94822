"""Kept tables: what cannot be trusted is thrown away; what knows more than the log is evidence."""

from __future__ import annotations

import asyncio
import json
import time

import hushstream.agents.kafka.clients as clients
import pytest
from hushstream.agents.offline.replay_logs import spans
from hushstream.agents.state.layout import MARKER, POSITION
from hushstream.agents.state.rocks import RocksStore
from hushstream.agents.worker.evidence import STALE_SECONDS
from hushstream.errors import RewoundError
from hushstream.topics.records import Marker, encode

from .bench import GHOST, Bench, applied, interval


def forged(bench: Bench, genesis: str, applied: int, age: float, offset: int) -> None:
    """Put a table into a shard's folder, with a row that its changelog does not have (any more)."""
    store = RocksStore(bench.path(), None, 1 << 20)
    position = json.dumps({"offset": offset, "time": time.time() - age}).encode()
    rows = {b"n": b"777", GHOST: b"1", MARKER: encode(Marker(genesis, applied)), POSITION: position}
    store.write(rows)
    store.close()


async def stepped(bench: Bench, worker: str, to: int) -> None:
    shard = bench.shard(worker)
    await shard.open()
    shard.deliver(interval(shard.wanted, to))
    await applied(shard, to)
    await shard.close()


@pytest.mark.parametrize(
    "genesis,age",
    [("another", 0.0), ("abcdef", STALE_SECONDS + 60), ("abcdef", -60.0)],
    ids=["another", "too old", "of tomorrow"],
)
@pytest.mark.parametrize("behind", [True, False], ids=["behind", "at the end"])
def test_local_state_that_cannot_be_trusted_is_thrown_away(bench, genesis, age, behind):
    """All of it: a row that the changelog has deleted since, or never had, would stay otherwise."""

    async def run() -> None:
        await stepped(bench, "two", 3)
        end = spans(bench.kafka, f"{bench.name}-log", 1)[0].end
        forged(bench, genesis, 3, age, 0 if behind else end)
        shard = bench.shard()
        await shard.open()
        assert (shard.applied, shard._state.table.get_many([b"n"])) == (3, [b"3"])
        await shard.close()

    asyncio.run(run())
    assert bench.rows()[b"n"] == b"3" and bench.rows()[GHOST] is None


@pytest.mark.parametrize(
    "reached,age,offset",
    [(2, 0.0, 10_000), (2, STALE_SECONDS + 60, 10_000), (777, 0.0, 0), (777, 1e6, 0)],
    ids=["beyond the changelog", "beyond it, and old", "a later marker", "a later marker, and old"],
)
def test_a_table_that_knows_more_than_its_changelog_is_evidence_and_is_kept(
    bench, monkeypatch, reached, age, offset
):
    """The changelog was rewound: what the table counted would be counted anew."""
    monkeypatch.setattr(clients, "SETTLE_SECONDS", 0.3)

    async def run() -> None:
        await stepped(bench, "two", 3)
        forged(bench, bench.genesis, reached, age, offset)
        for _ in range(2):  # a restart finds the same again
            shard = bench.shard()
            try:
                with pytest.raises(RewoundError, match="restored, copied or rewound"):
                    await shard.open()
            finally:
                await shard.close()

    asyncio.run(run())

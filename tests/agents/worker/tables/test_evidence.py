"""Kept tables: an untrusted one is discarded, and one that knows more than the log is evidence."""

from __future__ import annotations

import asyncio
import json
import time
from types import SimpleNamespace
from typing import Any, cast

import hushstream.agents.kafka.clients as clients
import pytest
from confluent_kafka import TopicPartition
from hushstream.agents.kafka.cluster import Cluster
from hushstream.agents.kafka.logs import read_topic
from hushstream.agents.kafka.offsets import PartitionOffsets
from hushstream.agents.state import rocks
from hushstream.agents.state.layout import MARKER, PLAIN_POSITION, POSITION
from hushstream.agents.state.rocks import RocksStore
from hushstream.agents.worker.tables.evidence import (
    STALE_SECONDS,
    Known,
    check_near,
    check_tables,
    known_in,
    known_of,
    seen_row,
)
from hushstream.errors import RewoundError
from hushstream.offline.replay_logs import spans
from hushstream.topics.config.model import Kafka
from hushstream.topics.names import Names
from hushstream.topics.records import Marker, decode_marker, encode
from msgspec.structs import replace

from ..bench import GHOST, UNIT, Bench, applied, interval, visible


def forged(bench: Bench, marker: Marker, age: float, offset: int) -> None:
    """Put a table into a shard's folder, with a row that its changelog does not have."""
    store = RocksStore(bench.path(), None, 1 << 20)
    position = json.dumps({"offset": offset, "time": time.time() - age}).encode()
    rows = {b"n": b"777", GHOST: b"1", MARKER: encode(marker), POSITION: position}
    store.write(rows)
    store.close()


def told(bench: Bench) -> list[tuple[int, Marker]]:
    """The changelog's markers with their offsets."""
    visible(bench.kafka, f"{bench.name}-log")
    records = read_topic(bench.kafka, f"{bench.name}-log", 1)[0].records
    return [(r.offset, decode_marker(r.value or b"")) for r in records if r.key == MARKER]


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
    """Completely: otherwise a row would stay that the changelog has deleted or never had."""

    async def run() -> None:
        await stepped(bench, "two", 3)
        ((_, marker),) = told(bench)
        end = spans(bench.kafka, f"{bench.name}-log", 1)[0].end
        forged(bench, replace(marker, genesis=genesis), age, 0 if behind else end)
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
    """The changelog was rewound, so the table's records would be counted again."""
    monkeypatch.setattr(clients, "SETTLE_SECONDS", 0.3)

    async def run() -> None:
        await stepped(bench, "two", 3)
        forged(bench, Marker(bench.genesis, reached), age, offset)
        for _ in range(2):  # a restart finds the same
            shard = bench.shard()
            try:
                with pytest.raises(RewoundError, match="restored, copied or rewound"):
                    await shard.open()
            finally:
                await shard.close()

    asyncio.run(run())


def plain(bench: Bench) -> None:
    """Store the position as a table does that keeps each unit's row by itself."""
    store = RocksStore(bench.path(), None, 1 << 20)
    (position,) = store.get_many([POSITION])
    store.write({POSITION: None, PLAIN_POSITION: position})
    store.close()


@pytest.mark.parametrize("reached", [3, 777], ids=["of this history", "beyond the changelog"])
def test_a_table_of_an_earlier_version_is_evidence_and_is_restored_from_nothing(
    bench, monkeypatch, reached
):
    monkeypatch.setattr(clients, "SETTLE_SECONDS", 0.3)

    async def run() -> None:
        await stepped(bench, "two", 3)
        ((offset, marker),) = told(bench)
        forged(bench, replace(marker, applied=reached), 0.0, offset + 1)
        plain(bench)
        shard = bench.shard()
        try:
            if reached > 3:
                with pytest.raises(RewoundError, match="restored, copied or rewound"):
                    await shard.open()
                return
            await shard.open()
            assert shard._state.table.get_many([b"n", GHOST]) == [b"3", None]
        finally:
            await shard.close()

    asyncio.run(run())


def test_a_table_that_is_not_saved_tells_how_far_it_came_and_begins_where_it_was_saved(
    bench, monkeypatch
):
    """Otherwise a large table would not prove what it has seen, or would lack rows of it."""
    monkeypatch.setattr(rocks, "CLOSED_ROWS", -1)
    bench.hold = 1_000

    async def run() -> None:
        restored = 0
        for to in (3, 5, 6):
            await stepped(bench, "one", to)
            offset, marker = told(bench)[-1]
            known = known_in(bench.path())
            assert known is not None and known.marker == marker
            assert offset - 3 < known.position <= offset
            if to == 3:
                assert known.start is None
                restored = offset
            else:  # the restore's rows are saved, and none since
                assert known.start is not None and restored < known.start <= restored + 2
        assert bench.rows()[b"n"] == b"3"
        shard = bench.shard()
        await shard.open()
        shard._state.table.flush()
        shard.deliver(interval(6, 8))
        await applied(shard, 8)
        await shard.close()
        saved, (offset, marker) = (told(bench)[n] for n in (-2, -1))
        known = known_in(bench.path())
        assert known is not None and bench.rows()[b"n"] == b"6"
        assert known.marker == marker and offset - 3 < known.position <= offset
        assert known.start is not None and saved[0] < known.start <= offset
        shard = bench.shard()
        await shard.open()
        assert (shard.applied, shard._state.table.get_many([b"n", UNIT])) == (8, [b"8", b"8"])
        await shard.close()

    asyncio.run(run())


def test_what_is_newest_of_a_tables_rows_is_its_progress():
    def position(offset: int, age: float = 0.0) -> bytes:
        return json.dumps({"offset": offset, "time": time.time() - age}).encode()

    one, other = Marker("g", 1), Marker("g", 2)
    rows = encode(one), encode(other)
    seen = seen_row(position(9), rows[1])
    assert known_of(position(4), None, rows[0], None) == Known(4, one, 4)
    assert known_of(position(4), None, rows[0], seen) == Known(9, other, 4)
    assert known_of(position(10), None, rows[0], seen) == Known(10, one, 10)
    assert known_of(position(9, 5), None, rows[0], seen) == Known(9, other, 9)
    assert known_of(position(9), None, rows[0], seen) == Known(9, one, 9)
    assert known_of(position(4, 1e6), None, rows[0], seen) == Known(9, other, None)
    # An earlier version continued with a table that a restore had begun.
    assert known_of(position(4), position(6), rows[0], None) == Known(6, one, None)
    assert known_of(None, None, None, seen) == Known(9, other, None)
    assert known_of(position(4), None, None, None) is None
    assert seen_row(None, rows[0]) is None and seen_row(position(1), None) is None


@pytest.mark.parametrize("age", [0.0, STALE_SECONDS + 60], ids=["fresh", "old"])
@pytest.mark.parametrize("own", [True, False], ids=["from a step", "restored"])
def test_a_table_of_another_history_is_evidence_however_far_its_changelog_has_grown(
    bench, age, own
):
    """Only the table shows the rewind: the log is longer, and its markers are further on."""
    names, folder = Names("any", bench.genesis), bench.folder / "one"

    async def run() -> None:
        for to in (3, 5, 8):
            await stepped(bench, "two", to)
        (_, _), (at, second), (_, last) = told(bench)
        lost = replace(second, transaction="of a history that is gone")
        # After a step, a table is at the first row of the last batch; otherwise behind the marker.
        position = at - 2 if own else at + 1
        forged(bench, lost, age, position)
        assert lost.applied < last.applied
        for _ in range(2):
            with pytest.raises(RewoundError, match="has another history than the table of it"):
                check_tables(bench.kafka, Cluster(bench.kafka), names, folder)
            shard = bench.shard()
            try:
                with pytest.raises(RewoundError, match="has another history than the table of it"):
                    await shard.open()
            finally:
                await shard.close()
        forged(bench, second, 0.0, position)
        assert check_tables(bench.kafka, Cluster(bench.kafka), names, folder) == 1
        shard = bench.shard()
        await shard.open()
        assert shard.applied == 8 and shard._state.table.get_many([GHOST]) == [b"1"]  # it is used
        await shard.close()

    asyncio.run(run())


def test_a_transaction_that_becomes_visible_later_is_no_other_history(bench, monkeypatch):
    """A commit is answered before its markers are written, and a restart may come in between."""
    names, folder = Names("any", bench.genesis), bench.folder / "one"

    async def run() -> None:
        for to in (3, 5):
            await stepped(bench, "two", to)
        ((_, _), (at, last)) = told(bench)
        forged(bench, replace(last, transaction="not visible yet"), 0.0, at + 1)
        with pytest.raises(RewoundError, match="has another history than the table of it"):
            check_tables(bench.kafka, Cluster(bench.kafka), names, folder)
        end = PartitionOffsets.written
        monkeypatch.setattr(PartitionOffsets, "written", lambda *given: end(*given) + 2)
        assert check_tables(bench.kafka, Cluster(bench.kafka), names, folder) == 1

    asyncio.run(run())


def test_a_table_of_which_its_changelog_says_nothing_any_more_is_restored_from_nothing(bench):
    """Compaction has deleted the table's marker and all earlier ones: its history is unknown."""
    names, folder = Names("any", bench.genesis), bench.folder / "one"

    async def run() -> None:
        await stepped(bench, "two", 3)
        forged(bench, Marker(bench.genesis, 2, transaction="before all that is left"), 0.0, 0)
        assert check_tables(bench.kafka, Cluster(bench.kafka), names, folder) == 1
        shard = bench.shard()
        await shard.open()
        assert (shard.applied, shard._state.table.get_many([b"n", GHOST])) == (3, [b"3", None])
        await shard.close()

    asyncio.run(run())


def test_no_two_transactions_of_a_changelog_have_the_same_name(bench):
    async def run() -> None:
        shard = bench.shard()
        await shard.open()
        for to in (2, 4):
            shard.deliver(interval(shard.wanted, to))
            await applied(shard, to)
        await shard.close()
        await stepped(bench, "two", 5)

    asyncio.run(run())
    first, second, other = (marker.transaction.split("-") for _, marker in told(bench))
    assert first[0] == second[0] != other[0] and len(other[0]) == 16
    assert (first[1], second[1], other[1]) == ("1", "2", "1")


@pytest.mark.parametrize("compacted", [True, False])
def test_compaction_during_a_look_is_no_other_history(compacted: bool):
    """The earlier marker was read, then both it and the table's own were deleted."""
    markers = {at: Marker("g", at, transaction=f"x-{at}") for at in (3, 8, 13)}

    class Client:
        def get_watermark_offsets(self, *_: object, timeout: float) -> tuple[int, int]:
            return 0, 15

        def assign(self, places: list[TopicPartition]) -> None:
            self.at = places[0].offset

        def poll(self, seconds: float) -> object:
            self.at = min(at for at in markers if at >= self.at) + 1
            found, told = self.at - 1, encode(markers[self.at - 1])
            if found == 3 and compacted:
                del markers[3], markers[8]
            return SimpleNamespace(
                error=lambda: None, key=lambda: MARKER, value=lambda: told, offset=lambda: found
            )

    known = Known(5, markers[8] if compacted else Marker("g", 8, transaction="y"), 5)
    client: Any = Client()
    place = TopicPartition("log", 0)
    if compacted:
        check_near(Kafka(), cast(Cluster, None), client, place, known)
        assert markers.keys() == {13}
    else:
        with pytest.raises(RewoundError, match="has another history"):
            check_near(Kafka(), cast(Cluster, None), client, place, known)

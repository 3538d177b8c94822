"""Snapshots on a real broker: an empty disk goes on from one, unless it may not be used."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from hushstream.agents.kafka.markers import Sought
from hushstream.agents.snapshots import copies, sealed
from hushstream.agents.snapshots.objects import Objects
from hushstream.agents.snapshots.sealed import CopyHead, TableKeys, fingerprint_of
from hushstream.agents.worker import evidence, local_state, uploads
from hushstream.agents.worker.metrics import OperatorMetrics
from hushstream.agents.worker.shard import Shard
from hushstream.agents.worker.uploads import Uploads
from hushstream.errors import RewoundError, SnapshotError
from hushstream.topics.records import TableSeal
from prometheus_client import generate_latest

from .bench import UNIT, Bench, applied, interval, until

GOES_ON = "goes on from its snapshot"


class Store(Objects):
    """A folder that may be away."""

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
    """A shard of one worker, and what makes its snapshots."""

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
        """A round that wants a seal, a step that tells it, one that sends, a step that tells."""
        await self.uploads.round()
        await self.steps(self.shard.applied + 1)
        await self.uploads.round()
        await self.steps(self.shard.applied + 1)

    @property
    def at(self) -> Path:
        """Folder of the table's objects."""
        assert isinstance(self.bench.store, Store)
        return self.bench.store.folder / self.bench.genesis / f"{self.bench.name}-log" / "0"

    def number(self, name: str) -> float:
        lines = generate_latest(self.metrics.registry).decode().splitlines()
        return float(next(line for line in lines if line.startswith(name)).split()[-1])


@pytest.fixture
def stored(bench: Bench, tmp_path: Path, monkeypatch) -> Bench:
    bench.store = Store(tmp_path / "store")
    for module in (copies, sealed):
        monkeypatch.setattr(module, "PART", 300)  # several parts
    return bench


Working = Callable[[Made], Any]


def with_snapshot(bench: Bench, then: Working) -> None:
    """Make a snapshot of a table of seven records, take a step more, and go on."""

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
    """Open the shard on an empty disk; whether from a snapshot, and its rows."""
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


def test_an_empty_disk_goes_on_from_a_snapshot(stored: Bench, caplog) -> None:
    async def then(made: Made) -> None:
        assert made.shard.marker.seals[0].of and len(made.shard.marker.seals) == 1
        assert made.number("hush_snapshot_timestamp_seconds") == pytest.approx(time.time(), abs=60)
        assert len(list(made.at.rglob("0*"))) > 2
        assert await opened(stored, caplog) == (True, [b"7", b"7"])
        # Another worker goes on with the shard, and with its snapshots.
        await made.shard.close()
        other = stored.shard("two")
        await other.open()
        again = Made(stored, other, 3600)
        await again.steps(9)
        before = again.shard.marker.seals
        assert before == made.shard.marker.seals
        await again.uploads.round()  # it finds the one that counts
        assert again.number("hush_snapshot_timestamp_seconds") > 0
        await again.steps(10)
        assert again.shard.marker.seals == before
        await other.close()

    with_snapshot(stored, then)


def test_without_the_setting_markers_tell_no_seal(stored: Bench, caplog) -> None:
    async def then(made: Made) -> None:
        await made.shard.close()
        stored.store = None
        plain = stored.shard("plain")
        await plain.open()
        assert plain.marker.seals != []
        plain.deliver(interval(plain.wanted, 9))
        await applied(plain, 9)
        assert plain.marker.seals == []
        await plain.close()

    with_snapshot(stored, then)


def test_nothing_is_sent_before_its_seal_is_committed(stored: Bench) -> None:
    async def run() -> None:
        shard = stored.shard()
        await shard.open()
        made = Made(stored, shard)
        await made.uploads.round()
        assert shard.seals == []  # there is no table yet
        await made.steps(3)
        for _ in range(2):
            await made.uploads.round()
        assert [seal.of for seal in shard.seals] == [""] and shard.marker.seals == []
        assert not made.at.exists()
        await made.steps(4)
        await made.uploads.round()
        assert (made.at / "head").exists()
        await shard.close()

    asyncio.run(run())


def test_one_that_is_young_is_not_made_again_nor_one_of_an_idle_shard(stored: Bench) -> None:
    async def run() -> None:
        shard = stored.shard()
        await shard.open()
        made = Made(stored, shard, 3600)
        await made.steps(5)
        await made.snapshot()
        await made.uploads.round()
        assert len(shard.seals) == 1  # none is wanted
        puts = stored.store.puts  # type: ignore[union-attr]
        made.uploads._interval = 0.0
        made.uploads._tables[shard.tp].at = shard.marker.transaction
        await made.uploads.round()
        assert (len(shard.seals), stored.store.puts) == (1, puts)  # type: ignore[union-attr]
        await shard.close()

    asyncio.run(run())


def test_a_snapshot_whose_key_is_forgotten_is_refused(stored: Bench, caplog, tmp_path) -> None:
    async def then(made: Made) -> None:
        shutil.copytree(made.at, tmp_path / "yesterday")
        (old,) = made.shard.marker.seals
        await made.snapshot()
        (new,) = made.shard.marker.seals
        assert old != new
        assert await opened(stored, caplog) == (True, [b"9", b"9"])
        shutil.rmtree(made.at)  # somebody has kept a version of each object
        shutil.copytree(tmp_path / "yesterday", made.at)
        assert await opened(stored, caplog) == (False, [b"9", b"9"])
        assert "its key is forgotten" in caplog.text

    with_snapshot(stored, then)


def test_the_older_one_counts_until_the_newer_one_does(stored: Bench, caplog) -> None:
    async def then(made: Made) -> None:
        (old,) = made.shard.marker.seals
        assert isinstance(stored.store, Store)
        made.uploads._interval = 3600.0
        made.uploads._tables[made.shard.tp].newest = _aged(made, 3700)
        stored.store.away = True
        await made.uploads.round()
        await made.steps(8)
        await made.uploads.round()  # fails at the first part
        assert made.number("hush_snapshot_failures_total") == 1
        await made.steps(9)
        assert made.shard.marker.seals[1:] == [old] and made.shard.marker.seals[0].of
        assert await opened(stored, caplog) == (True, [b"9", b"9"])
        stored.store.away = False
        made.uploads._tables[made.shard.tp].retry = 0.0
        await made.uploads.round()  # goes on
        await made.steps(10)
        assert len(made.shard.marker.seals) == 1 and old not in made.shard.marker.seals
        assert await opened(stored, caplog) == (True, [b"10", b"10"])

    with_snapshot(stored, then)


def _aged(made: Made, seconds: float) -> CopyHead:
    newest = made.uploads._tables[made.shard.tp].newest
    assert newest is not None
    return CopyHead(newest.name, newest.seal, time.time() - seconds, newest.rows, newest.files)


def test_the_older_one_is_forgotten_in_time_though_no_newer_one_comes(stored: Bench) -> None:
    async def then(made: Made) -> None:
        (old,) = made.shard.marker.seals
        assert isinstance(stored.store, Store)
        made.uploads._interval = 3600.0
        made.uploads._tables[made.shard.tp].newest = _aged(made, 7300)
        stored.store.away = True
        await made.uploads.round()
        await made.steps(8)
        assert old not in made.shard.marker.seals

    with_snapshot(stored, then)


def test_one_of_which_compaction_has_left_no_marker_is_known_by_its_name(
    stored: Bench, caplog, monkeypatch
) -> None:
    sought = local_state.seek_marker

    async def compacted(*args: Any) -> Sought:
        return (await sought(*args))._replace(found=False, before=False)

    async def then(made: Made) -> None:
        await made.steps(12)
        monkeypatch.setattr(local_state, "seek_marker", compacted)
        assert await opened(stored, caplog) == (True, [b"12", b"12"])
        (seal,) = made.shard.marker.seals
        made.shard.seals = [TableSeal(seal.secret, "another-1")]
        await made.steps(13)
        assert await opened(stored, caplog) == (False, [b"13", b"13"])
        assert "nothing tells whether it is of this changelog's history" in caplog.text

    with_snapshot(stored, then)


async def _refused(bench: Bench, caplog, worker: str) -> str:
    caplog.clear()
    state = bench.shard(worker)._state
    await state.open()
    assert GOES_ON not in caplog.text
    state.close()
    return str(caplog.text)


def _position(made: Made, bench: Bench) -> int:
    keys = TableKeys(bytes(32), f"{bench.genesis}/{bench.name}-log/0")
    known = evidence.known_of(*keys.open_head((made.at / "head").read_bytes()).rows)
    assert known is not None and known.start is not None
    return known.start


def _trim(bench: Bench, offset: int) -> None:
    """Delete what lies below an offset of the changelog."""
    client = AdminClient({"bootstrap.servers": bench.kafka.bootstrap})
    place = TopicPartition(f"{bench.name}-log", 0, offset)
    for future in client.delete_records([place]).values():
        future.result()


def test_one_that_lies_before_the_changelogs_begin_is_refused(stored: Bench, caplog) -> None:
    async def then(made: Made) -> None:
        await made.steps(12)
        _trim(stored, _position(made, stored) + 4)
        assert "the changelog begins after it" in await _refused(stored, caplog, "two")

    with_snapshot(stored, then)


def test_one_that_is_older_than_deletions_are_kept_is_refused(
    stored: Bench, caplog, monkeypatch
) -> None:
    async def then(made: Made) -> None:
        monkeypatch.setattr(evidence, "STALE_SECONDS", -1)
        assert await opened(stored, caplog) == (False, [b"7", b"7"])
        assert "older than the changelog keeps deletions" in caplog.text

    with_snapshot(stored, then)


def test_one_of_another_table_or_deployment_is_refused(stored: Bench, caplog) -> None:
    async def then(made: Made) -> None:
        other = made.at.parent / "1"
        made.at.rename(other)
        assert await opened(stored, caplog) == (False, [b"7", b"7"])  # there is none
        other.rename(made.at)
        place = f"{stored.genesis}/{stored.name}-log/1"
        keys = TableKeys(bytes(32), place)
        head = (made.at / "head").read_bytes()
        own = TableKeys(bytes(32), place.replace("/1", "/0")).open_head(head)
        (made.at / "head").write_bytes(keys.seal_head(own))
        assert await opened(stored, caplog) == (False, [b"7", b"7"])
        assert "its head is of another table" in caplog.text

    with_snapshot(stored, then)


def test_one_that_was_changed_or_is_not_whole_is_refused(stored: Bench, caplog) -> None:
    async def then(made: Made) -> None:
        part = sorted(made.at.rglob("0*"))[1]
        data = bytearray(part.read_bytes())
        data[0] ^= 1
        part.write_bytes(bytes(data))
        assert await opened(stored, caplog) == (False, [b"7", b"7"])
        assert "its snapshot is not used: a part was changed" in caplog.text
        part.unlink()
        assert await opened(stored, caplog) == (False, [b"7", b"7"])
        assert "its snapshot is not used: a part is missing" in caplog.text
        assert list((stored.folder / "two" / "snapshots").iterdir()) == []

    with_snapshot(stored, then)


def test_one_whose_table_is_not_what_its_head_says_is_refused(stored: Bench, caplog) -> None:
    """A worker that was wrong has made it: nobody else can."""

    async def then(made: Made) -> None:
        place = f"{stored.genesis}/{stored.name}-log/0"
        keys = TableKeys(bytes(32), place)
        own = keys.open_head((made.at / "head").read_bytes())
        copy = made.bench.copies("three").table(f"{stored.name}-log", 0)  # type: ignore[union-attr]
        (seal,) = made.shard.marker.seals
        upload = copy.upload(made.at, seal.secret, own.made, own.rows)  # objects are no table
        while not upload.done:
            await upload.part()
        await upload.end()
        assert await opened(stored, caplog) == (False, [b"7", b"7"])
        assert "its snapshot cannot be opened" in caplog.text or "another table" in caplog.text

    with_snapshot(stored, then)


def test_one_that_knows_more_than_the_changelog_is_evidence(stored: Bench, caplog) -> None:
    async def then(made: Made) -> None:
        keys = TableKeys(bytes(32), f"{stored.genesis}/{stored.name}-log/0")
        own = keys.open_head((made.at / "head").read_bytes())
        assert own.rows[0] is not None
        ahead = b'{"offset": 100000, "time": %f}' % time.time()
        rows = [ahead, *own.rows[1:]]
        forged = CopyHead(own.name, own.seal, own.made, rows, own.files)
        (made.at / "head").write_bytes(keys.seal_head(forged))
        state = stored.shard("two")._state
        with pytest.raises(RewoundError, match="ends before"):
            await state.open()
        state.close()

    with_snapshot(stored, then)


def test_one_that_another_owner_has_written_is_not_replaced_by_an_older_one(stored: Bench) -> None:
    async def then(made: Made) -> None:
        keys = TableKeys(bytes(32), f"{stored.genesis}/{stored.name}-log/0")
        await made.uploads.round()
        await made.steps(8)
        own = keys.open_head((made.at / "head").read_bytes())
        rows = [b'{"offset": 100000, "time": %f}' % time.time(), *own.rows[1:]]
        newer = keys.seal_head(CopyHead(own.name, own.seal, own.made, rows, own.files))
        (made.at / "head").write_bytes(newer)
        await made.uploads.round()
        assert (made.at / "head").read_bytes() == newer

    with_snapshot(stored, then)


def test_a_damaged_table_goes_on_from_a_snapshot_too(stored: Bench, caplog) -> None:
    async def then(made: Made) -> None:
        await made.shard.close()
        for file in stored.path().glob("*.sst"):
            file.write_bytes(b"nothing")
        caplog.set_level("INFO")
        again = stored.shard()
        await again.open()
        assert again._state.table.get_many([b"n", UNIT]) == [b"7", b"7"]
        assert "set aside" in caplog.text and GOES_ON in caplog.text
        await again.close()

    with_snapshot(stored, then)


def test_a_worker_that_stops_writes_what_its_tables_hold(stored: Bench, caplog) -> None:
    async def then(made: Made) -> None:
        await made.steps(11)
        made.uploads.leave()
        await made.uploads.last()  # it is not closed: nothing is read
        before = _position(made, stored)
        await made.shard.close()
        made.shards.clear()
        await made.uploads.last()
        assert _position(made, stored) > before
        assert await opened(stored, caplog) == (True, [b"11", b"11"])

    with_snapshot(stored, then)


def test_a_store_that_hangs_does_not_keep_a_worker_that_stops(stored: Bench, monkeypatch) -> None:
    async def hangs(*_: object) -> None:
        await asyncio.Event().wait()

    async def then(made: Made) -> None:
        monkeypatch.setattr(uploads, "LAST_SECONDS", 0.2)
        monkeypatch.setattr(stored.store, "put", hangs)
        await made.steps(11)
        made.uploads.leave()
        await made.shard.close()
        began = time.monotonic()
        await made.uploads.last()
        assert time.monotonic() - began < 10

    with_snapshot(stored, then)


def test_the_task_makes_snapshots_by_itself_and_leaves_no_folder(stored: Bench) -> None:
    async def then(made: Made) -> None:
        made.uploads._interval = 0.5
        task = asyncio.create_task(made.uploads.run())
        (old,) = made.shard.marker.seals

        keys = TableKeys(bytes(32), f"{stored.genesis}/{stored.name}-log/0")
        before = fingerprint_of(old.secret)

        def another() -> bool:
            made.shard.deliver(interval(made.shard.wanted, made.shard.wanted + 1))
            return keys.open_head((made.at / "head").read_bytes()).seal != before

        await until(another)
        task.cancel()
        made.shards.clear()
        await made.uploads.round()
        assert list((stored.folder / "one" / "snapshots").iterdir()) == []

    with_snapshot(stored, then)

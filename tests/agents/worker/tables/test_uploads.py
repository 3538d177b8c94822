"""Snapshots that a worker makes, on a real broker: when, in which order, and at its end."""

from __future__ import annotations

import asyncio
import time

from hushstream.agents.snapshots.sealed import CopyHead, TableKeys, fingerprint_of
from hushstream.agents.worker.tables import uploads

from ..bench import Bench, applied, interval, until
from .stored import Made, Store, opened, with_snapshot


def _aged(made: Made, seconds: float) -> CopyHead:
    newest = made.uploads._tables[made.shard.tp].newest
    assert newest is not None
    return CopyHead(newest.name, newest.seal, time.time() - seconds, newest.rows, newest.files)


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
        assert len(shard.seals) == 1  # no seal is wanted
        puts = stored.store.puts  # type: ignore[union-attr]
        made.uploads._interval = 0.0
        made.uploads._tables[shard.tp].at = shard.marker.transaction
        await made.uploads.round()
        assert (len(shard.seals), stored.store.puts) == (1, puts)  # type: ignore[union-attr]
        await shard.close()

    asyncio.run(run())


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
        await made.uploads.round()  # continues
        await made.steps(10)
        assert len(made.shard.marker.seals) == 1 and old not in made.shard.marker.seals
        assert await opened(stored, caplog) == (True, [b"10", b"10"])

    with_snapshot(stored, then)


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


def test_a_worker_that_stops_writes_what_its_tables_hold(stored: Bench, caplog) -> None:
    async def then(made: Made) -> None:
        await made.steps(11)
        made.uploads.leave()
        await made.uploads.last()  # the table is not closed, so nothing is read
        before = made.position
        await made.shard.close()
        made.shards.clear()
        await made.uploads.last()
        assert made.position > before
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

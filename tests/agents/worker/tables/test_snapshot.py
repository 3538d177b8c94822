"""Snapshots on a real broker: an empty disk continues from one, unless it must not be used."""

from __future__ import annotations

import shutil
import time
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from hushstream.agents.kafka.markers import Sought
from hushstream.agents.snapshots.sealed import CopyHead, TableKeys
from hushstream.agents.worker.tables import evidence, local_state
from hushstream.errors import RewoundError
from hushstream.topics.records import TableSeal

from ..bench import UNIT, Bench
from .stored import GOES_ON, Made, opened, with_snapshot


async def _refused(bench: Bench, caplog, worker: str) -> str:
    caplog.clear()
    state = bench.shard(worker)._state
    await state.open()
    assert GOES_ON not in caplog.text
    state.close()
    return str(caplog.text)


def _trim(bench: Bench, offset: int) -> None:
    """Delete the changelog's records below an offset."""
    client = AdminClient({"bootstrap.servers": bench.kafka.bootstrap})
    place = TopicPartition(f"{bench.name}-log", 0, offset)
    for future in client.delete_records([place]).values():
        future.result()


def test_an_empty_disk_goes_on_from_a_snapshot(stored: Bench, caplog) -> None:
    async def then(made: Made) -> None:
        assert made.shard.marker.seals[0].of and len(made.shard.marker.seals) == 1
        assert made.number("hush_snapshot_timestamp_seconds") == pytest.approx(time.time(), abs=60)
        assert len(list(made.at.rglob("0*"))) > 2
        assert await opened(stored, caplog) == (True, [b"7", b"7"])
        # Another worker continues with the shard and its snapshots.
        await made.shard.close()
        other = stored.shard("two")
        await other.open()
        again = Made(stored, other, 3600)
        await again.steps(9)
        before = again.shard.marker.seals
        assert before == made.shard.marker.seals
        await again.uploads.round()  # it finds the snapshot in force
        assert again.number("hush_snapshot_timestamp_seconds") > 0
        await again.steps(10)
        assert again.shard.marker.seals == before
        await other.close()

    with_snapshot(stored, then)


def test_a_snapshot_whose_key_is_forgotten_is_refused(stored: Bench, caplog, tmp_path) -> None:
    async def then(made: Made) -> None:
        shutil.copytree(made.at, tmp_path / "yesterday")
        (old,) = made.shard.marker.seals
        await made.snapshot()
        (new,) = made.shard.marker.seals
        assert old != new
        assert await opened(stored, caplog) == (True, [b"9", b"9"])
        shutil.rmtree(made.at)  # someone has kept a version of each object
        shutil.copytree(tmp_path / "yesterday", made.at)
        assert await opened(stored, caplog) == (False, [b"9", b"9"])
        assert "its key is forgotten" in caplog.text

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


def test_one_that_lies_before_the_changelogs_begin_is_refused(stored: Bench, caplog) -> None:
    async def then(made: Made) -> None:
        await made.steps(12)
        _trim(stored, made.position + 4)
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
        assert await opened(stored, caplog) == (False, [b"7", b"7"])  # there is no snapshot
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
    """Only a faulty worker can make such a snapshot."""

    async def then(made: Made) -> None:
        place = f"{stored.genesis}/{stored.name}-log/0"
        keys = TableKeys(bytes(32), place)
        own = keys.open_head((made.at / "head").read_bytes())
        copy = made.bench.copies("three").table(f"{stored.name}-log", 0)  # type: ignore[union-attr]
        (seal,) = made.shard.marker.seals
        upload = copy.upload(made.at, seal.secret, own.made, own.rows)  # these objects are no table
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

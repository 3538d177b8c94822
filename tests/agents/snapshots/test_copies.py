"""Snapshots in transit: an interrupted copy resumes, and half a snapshot is never used."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from hushstream.agents.snapshots import copies, sealed
from hushstream.agents.snapshots.copies import Copies, delete_all, forget
from hushstream.agents.snapshots.objects import Objects
from hushstream.agents.snapshots.sealed import CopyHead
from hushstream.errors import SnapshotError

SEAL = "a" * 64


@pytest.fixture(autouse=True)
def small(monkeypatch) -> None:
    """Parts of ten bytes."""
    for module in (copies, sealed):
        monkeypatch.setattr(module, "PART", 10)


class Store(Objects):
    """A folder that may refuse writes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"file://{folder}")
        self.folder = folder
        self.refused: set[str] = set()
        self.written: list[str] = []

    async def put(self, name: str, data: bytes) -> None:
        if any(name.endswith(one) for one in self.refused):
            raise SnapshotError("an object cannot be written (Refused)")
        self.written.append(name.rpartition("/")[2])
        await super().put(name, data)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A folder with the files of a RocksDB table."""
    folder = tmp_path / "table"
    folder.mkdir()
    files = {
        "000001.sst": b"0123456789abcdefghijk", "000002.log": b"", "CURRENT": b"M\n",
        "LOCK": b"", "LOG": b"said", "LOG.old.1": b"said", "units.sst": b"half",
    }  # fmt: skip
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def made(tmp_path: Path, store: Objects, secret: bytes = bytes(32)) -> Copies:
    return Copies(store, secret, "g", tmp_path / "coming")


async def sent(copy: copies.TableCopies, table: Path, seal: str = SEAL) -> CopyHead:
    upload = copy.upload(table, seal, 1.0, [b"row"])
    while not upload.done:
        await upload.part()
    await upload.end()
    return upload.head


def test_a_table_comes_back_as_it_was(tmp_path: Path, store: Store, table: Path) -> None:
    async def run() -> None:
        copy = made(tmp_path, store).table("log", 0)
        assert await copy.head() is None
        head = await sent(copy, table)
        assert await copy.head() == head and head.rows == [b"row"]
        assert store.written == ["000000", "000001", "000002", "head"]
        moved: list[None] = []
        folder = await copy.fetch(head, SEAL, lambda: moved.append(None))
        found = {one.name: one.read_bytes() for one in folder.iterdir()}
        kept = ("000001.sst", "000002.log", "CURRENT")
        assert found == {name: (table / name).read_bytes() for name in kept}
        assert len(moved) == 1 and folder.stat().st_mode & 0o77 == 0
        forget(folder)
        assert not folder.parent.exists()

    asyncio.run(run())


def test_an_upload_goes_on_with_the_part_that_failed(tmp_path, store: Store, table: Path) -> None:
    async def run() -> None:
        copy = made(tmp_path, store).table("log", 0)
        upload = copy.upload(table, SEAL, 1.0, [])
        assert await upload.part() == 10 + sealed.TAG
        store.refused = {"000001"}
        for _ in range(2):
            with pytest.raises(SnapshotError):
                await upload.part()
        assert not upload.done and await copy.head() is None
        store.refused = set()
        while not upload.done:
            await upload.part()
        await upload.end()
        assert store.written == ["000000", "000001", "000002", "head"]
        await copy.fetch(upload.head, SEAL, lambda: None)

    asyncio.run(run())


def test_the_newest_snapshot_alone_is_kept(tmp_path: Path, store: Store, table: Path) -> None:
    async def run() -> None:
        here = made(tmp_path, store)
        copy, other = here.table("log", 0), here.table("log", 1)
        first, beside = await sent(copy, table), await sent(other, table)
        upload = copy.upload(table, SEAL, 1.0, [])
        await upload.part()  # here the process is killed
        second = await sent(copy, table)
        await copy.keep(second)
        names = await store.names("g/log/0")
        assert len(names) == 4 and all(second.name in n or n.endswith("head") for n in names)
        assert await copy.head() == second != first
        await copy.fetch(second, SEAL, lambda: None)
        await copy.keep(None)
        assert await store.names("g/log/0") == [] and await other.head() == beside

    asyncio.run(run())


def _broken(name: str, head: Path, parts: list[Path]) -> None:
    """Damage a snapshot's objects as a store, or a person with access to it, could."""
    if name == "missing":
        parts[1].unlink()
    elif name == "cut":
        parts[2].write_bytes(parts[2].read_bytes()[:-1])
    elif name == "empty":
        parts[0].write_bytes(b"")
    elif name == "changed":
        data = bytearray(parts[1].read_bytes())
        data[3] ^= 1
        parts[1].write_bytes(data)
    elif name == "swapped":
        one, other = parts[0].read_bytes(), parts[1].read_bytes()
        parts[0].write_bytes(other)
        parts[1].write_bytes(one)
    elif name == "long":
        parts[0].write_bytes(parts[0].read_bytes() + b"x")


@pytest.mark.parametrize("how", ["missing", "cut", "empty", "changed", "swapped", "long"])
def test_a_broken_snapshot_is_refused_and_nothing_of_it_stays(
    tmp_path: Path, store: Store, table: Path, how: str
) -> None:
    async def run() -> None:
        copy = made(tmp_path, store).table("log", 0)
        head = await sent(copy, table)
        folder = store.folder / "g" / "log" / "0"
        _broken(how, folder / "head", sorted((folder / head.name).iterdir()))
        with pytest.raises(SnapshotError):
            await copy.fetch(head, SEAL, lambda: None)
        assert list((tmp_path / "coming").iterdir()) == []

    asyncio.run(run())


def test_another_tables_snapshot_is_refused(tmp_path: Path, store: Store, table: Path) -> None:
    async def run() -> None:
        here = made(tmp_path, store)
        head = await sent(here.table("log", 1), table)
        folder = store.folder / "g" / "log"
        os.rename(folder / "1", folder / "0")
        with pytest.raises(SnapshotError, match="another table"):
            await here.table("log", 0).head()
        with pytest.raises(SnapshotError, match="was changed"):
            await here.table("log", 0).fetch(head, SEAL, lambda: None)

    asyncio.run(run())


def test_a_disk_without_room_is_left_alone(tmp_path, store: Store, table: Path, monkeypatch):
    async def run() -> None:
        copy = made(tmp_path, store).table("log", 0)
        head = await sent(copy, table)
        monkeypatch.setattr(copies, "SPARE", 1 << 60)
        with pytest.raises(SnapshotError, match="no room"):
            await copy.fetch(head, SEAL, lambda: None)
        assert list((tmp_path / "coming").iterdir()) == []

    asyncio.run(run())


def test_files_that_change_meanwhile_end_an_upload(tmp_path, store: Store, table: Path) -> None:
    async def run() -> None:
        copy = made(tmp_path, store).table("log", 0)
        upload = copy.upload(table, SEAL, 1.0, [])
        await upload.part()
        (table / "000001.sst").write_bytes(b"short")
        with pytest.raises(SnapshotError, match="have changed"):
            await upload.part()
        (table / "000001.sst").unlink()
        with pytest.raises(SnapshotError, match="cannot be read"):
            await upload.part()

    asyncio.run(run())


def test_what_a_kill_has_left_on_the_disk_is_dropped(tmp_path: Path, store: Store) -> None:
    left = made(tmp_path, store).fresh()
    left.mkdir()
    assert left.is_dir()
    made(tmp_path, store)
    assert not left.exists()


def test_all_snapshots_of_a_deployment_go_and_no_others(tmp_path, store: Store, table: Path):
    async def run() -> list[str]:
        for secret, place in ((bytes(32), "g"), (bytes(32), "other")):
            for number in range(2):
                copy = Copies(store, secret, place, tmp_path / "coming").table("log", number)
                await copy.keep(await sent(copy, table))
        objects = await store.names("g")
        assert len(objects) > 4 and await delete_all(store, "g") == len(objects)
        assert await delete_all(store, "g") == 0
        return await store.names("")

    left = asyncio.run(run())
    assert left and all(name.startswith("other/log/") for name in left)


def test_heads_go_first_so_that_none_names_what_is_gone(tmp_path, store: Store, table: Path):
    gone: list[str] = []

    async def refused(name: str) -> None:
        gone.append(name)
        if len(gone) > 1:
            raise SnapshotError("an object cannot be deleted (Refused)")

    async def run() -> None:
        await sent(made(tmp_path, store).table("log", 0), table)
        store.delete = refused  # type: ignore[method-assign]
        await delete_all(store, "g")

    with pytest.raises(SnapshotError):
        asyncio.run(run())
    assert gone[0] == "g/log/0/head"

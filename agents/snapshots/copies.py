"""Snapshots of one deployment's tables: upload to the store, and fetch to a disk.

A snapshot counts once its head is stored, which is written last and replaces the previous one. So a
process that is killed may leave parts without a head, which the next snapshot of the table deletes.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from ...errors import SnapshotError
from .objects import Objects
from .sealed import HEAD_BYTES, PART, TAG, CopyHead, TableKeys, fingerprint_of

HEAD = "head"  # object of a table beside the folders of parts
HEAD_SECONDS = 10.0  # for a head: an opening shard waits for it, although it can open without
FETCHED = 4  # parts in memory at once
SPARE = 1 << 28  # bytes of disk space that a snapshot leaves free
_OWN = ("LOCK", "LOG", "units.sst")  # first letters of files that RocksDB recreates


class Copies:
    """Snapshots of the tables of a deployment.

    Args:
        secret: the deployment's key.
        folder: folder on the disk of the tables; emptied, since its files are left from a kill.
    """

    def __init__(self, objects: Objects, secret: bytes, genesis: str, folder: Path) -> None:
        self._objects, self._secret, self._genesis = objects, secret, genesis
        self._folder = folder
        shutil.rmtree(folder, ignore_errors=True)

    def table(self, changelog: str, partition: int) -> TableCopies:
        """Choose the table of a changelog's partition."""
        place = f"{self._genesis}/{changelog}/{partition}"
        return TableCopies(self._objects, TableKeys(self._secret, place), place, self.fresh)

    def fresh(self) -> Path:
        """Name a new folder on the disk of the tables; it does not exist yet."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(dir=self._folder)) / "table"


async def names_of(objects: Objects, genesis: str) -> list[str]:
    """Names of all objects that `delete_all` would delete; raises `SnapshotError`."""
    return sorted(await objects.names(genesis))


async def delete_all(objects: Objects, genesis: str) -> int:
    """Delete the snapshots of all tables of one deployment; return the number of objects.

    Raises:
        SnapshotError: the store refuses; the rest can be deleted by another call.
    """
    names = await objects.names(genesis)
    for name in sorted(names, key=lambda name: not name.endswith(f"/{HEAD}")):
        await objects.delete(name)  # heads first, so that no head names a missing part
    return len(names)


class TableCopies:
    """Snapshots of one table; the newest counts."""

    def __init__(
        self, objects: Objects, keys: TableKeys, place: str, fresh: Callable[[], Path]
    ) -> None:
        self._objects, self._keys, self._place = objects, keys, place
        self.fresh = fresh

    async def head(self) -> CopyHead | None:
        """Read the head of the newest snapshot; None: there is none.

        Raises:
            SnapshotError: it cannot be read, or is not of this table.
        """
        data = await self._objects.get(f"{self._place}/{HEAD}", HEAD_BYTES, HEAD_SECONDS)
        return None if data is None else self._keys.open_head(data)

    async def fetch(self, head: CopyHead, seal: str, moved: Callable[[], None]) -> Path:
        """Bring the files of a snapshot to the disk; return their folder.

        Args:
            moved: called after each list of parts.

        Raises:
            SnapshotError: a part is missing or changed, or there is no room.
        """
        folder = self.fresh()
        try:
            folder.mkdir(mode=0o700)
            if shutil.disk_usage(folder).free < head.size + SPARE:
                raise SnapshotError("the disk has no room for it")
            files = _Files(folder, head.files)
            for begun in range(0, head.parts, FETCHED):
                numbers = range(begun, min(begun + FETCHED, head.parts))
                data = await asyncio.gather(*(self._part(head, number) for number in numbers))
                await asyncio.to_thread(self._put, files, head, seal, numbers, data)
                moved()
            await asyncio.to_thread(files.end)
        except OSError as error:
            forget(folder)
            raise SnapshotError(f"it cannot be written here ({error.strerror})") from None
        except BaseException:
            forget(folder)
            raise
        return folder

    async def _part(self, head: CopyHead, number: int) -> bytes:
        data = await self._objects.get(self._named(head.name, number), PART + TAG)
        if data is None:
            raise SnapshotError("a part is missing")
        return data

    def _put(
        self,
        files: _Files,
        head: CopyHead,
        seal: str,
        numbers: Sequence[int],
        data: Sequence[bytes],
    ) -> None:
        key = self._keys.parts(seal, head.name)
        for number, part in zip(numbers, data, strict=True):
            files.write(key.open(number, part, head.length(number)))

    def upload(self, folder: Path, seal: str, made: float, rows: list[bytes | None]) -> Upload:
        """Begin an upload of the files in a folder, which must not change meanwhile.

        Args:
            made: time at which they were copied, seconds since 1970.
        """
        names = (one.name for one in folder.iterdir() if one.is_file())
        kept = sorted(name for name in names if not name.startswith(_OWN))
        files = [(name, (folder / name).stat().st_size) for name in kept]
        head = CopyHead(secrets.token_hex(8), fingerprint_of(seal), made, rows, files)
        return Upload(self._objects, self._keys, self._place, folder, seal, head)

    async def keep(self, head: CopyHead | None) -> None:
        """Delete all objects of the table except one snapshot; None: delete all.

        Raises:
            SnapshotError: the store refuses.
        """
        kept = () if head is None else (f"{self._place}/{HEAD}", f"{self._place}/{head.name}/")
        for name in await self._objects.names(self._place):
            if head is None or not name.startswith(kept):
                await self._objects.delete(name)

    def _named(self, name: str, number: int) -> str:
        return f"{self._place}/{name}/{number:06d}"


class Upload:
    """A snapshot being uploaded; after an error, it continues with the failed part."""

    def __init__(
        self, objects: Objects, keys: TableKeys, place: str, folder: Path, seal: str, head: CopyHead
    ) -> None:
        self._objects, self._keys, self._place, self._folder = objects, keys, place, folder
        self._key = keys.parts(seal, head.name)
        self.head = head
        self._next = 0

    @property
    def done(self) -> bool:
        """Whether all parts are there."""
        return self._next == self.head.parts

    async def part(self) -> int:
        """Write the next part; return its bytes.

        Raises:
            SnapshotError: the store does not take it, or the files cannot be read.
        """
        number = self._next
        data = await asyncio.to_thread(self._sealed, number)
        await self._objects.put(f"{self._place}/{self.head.name}/{number:06d}", data)
        self._next += 1
        return len(data)

    async def end(self) -> None:
        """Write the head, so that the snapshot counts.

        Raises:
            SnapshotError: the store does not take its head.
        """
        assert self.done
        await self._objects.put(f"{self._place}/{HEAD}", self._keys.seal_head(self.head))

    def _sealed(self, number: int) -> bytes:
        wanted, at, found = self.head.length(number), number * PART, list[bytes]()
        try:
            for name, size in self.head.files:
                if (length := min(size - at, wanted)) > 0:
                    with (self._folder / name).open("rb") as file:
                        file.seek(at)
                        found.append(file.read(length))
                    if len(found[-1]) < length:
                        raise SnapshotError("a table's files have changed")
                    wanted -= length
                at = max(at - size, 0)
        except OSError as error:
            raise SnapshotError(f"a table's files cannot be read ({error.strerror})") from None
        return self._key.seal(number, b"".join(found))


class _Files:
    """Files that are written one after the other."""

    def __init__(self, folder: Path, files: Sequence[tuple[str, int]]) -> None:
        self._folder = folder
        self._left = list(files)

    def write(self, data: bytes) -> None:
        """Take the next bytes of all files."""
        while data:
            self.end()
            name, size = self._left[0]
            with (self._folder / name).open("ab") as file:
                file.write(data[:size])
            self._left[0] = (name, size - min(size, len(data)))
            data = data[size:]

    def end(self) -> None:
        """Advance to the next incomplete file, creating empty ones."""
        while self._left and self._left[0][1] == 0:
            (self._folder / self._left.pop(0)[0]).touch()


def forget(folder: Path) -> None:
    """Delete a folder that `TableCopies.fresh` named."""
    with contextlib.suppress(OSError):
        shutil.rmtree(folder.parent)

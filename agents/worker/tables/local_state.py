"""A shard's local table: restored from its changelog, and always closed again."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition
from prometheus_client import Gauge

from ....errors import DamagedError, EngineError, SnapshotError, TrimmedError
from ....formats.events.raw import RawBatch
from ....topics.records import Marker, decode_marker
from ...kafka.clients import check_reached, heard, read_span, read_to_end
from ...kafka.markers import Sought, continues, hanging_marker, seek_marker
from ...snapshots.copies import Copies, forget
from ...state.folders import discard, set_aside
from ...state.layout import MARKER, POSITION, SEEN
from ...state.rocks import RocksStore, read_rows
from ...state.rows.columns import NO_ROWS, RowColumns
from ...state.store import Changes
from ..shared import Shared
from .evidence import TOLD, Known, check_forward, check_same, known_in, known_of, seen_row
from .restoring import Restoring, apply, position_row
from .snapshot import fetched

log = logging.getLogger("hushstream.state")

DAMAGES = 3  # most damages of one table in one process
FRESH_SECONDS = 3600.0  # after which a copy without new rows notes again that it is up to date


class LocalState:
    """The table of one shard in RocksDB.

    Args:
        hold: rows kept in memory before they are written to disk.

    Attributes:
        name: name of the table in metrics and messages.
        place: the partition of its changelog.
        path: its folder.
        moved: called after each list of records from the changelog.
        ready: whether the table is open and restored.
    """

    def __init__(
        self, shared: Shared, changelog: str, partition: int, hold: int, moved: Callable[[], None]
    ) -> None:
        self._shared = shared
        self._changelog = changelog
        self._partition = partition
        self.name = f"{changelog}-{partition}"
        self.place = TopicPartition(changelog, partition)
        self._hold = hold
        self.moved = moved
        self.path = shared.data_dir / shared.genesis / changelog / str(partition)
        self._store: RocksStore | None = None
        self._guard = threading.Lock()  # so that a table is not closed while a thread writes it
        self.ready = False
        self._damages = 0
        self.end = 0  # end of the changelog when it was read
        self._unseen = 0  # rows since the position was last written to disk

    @property
    def table(self) -> RocksStore:
        """The restored table.

        Raises:
            EngineError: it is closed.
        """
        if self._store is None or not self.ready:
            raise EngineError(f"the state {self.name} is closed")
        return self._store

    @property
    def position(self) -> int:
        """Offset of the changelog before which everything is in the table; 0 before a step."""
        (row,) = self.table.get_many([POSITION])
        return 0 if row is None else int(json.loads(row)["offset"])

    async def open(self) -> Marker | None:
        """Bring the table up to its changelog's end; return the last marker, None before a step.

        A table that a standby has left open continues from its position.

        Raises:
            RewoundError: the table is ahead of its changelog, or from another history.
        """
        if self.ready:
            log.info("%s: goes on from the copy that stood by here", self.name)
        self.ready = False
        try:
            store = self._store or self._opened()
            known = self._known(store)
        except DamagedError as error:
            self.set_aside(error)
            store, known = self._opened(), None
        same = known is not None and check_same(self.name, await self._sought(known))
        # Compaction drops deletions after a while. An older table would keep rows that were deleted
        # since, and a unit's deleted row would come back to life, so it is restored from scratch.
        # So is a table whose last transaction is gone from the changelog: nothing proves that it is
        # of this history.
        start = known.start if known is not None and same else None
        if start is None and not store.empty:
            store = self._anew()
        if start is None and self._shared.copies is not None:
            store, start = await self._snapshot(store, self._shared.copies)
        try:
            await self._read(store, start)
        except DamagedError as error:
            self.set_aside(error)
            store = self._opened()
            await self._read(store, None)
        except TrimmedError:  # compacted or trimmed beyond our position: begin again
            store = self._anew()
            await self._read(store, None)
        self.ready = True
        return self._marker()

    async def follow(self, client: AIOKafkaConsumer, end: int, thread: Executor) -> None:
        """Bring the restored table up to an offset of its changelog.

        The changelog may have been rewound and have grown beyond the table since the last call. Its
        rows would cover the evidence then, so the table is closed, and `open` decides what to do.

        Args:
            client: consumer of committed records, used for nothing else.
            thread: executor that writes the rows.

        Raises:
            DamagedError: the table is damaged.
        """
        loop, remaining = asyncio.get_running_loop(), self._remaining
        if not await continues(client, self.place, self.position, self._marker()):
            log.warning("%s: its copy is opened again (its last transaction is gone)", self.name)
            await loop.run_in_executor(thread, self.close)
            return
        client.assign([self.place])
        try:
            lists = read_span(client, self.place, self.position, end, columns=True)
            async for records, position in lists:
                await loop.run_in_executor(thread, self._take, records, position)
                remaining.set(max(end - position, 0))
                self.moved()
        except DamagedError:
            raise
        except EngineError as error:  # trimmed beyond the position: `open` decides what to do
            log.warning("%s: its copy is opened again (%s)", self.name, error)
            await loop.run_in_executor(thread, self.close)

    def _marker(self) -> Marker | None:
        (row,) = self.table.get_many([MARKER])
        return None if row is None else decode_marker(row)

    @property
    def old(self) -> bool:
        """Whether an open table noted its position too long ago; see `known_of`."""
        (row,) = self.table.get_many([POSITION])
        return row is not None and time.time() - json.loads(row)["time"] > FRESH_SECONDS

    def renew(self) -> None:
        """Note that a copy is up to date now, though there is nothing to write."""
        self._take((), self.position)

    def _take(self, records: Sequence[Any], position: int) -> None:
        apply(self.table, records, position)
        if len(records) == 0:  # only transaction markers, or nothing
            self.table.write({POSITION: position_row(position)})
        self._unseen += len(records)
        if self._unseen > self._hold:  # a copy is evidence too, even after a kill
            self._see()

    @property
    def _remaining(self) -> Gauge:
        return self._shared.metrics.recovery.labels(store=self.name)

    def forget(self) -> None:
        """End the series of a copy that has left this worker."""
        self._shared.metrics.forget(self.name, self.name, "", ())

    async def _sought(self, known: Known) -> Sought:
        """Check that the changelog reaches the table's position; `check_same` compares histories.

        Raises:
            RewoundError: it ends before that.
        """
        kafka, topic, number = self._shared.kafka, self._changelog, self._partition
        await check_reached(kafka, topic, number, known.position)
        sought = await seek_marker(kafka, topic, number, known.position, known.marker)
        if not sought.aborted:
            check_forward(self.name, known.marker, sought.last)
        return sought

    async def _snapshot(self, store: RocksStore, copies: Copies) -> tuple[RocksStore, int | None]:
        """Replace an empty table by the newest snapshot; return it and the offset to continue from.

        A snapshot is a former table on disk, so it is checked like one: it must not be too old, and
        it is evidence too. An unusable snapshot leaves the table empty.

        Raises:
            RewoundError: the snapshot is ahead of the changelog, or from another history.
        """
        table = copies.table(self._changelog, self._partition)
        try:
            found = await fetched(table, self._shared, self.place, self._sought, self.moved)
        except SnapshotError as error:
            log.warning("%s: its snapshot is not used: %s", self.name, error)
            self._shared.metrics.snapshot_failures.inc()
            return store, None
        if found is None:
            return store, None
        head, folder = found
        try:
            self.close()
            discard(self.path)
            folder.rename(self.path)
            store = self._opened()
            known = self._known(store)
            if known is not None and known == known_of(*head.rows):
                log.info("%s: goes on from its snapshot", self.name)
                return store, known.start
            log.warning("%s: its snapshot holds another table than its head says", self.name)
        except (OSError, EngineError) as error:  # say, another version of the library wrote it
            log.warning("%s: its snapshot cannot be opened: %s", self.name, error)
            self._dropped()
        finally:
            forget(folder)
        self._shared.metrics.snapshot_failures.inc()
        return self._anew(), None

    def copy(self, folder: Path) -> list[bytes | None]:
        """Copy the table on disk to a new folder beside it; return the rows of `TOLD`.

        Raises:
            DamagedError: the table is damaged.
            EngineError: it is closed, or cannot be copied.
        """
        self.table.copy(folder)
        return read_rows(folder, TOLD)

    async def hanging(self) -> tuple[str, bool]:
        """Name the transaction that hangs in the changelog; return also whether the table has it.

        The table is written after the answer to a commit, so a table that has the transaction
        proves that its commit was answered. The table must be closed, unless a standby has left it
        open.
        """
        marker = await hanging_marker(self._shared.kafka, self._changelog, self._partition)
        if marker is None:
            return "", False
        known = self._told()
        return marker.transaction, known is not None and known.marker == marker

    def _told(self) -> Known | None:
        if self._store is None:
            return known_in(self.path)
        try:
            return self._known(self._store)
        except DamagedError:  # `open` meets it again
            return None

    def write(self, changes: Changes, reached: int, units: RowColumns = NO_ROWS) -> None:
        """Write the rows of a committed step, up to ``reached`` in the changelog, in one batch."""
        self.table.write({**changes, POSITION: position_row(reached)}, units)
        self._unseen += len(changes) + len(units.keys)
        if self._unseen > self._hold:
            self._see()

    def _see(self) -> None:
        """Write the table's position to disk, although its newest rows may stay in memory for long.

        It proves which commits were answered, and that a cluster was rewound.
        """
        self._unseen = 0
        if self._hold:  # else all rows are on disk
            self.table.note(SEEN, seen_row(*self.table.get_many([POSITION, MARKER])))

    def size(self) -> int:
        """Measure the bytes on disk, after writing held rows if they are many; 0 unless open."""
        if self._store is None or not self.ready:
            return 0
        self._store.settle()
        return self._store.size()

    def close(self, soon: bool = False) -> None:
        """Close the table and its folder, even if `open` was cancelled.

        What a close writes may meet damage that no step has met; the table is set aside then.

        Args:
            soon: whether to leave a large table on disk as it is; the next start brings it up to
                date.
        """
        try:
            self._close(soon)
        except DamagedError as error:
            self.set_aside(error)

    def _close(self, soon: bool) -> None:
        with self._guard:
            if self._store is not None:
                try:
                    if self.ready:
                        self._see()
                except BaseException:
                    self._store.abandon()
                    raise
                self._store.close(soon)
            self._store, self.ready = None, False

    def set_aside(self, error: DamagedError) -> None:
        """Put a damaged table out of the way; the next `open` restores it from its changelog.

        Raises:
            EngineError: this has happened too often, so the disk is probably failing.
        """
        self._damages += 1
        if self._damages > DAMAGES:
            raise EngineError(f"{error}, again and again: check the disk") from error
        self._dropped()
        other = set_aside(self.path)
        log.warning("%s; it is set aside as %s and restored from its changelog", error, other)

    def _opened(self) -> RocksStore:
        shared = self._shared
        self._store = RocksStore(
            self.path, shared.cache, shared.write_buffer_bytes, self._hold, shared.units
        )
        return self._store

    def _dropped(self) -> None:
        with self._guard:
            if self._store is not None:
                self._store.abandon()
            self._store, self.ready = None, False

    def _anew(self) -> RocksStore:
        self.close()
        discard(self.path)
        return self._opened()

    async def _read(self, store: RocksStore, start: int | None) -> None:
        remaining = self._remaining
        kafka, topic, number = self._shared.kafka, self._changelog, self._partition
        lists = read_to_end(kafka, topic, number, start, columns=True)
        told = Restoring(self.name)
        if start is None:
            store.gather()
        writing: asyncio.Future[None] | None = None  # in progress while more is fetched
        async for records, position, end in lists:
            if writing is not None:
                await writing
            writing = self._put(store, records, position)
            self.end = end
            remaining.set(max(end - position, 0))
            told.reached(position, end)
            self.moved()
        if writing is not None:
            await writing
        if start is None:
            for _ in store.gathered():
                self.moved()
                await asyncio.sleep(0)

    def _put(
        self, store: RocksStore, records: Sequence[Any], position: int
    ) -> asyncio.Future[None] | None:
        """Write what was read; many rows go to a thread, whose future is returned.

        Until the future is done, the table may only be closed.
        """
        if not isinstance(records, RawBatch):
            apply(store, records, position)
            return None
        pool, put = self._shared.executor, self._put_guarded
        writing = asyncio.get_running_loop().run_in_executor(pool, put, store, records, position)
        writing.add_done_callback(heard)  # the reader may have been cancelled
        return writing

    def _put_guarded(self, store: RocksStore, records: RawBatch, position: int) -> None:
        with self._guard:
            if self._store is store:  # otherwise it was closed meanwhile
                apply(store, records, position)

    def _known(self, store: RocksStore) -> Known | None:
        """The progress of the table; None if it is empty or belongs to another genesis."""
        known = known_of(*store.get_many(TOLD))
        return known if known is not None and known.marker.genesis == self._shared.genesis else None

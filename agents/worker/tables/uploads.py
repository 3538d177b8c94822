"""Snapshots of the tables of a worker's shards, one after the other, at a bounded rate.

A snapshot is a copy of a table's files on disk, made between two steps. Its seal is committed in
the marker of a step before anything is sent, and its last transaction is committed afterwards.
`LocalState` uses no snapshot whose seal is missing from the changelog's last marker. So an old
snapshot is forgotten once the older markers are compacted, whatever the store has kept of it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from aiokafka.structs import TopicPartition as TP

from ....errors import EngineError, SnapshotError
from ....topics.records import TableSeal
from ...kafka.progress import Progress
from ...snapshots.copies import Copies, TableCopies, Upload, forget
from ...snapshots.sealed import CopyHead, fingerprint_of, new_seal
from ...state.rocks import read_rows
from ..metrics import OperatorMetrics
from ..shards.shard import Shard
from .evidence import TOLD, Known, known_of

log = logging.getLogger("hushstream.state")

RATE = 32 << 20  # bytes a second that a worker sends, at most
LOOK_SECONDS = 5.0
RETRY_SECONDS = 60.0
LAST_SECONDS = 3.0  # for all tables of a stopping worker together


@dataclass
class _Table:
    """The snapshots of one shard's table.

    Attributes:
        newest: head of the snapshot that counts; None: there is no usable one.
        seal: seal of that snapshot.
        looked: whether the store was asked for an earlier snapshot.
        at: last transaction of the shard when that snapshot was made; empty: unknown.
        next: seal of the next snapshot; None: none is due.
        retry: time before which nothing is tried, seconds since 1970.
    """

    shard: Shard
    copies: TableCopies
    newest: CopyHead | None = None
    seal: TableSeal | None = None
    looked: bool = False
    at: str = ""
    next: TableSeal | None = None
    upload: Upload | None = None
    folder: Path | None = None
    retry: float = 0.0

    def drop(self) -> None:
        """Give up the snapshot that is under way."""
        if self.folder is not None:
            forget(self.folder)
        self.upload = self.folder = None


class Uploads:
    """The snapshots that one worker makes.

    Args:
        interval: seconds between two snapshots of one table.
        shards: open shards of this worker; changes as partitions come and go.
    """

    def __init__(
        self,
        copies: Copies,
        interval: float,
        shards: Mapping[TP, Shard],
        metrics: OperatorMetrics,
    ) -> None:
        self._copies = copies
        self._interval = interval
        self._shards = shards
        self._metrics = metrics
        self._tables: dict[TP, _Table] = {}
        self._leaving: list[_Table] = []
        self.progress = Progress("the snapshots")

    async def run(self) -> None:
        """Make snapshots as they become due, until cancelled."""
        while True:
            await asyncio.sleep(min(LOOK_SECONDS, self._interval / 5))
            await self.round()
            self.progress.rest()

    async def round(self) -> None:
        """Do the next piece of work for each open shard; failures are tried again later."""
        for tp in [tp for tp, one in self._tables.items() if self._shards.get(tp) is not one.shard]:
            self._tables.pop(tp).drop()
        for tp, shard in list(self._shards.items()):
            one = self._tables.get(tp)
            if one is None:
                state = shard.table
                copies = self._copies.table(state.place.topic, state.place.partition)
                one = self._tables[tp] = _Table(shard, copies)
            if time.time() < one.retry:
                continue
            self.progress.moved()
            try:
                await self._look(tp, one)
            except (EngineError, OSError) as error:  # the shard may be closing
                self._failed(one, error)

    def _failed(self, one: _Table, error: Exception) -> None:
        one.retry = time.time() + min(RETRY_SECONDS, self._interval)
        if not isinstance(error, SnapshotError):
            one.drop()
        self._metrics.snapshot_failures.inc()
        log.warning("%s: no snapshot: %s", one.shard.table.name, error)

    async def _look(self, tp: TP, one: _Table) -> None:
        shard = one.shard
        if not one.looked:
            await self._find(one)
        if one.next is None and self._due(one):
            one.next = TableSeal(new_seal())
        self._offer(one)
        if one.next is None:
            return
        if not any(seal.secret == one.next.secret for seal in shard.marker.seals):
            return  # it comes with the next step
        if one.upload is None:
            await self._begin(one)
        while one.upload is not None and not one.upload.done:
            if self._shards.get(tp) is not shard:
                return
            began = time.monotonic()
            size = await one.upload.part()
            self.progress.moved()
            self._offer(one)
            await asyncio.sleep(max(size / RATE - (time.monotonic() - began), 0))
        if one.upload is not None and self._shards.get(tp) is shard:
            await self._end(one, one.upload)

    async def _find(self, one: _Table) -> None:
        """Ask the store for the snapshot of an earlier owner."""
        try:
            head = await one.copies.head()
        except SnapshotError as error:  # whatever the reason: the next snapshot replaces it
            log.warning("%s: its snapshot cannot be read: %s", one.shard.table.name, error)
            head = None
        one.looked = True
        for seal in one.shard.marker.seals:
            if head is not None and fingerprint_of(seal.secret) == head.seal:
                self._counts(one, head, seal)

    def _counts(self, one: _Table, head: CopyHead, seal: TableSeal) -> None:
        one.newest, one.seal = head, seal
        self._metrics.snapshot.labels(store=one.shard.table.name).set(head.made)

    def _due(self, one: _Table) -> bool:
        """Whether the newest snapshot is old, and the table has moved on since."""
        if one.newest is None:
            return bool(one.shard.marker.transaction)
        aged = time.time() - one.newest.made >= self._interval
        return aged and one.shard.marker.transaction != one.at

    def _offer(self, one: _Table) -> None:
        """Put the next seal into markers, and the newest snapshot's while it is young.

        So nothing outlives its deletion by more than two intervals, even if the store takes no new
        snapshot.
        """
        next_, newest = one.next, one.newest
        young = newest is not None and time.time() - newest.made < 2 * self._interval
        seals = (next_, one.seal if next_ is None or young else None)
        one.shard.seals = [seal for seal in seals if seal is not None]

    async def _begin(self, one: _Table) -> None:
        """Copy the table as hard links, which take no space until the table replaces its files."""
        assert one.next is not None
        one.folder, at, made = one.copies.fresh(), one.shard.marker.transaction, time.time()
        rows = await one.shard.copy(one.folder)
        known = _usable(rows)
        if known is None:  # nothing is on disk yet
            one.drop()
            one.retry = time.time() + min(RETRY_SECONDS, self._interval)
            return
        one.next = TableSeal(one.next.secret, known.marker.transaction)
        self._offer(one)
        one.at, one.upload = at, one.copies.upload(one.folder, one.next.secret, made, rows)

    async def _end(self, one: _Table, upload: Upload) -> None:
        """Make a snapshot count, unless another owner has stored a newer one."""
        assert one.next is not None
        if await _newer(one.copies, upload.head):
            one.drop()
            one.next, one.looked, one.retry = None, False, time.time() + self._interval
            return
        await upload.end()
        one.drop()
        self._counts(one, upload.head, one.next)
        one.next = None
        self._offer(one)
        log.info("%s: a snapshot of it is in the store", one.shard.table.name)
        await one.copies.keep(upload.head)

    # -- at the end -------------------------------------------------------------------------------

    def leave(self) -> None:
        """Note the open shards: they close next, and their tables then no longer change."""
        self._leaving = [
            _Table(one.shard, one.copies, at=one.at)
            for tp, one in self._tables.items()
            if self._shards.get(tp) is one.shard
        ]

    async def last(self) -> None:
        """Send snapshots of a stopped worker's tables, as many as `LAST_SECONDS` allow."""
        for one in self._tables.values():
            one.drop()
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                for one in self._leaving:
                    with suppress(EngineError, OSError):  # the previous snapshot still counts
                        await self._send_last(one)

    async def _send_last(self, one: _Table) -> None:
        marker, folder = one.shard.marker, one.shard.table.path
        if one.shard.table.ready or not marker.seals or marker.transaction == one.at:
            return  # it did not close in time, or there is nothing new
        rows = await asyncio.to_thread(read_rows, folder, TOLD)
        if _usable(rows) is None:
            return
        upload = one.copies.upload(folder, marker.seals[0].secret, time.time(), rows)
        if upload.head.size > RATE * LAST_SECONDS:
            return
        while not upload.done:
            await upload.part()
        if not await _newer(one.copies, upload.head):
            await upload.end()
            log.info("%s: a snapshot of it is in the store", one.shard.table.name)


def _usable(rows: list[bytes | None]) -> Known | None:
    known = known_of(*rows)
    return known if known is not None and known.start is not None else None


async def _newer(copies: TableCopies, mine: CopyHead) -> bool:
    """Whether the store has a newer snapshot than this one."""
    with suppress(SnapshotError):  # an unreadable snapshot is replaced
        there = await copies.head()
        theirs = None if there is None else known_of(*there.rows)
        ours = known_of(*mine.rows)
        return theirs is not None and ours is not None and theirs.position > ours.position
    return False

"""Fetches the newest usable snapshot of a table for an empty disk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from aiokafka.structs import TopicPartition

from ....errors import SnapshotError
from ....topics.records import TableSeal
from ...kafka.clients import first_offset
from ...kafka.markers import Sought
from ...snapshots.copies import TableCopies
from ...snapshots.sealed import CopyHead, fingerprint_of
from ..shared import Shared
from .evidence import Known, check_same, known_of

Seek = Callable[[Known], Awaitable[Sought]]
"""Checks that the changelog reaches a table's position; returns what the changelog has there."""


async def fetched(
    table: TableCopies,
    shared: Shared,
    changelog: TopicPartition,
    seek: Seek,
    moved: Callable[[], None],
) -> tuple[CopyHead, Path] | None:
    """Fetch the newest snapshot of a table into a folder of its own; None: there is none.

    Args:
        moved: called after each part.

    Raises:
        RewoundError: the snapshot is ahead of the changelog, or from another history.
        SnapshotError: it may not be used.
    """
    head = await table.head()
    if head is None:
        return None
    seal = await _seal_of(head, shared, changelog, seek)
    return head, await table.fetch(head, seal.secret, moved)


async def _seal_of(
    head: CopyHead, shared: Shared, changelog: TopicPartition, seek: Seek
) -> TableSeal:
    """Check a snapshot against the changelog, like a table on disk, and find its seal there.

    Raises:
        RewoundError: the snapshot is ahead of the changelog, or from another history.
        SnapshotError: it may not be used.
    """
    known = known_of(*head.rows)
    if known is None or known.marker.genesis != shared.genesis:
        raise SnapshotError("it does not tell how far it has come")
    sought = await seek(known)
    same = check_same(f"{changelog.topic}-{changelog.partition}", sought)
    seals = () if sought.last is None else sought.last.seals
    seal = next((one for one in seals if fingerprint_of(one.secret) == head.seal), None)
    if seal is None:
        raise SnapshotError("its key is forgotten")
    # A marker that names a transaction was written after it, in one history with it.
    if not same and (sought.aborted or seal.of != known.marker.transaction):
        raise SnapshotError("nothing tells whether it is of this changelog's history")
    if known.start is None:
        raise SnapshotError("it is older than the changelog keeps deletions")
    if await first_offset(shared.kafka, *changelog) > known.start:
        raise SnapshotError("the changelog begins after it")
    return seal

"""Evidence that a cluster was rewound: a table that knows more than the cluster's own logs.

Tables follow changelogs, and committed logs never shrink. So a table beyond the end of its
changelog, or with a marker that the changelog has not reached, shows that the cluster was restored
or copied from an earlier moment. Such a table is kept: to discard it would be to forget what was
released, and to release it again with other contents.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...errors import RewoundError
from ...topics.names import Names
from ...topics.records import Marker, decode_marker
from ..kafka.cluster import Cluster
from ..state.layout import MARKER, POSITION
from ..state.rocks import read_rows

STALE_SECONDS = 20 * 3600  # below delete.retention.ms of the changelogs (24 h)
CONFIRM_SECONDS = 5.0  # a new leader may answer with an older end for a moment


@dataclass(frozen=True)
class Known:
    """The progress of a table, as the table itself records it.

    Attributes:
        position: changelog offset before which everything is in it.
        fresh: whether the changelog still has all deletions since then.
        marker: the last committed one that it has seen.
    """

    position: int
    fresh: bool
    marker: Marker


def known_of(position: bytes | None, marker: bytes | None) -> Known | None:
    """Read a table's progress from two of its rows.

    Args:
        position: JSON with a changelog offset and the time when it was written, seconds.
        marker: the last committed one.

    Returns:
        None if one of the rows is missing.
    """
    if position is None or marker is None:
        return None
    said = json.loads(position)
    fresh = 0 <= time.time() - said["time"] < STALE_SECONDS
    return Known(int(said["offset"]), fresh, decode_marker(marker))


def check_forward(name: str, before: Marker, after: Marker | None) -> None:
    """Check that the changelog's last marker is not behind one that a table has seen.

    Args:
        name: of the table, for the message.
        before: seen by the table.
        after: the last one of the changelog; None: it has none.

    Raises:
        RewoundError: it is behind: the changelog was rewound, and may have grown since.
    """
    if after is None or any(new < old for old, new in _pairs(before, after)):
        raise RewoundError(f"the changelog of {name} is behind the table of it here")


def _pairs(before: Marker, after: Marker) -> Iterator[tuple[int, int]]:
    """Numbers of a marker that only grow, before and after."""
    yield before.applied, after.applied
    yield before.clock, after.clock
    for name in before.closed.keys() & after.closed.keys():
        yield before.closed[name], after.closed[name]
    for name in before.upstream.keys() & after.upstream.keys():
        yield from zip(before.upstream[name], after.upstream[name], strict=False)


def check_tables(cluster: Cluster, names: Names, data_dir: Path) -> int:
    """Hold every table of a worker against its changelog.

    This includes tables whose partitions other workers have now: those workers have no table that
    could tell them.

    Args:
        cluster: it answers.
        names: of all topics.
        data_dir: the worker's folder.

    Returns:
        The number of tables.

    Raises:
        RewoundError: a table is ahead of its changelog.
    """
    folders = sorted((data_dir / names.genesis).glob("*/[0-9]*"))
    known = {folder: found for folder in folders if (found := _of(folder)) is not None}
    until = time.monotonic() + CONFIRM_SECONDS
    while ahead := _ahead(cluster, names, known):
        if time.monotonic() > until:
            raise RewoundError(f"{ahead} ends before what the table of it here has read")
        time.sleep(0.2)
    return len(known)


def _of(folder: Path) -> Known | None:
    try:
        position, marker = read_rows(folder, [POSITION, MARKER])
    except Exception:  # damaged, or another process is changing it; its shard looks again
        return None
    return known_of(position, marker)


def _ahead(cluster: Cluster, names: Names, known: dict[Path, Known]) -> str:
    """A changelog partition that ends below its table's position; empty if there is none."""
    topics = cluster.topics()
    changelogs = {folder.parent.name for folder in known} & set(topics)
    ends = {topic: cluster.ends(topic, topics[topic]) for topic in changelogs}
    for folder, one in known.items():
        topic, number = folder.parent.name, int(folder.name)
        if one.marker.genesis != names.genesis or topic not in ends:
            continue  # of a pipeline that was removed; missing topics are refused elsewhere
        if number >= len(ends[topic]) or ends[topic][number] < one.position:
            return f"{topic}-{number}"
    return ""

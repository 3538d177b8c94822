"""Tables on a worker's disk: its group gives it what it had, rather than what it would restore."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ..stages.topology import Place, Topology

TOGETHER_SECONDS = 60.0  # between the first and the last table that a worker closes when it ends


def tables_on_disk(topology: Topology, folder: Path) -> list[Place]:
    """List the partitions whose tables were in use when a worker ended.

    A table that is closed has noted last how far it came.

    Args:
        folder: of the tables of this genesis; it need not exist.
    """
    used: dict[Place, float] = {}
    for spec in topology.specs:
        for topic, number in spec.places:
            with suppress(OSError):  # another worker's
                files = (folder / spec.changelog / str(number)).iterdir()
                used[topic, number] = max((one.stat().st_mtime for one in files), default=0.0)
    newest = max(used.values(), default=0.0)
    return sorted(place for place, at in used.items() if newest - at <= TOGETHER_SECONDS)

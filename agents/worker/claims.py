"""Tables on a worker's disk: its group prefers to give it the partitions that it has tables for."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ..stages.topology import Place, Topology

TOGETHER_SECONDS = 60.0  # at most between the first and the last table that an ending worker closes


def tables_on_disk(topology: Topology, folder: Path) -> list[Place]:
    """List the partitions whose tables were in use when a worker ended.

    The last thing that a closing table writes is its position.

    Args:
        folder: folder of this genesis's tables; it need not exist.
    """
    used: dict[Place, float] = {}
    for spec in topology.specs:
        for topic, number in spec.places:
            with suppress(OSError):  # it belongs to another worker
                files = (folder / spec.changelog / str(number)).iterdir()
                used[topic, number] = max((one.stat().st_mtime for one in files), default=0.0)
    newest = max(used.values(), default=0.0)
    return sorted(place for place, at in used.items() if newest - at <= TOGETHER_SECONDS)

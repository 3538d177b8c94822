"""Private names of Faust's assignor: partitions that move go to members that have their tables.

Faust's assignor takes arbitrary partitions from a member that has too many, and only then looks for
standbys of them. So a worker that comes back would rarely get its former partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping

from faust.assignor import partition_assignor
from faust.assignor.client_assignment import ClientAssignment, CopartitionedAssignment
from faust.assignor.copartitioned_assignor import CopartitionedAssignor
from faust.assignor.partition_assignor import PartitionAssignor

from . import Needed, check

NEEDED: Needed = (
    (partition_assignor, ("CopartitionedAssignor",)),
    (CopartitionedAssignor, ("_client_assignments", "get_assignment", "max_capacity")),
    (PartitionAssignor, ("_assignment",)),
)
check("faust-streaming", NEEDED)


class WarmAssignor(CopartitionedAssignor):
    """Faust's assignor for co-partitioned topics, changed as the module describes."""

    def get_assignment(self) -> MutableMapping[str, CopartitionedAssignment]:
        """First free partitions that overloaded members can hand to their standbys."""
        members = list(self._client_assignments.values())
        for least in sorted(members, key=lambda one: len(one.actives)):
            wanted = self.max_capacity - len(least.actives)
            for partition in sorted(least.standbys):
                for owner in members if wanted > 0 else []:
                    if partition in owner.actives and len(owner.actives) > self.max_capacity:
                        owner.unassign_partition(partition, active=True)
                        wanted -= 1
        found: MutableMapping[str, CopartitionedAssignment] = super().get_assignment()
        return found


def install() -> None:
    """Make each group's leader assign like this."""
    partition_assignor.CopartitionedAssignor = WarmAssignor


def claim(assignor: PartitionAssignor, found: Iterable[tuple[str, int]]) -> None:
    """Declare a member, before it joins, a standby for partitions of topics."""
    standbys: dict[str, list[int]] = {}
    for topic, number in found:
        standbys.setdefault(topic, []).append(number)
    assignor._assignment = ClientAssignment(actives={}, standbys=standbys)

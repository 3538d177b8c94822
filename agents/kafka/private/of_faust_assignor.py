"""Private names of Faust's assignor: a partition that moves goes to a member that has its table.

Faust's assignor takes arbitrary partitions from a member that has too many, and then looks for a
member that stands by for one of them. A worker that comes back gets nothing of what it had.
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
    """Faust's assignor of topics with the same number of partitions, as the module says."""

    def get_assignment(self) -> MutableMapping[str, CopartitionedAssignment]:
        """Free what members that have too many can hand to members that stand by for it."""
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
    """Have the leader of each group assign like this."""
    partition_assignor.CopartitionedAssignor = WarmAssignor


def claim(assignor: PartitionAssignor, found: Iterable[tuple[str, int]]) -> None:
    """Let a member that has not joined yet stand by for partitions of topics."""
    standbys: dict[str, list[int]] = {}
    for topic, number in found:
        standbys.setdefault(topic, []).append(number)
    assignor._assignment = ClientAssignment(actives={}, standbys=standbys)

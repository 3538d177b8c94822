"""Orphaned topics, whose genesis was never committed.

`hush topics` makes a deployment's internal topics under a random genesis id, and then commits that
id to the ledger. If it is killed in between, the topics stay, and no ledger names them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

from confluent_kafka import KafkaException

from ....topics.names import genesis_id, genesis_of
from ..cluster import Cluster

FENCE_SECONDS = 30.0


class LeftBehind(NamedTuple):
    """Topics of one genesis that the ledger does not name."""

    genesis: str
    topics: list[str]
    used: bool  # whether they hold records: it was then committed, to a ledger that is gone

    def __str__(self) -> str:
        named = f"topics of genesis {self.genesis}, which the ledger does not name"
        if self.used:
            rest = "they hold records of an earlier ledger: nothing here deletes them"
        else:
            rest = (
                "an interrupted `hush topics` created them, and no deployment uses them: "
                "`hush topics --delete-orphans` deletes them"
            )
        return f"{len(self.topics)} {named} ({', '.join(self.topics)}): {rest}"


def left_behind(cluster: Cluster, deployment: str, genesis: str) -> list[LeftBehind]:
    """List the topics, visible to this user, that other geneses of a deployment have left behind.

    They include those of a running `hush topics` that has not committed its genesis yet.

    Args:
        deployment: name of the deployment; topics of others are never listed.
        genesis: genesis id in its ledger; empty: there is none.
    """
    return _listed(cluster, _by_genesis(cluster, deployment), genesis)


def delete_orphans(
    cluster: Cluster, deployment: str, genesis: Callable[[], str]
) -> list[LeftBehind]:
    """Delete the topics of every genesis of a deployment that was never committed.

    Safe while any number of `hush topics` run: one that had begun a genesis when the topics were
    listed is fenced before the ledger is read. So either it has committed, and the ledger shows
    that, or it never will. One that begins later has an id that was not listed.

    Args:
        deployment: name of the deployment; topics of others are never touched.
        genesis: reads the genesis id of a ledger; empty: there is none.

    Raises:
        RightError: this user may not delete topics, or may not write under the deployment's ids.
    """
    found = _by_genesis(cluster, deployment)  # before the fence: see above
    if not found:
        return []
    _fence(cluster, genesis_id(deployment))
    orphans = [one for one in _listed(cluster, found, genesis()) if not one.used]
    for one in orphans:
        cluster.delete(one.topics)
    return orphans


def _by_genesis(cluster: Cluster, deployment: str) -> dict[str, dict[str, int]]:
    """List topics of a deployment, with their numbers of partitions, by genesis id."""
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for topic, partitions in sorted(cluster.topics().items()):
        of = genesis_of(topic)
        if of is not None and of[0] == deployment:
            found[of[1]][topic] = partitions
    return found


def _listed(cluster: Cluster, found: dict[str, dict[str, int]], genesis: str) -> list[LeftBehind]:
    return [
        LeftBehind(name, list(topics), _used(cluster, topics))
        for name, topics in found.items()
        if name != genesis
    ]


def _used(cluster: Cluster, topics: dict[str, int]) -> bool:
    """Whether any of them holds a committed record, which an abort marker is not."""
    for topic, partitions in topics.items():
        # A genesis is committed together with a record of this topic. Read it, since reading waits
        # for a commit in progress, which an end offset would not show yet.
        ends = [1] if topic.endswith(".begins") else cluster.offsets.ends(topic, partitions)
        for number, end in enumerate(ends):
            if end and next(cluster.each(topic, number), None) is not None:
                return True
    return False


def _fence(cluster: Cluster, identity: str) -> None:
    """Fence the writer under a transactional id; return once its transaction has ended."""
    producer = cluster.producer(**{"transactional.id": identity})
    try:
        producer.init_transactions(FENCE_SECONDS)
    except KafkaException as error:
        cluster.rights.refuse(error, "WRITE", identity)
        raise

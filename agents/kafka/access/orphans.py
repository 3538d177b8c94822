"""Unused topics: those of a genesis that was never committed.

`hush topics` makes a deployment's internal topics under a random genesis id, and then commits that
id to the ledger. Where it is killed in between, the topics stay and no ledger names them.
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
    used: bool  # whether they hold records: then it was committed once, to a ledger that is gone

    def __str__(self) -> str:
        named = f"topics of genesis {self.genesis}, which the ledger does not name"
        if self.used:
            rest = "they hold records of an earlier ledger: nothing here deletes them"
        else:
            rest = (
                "a `hush topics` that was ended made them, and nobody uses them: "
                "`hush topics --delete-orphans` deletes them"
            )
        return f"{len(self.topics)} {named} ({', '.join(self.topics)}): {rest}"


def left_behind(cluster: Cluster, deployment: str, genesis: str) -> list[LeftBehind]:
    """List what other geneses of a deployment have left on the cluster, as far as this user sees.

    A `hush topics` that is running may be among them: it has not committed its genesis yet.

    Args:
        deployment: its name; topics of others are never listed.
        genesis: the id in its ledger; empty: there is none.
    """
    return _listed(cluster, _by_genesis(cluster, deployment), genesis)


def delete_orphans(
    cluster: Cluster, deployment: str, genesis: Callable[[], str]
) -> list[LeftBehind]:
    """Delete the topics of every genesis of a deployment that was never committed.

    Safe beside any number of `hush topics`: one that had begun a genesis when the topics were
    listed is fenced before the ledger is read. So it has committed by then, and the ledger says so,
    or it never will. One that begins later has an id that was not listed.

    Args:
        deployment: its name; topics of others are never touched.
        genesis: reads the genesis id of a ledger; empty: there is none.

    Raises:
        RightError: this user may not delete topics, or not write under the deployment's ids.
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
    """Topics of a deployment with their numbers of partitions, by genesis id."""
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
    """Whether any of them holds a committed record; the marker of an aborted one is none."""
    for topic, partitions in topics.items():
        # Reading waits for what is being committed, where an end would not show it yet. A genesis
        # is committed together with a record of this topic.
        ends = [1] if topic.endswith(".begins") else cluster.offsets.ends(topic, partitions)
        for number, end in enumerate(ends):
            if end and next(cluster.each(topic, number), None) is not None:
                return True
    return False


def _fence(cluster: Cluster, identity: str) -> None:
    """Fence the writer under a transactional id; returns once its transaction has ended."""
    producer = cluster.producer(**{"transactional.id": identity})
    try:
        producer.init_transactions(FENCE_SECONDS)
    except KafkaException as error:
        cluster.rights.refuse(error, "WRITE", identity)
        raise

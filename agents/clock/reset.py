"""The end of a deployment: all of its topics are deleted, the ledger last.

What was charged is forgotten with the ledger, so a deployment that begins anew would spend on the
same persons again. A caller asks before it deletes one that has charged anything.
"""

from __future__ import annotations

from typing import NamedTuple

from ...errors import EngineError
from ...topics.names import genesis_of, ledger_topic
from ..kafka.access.owners import owned
from ..kafka.cluster import Cluster
from .genesis import read_ledger


class Remains(NamedTuple):
    """Topics that the end of a deployment would delete, and what would be forgotten.

    Attributes:
        deployment: its name.
        topics: all that it alone writes, in the order of their deletion; the ledger is the last.
        charged: number of charges in the ledger; with none of them nothing was released.
    """

    deployment: str
    topics: list[str]
    charged: int


def remains(cluster: Cluster, deployment: str) -> Remains:
    """Find what a deployment has on the cluster, and whether it has ended.

    Args:
        deployment: its name; topics of others, and raw topics, are never among those found.

    Raises:
        EngineError: a worker is still in its group.
        NoLedgerError: there is none.
        LedgerError: the ledger is broken.
        RightError: this user may not read the ledger, or not describe the group.
    """
    ledger = read_ledger(cluster, deployment)
    names = ledger.names(deployment)
    if workers := len(cluster.groups.members(names.group)):
        raise EngineError(
            f"deployment {deployment!r}: {workers} worker{'s' * (workers > 1)} in the group "
            f"{names.group}: end them first; one that has ended stays in it for a minute"
        )
    last = ledger_topic(deployment)
    outer = sorted(topic for topic in owned(cluster, deployment) if topic != last)
    mine = (deployment, names.genesis)
    inner = sorted(topic for topic in cluster.topics() if genesis_of(topic) == mine)
    return Remains(deployment, [*outer, *inner, last], len(ledger.charges))


def delete(cluster: Cluster, found: Remains) -> None:
    """Delete all of it. Where this ends early, the ledger is left, and it can be done again.

    Raises:
        RightError: this user may not delete a topic; those after it are left.
    """
    for topic in found.topics:
        cluster.delete([topic])

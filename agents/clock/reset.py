"""The end of a deployment: all of its topics are deleted, the ledger last.

What was charged is forgotten with the ledger, so a deployment that begins anew would spend on the
same persons again. A caller asks before it deletes one that has charged anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from ...errors import EngineError
from ...topics.names import genesis_of, ledger_topic
from ..kafka.access.owners import owned
from ..kafka.cluster import Cluster
from .genesis import read_ledger

LOOK_SECONDS = 0.5  # between two looks at a group


class Remains(NamedTuple):
    """Topics that the end of a deployment would delete, and what would be forgotten.

    Attributes:
        deployment: its name.
        topics: all that it alone writes, in the order of their deletion; the ledger is the last.
        charged: number of charges in the ledger; with none of them nothing was released.
        genesis: id below which its snapshots lie in an object store.
    """

    deployment: str
    topics: list[str]
    charged: int
    genesis: str


def remains(
    cluster: Cluster,
    deployment: str,
    patience: float = 0.0,
    told: Callable[[str], None] = lambda text: None,
) -> Remains:
    """Find what a deployment has on the cluster, and whether it has ended.

    Args:
        deployment: its name; topics of others, and raw topics, are never among those found.
        patience: seconds for which Kafka keeps a worker in the group that has ended.
        told: called once if this is waited for.

    Raises:
        EngineError: a worker is still in its group.
        NoLedgerError: there is none.
        LedgerError: the ledger is broken.
        RightError: this user may not read the ledger, or not describe the group.
    """
    ledger = read_ledger(cluster, deployment)
    names = ledger.names(deployment)
    _wait(cluster, f"deployment {deployment!r}", names.group, patience, told)
    last = ledger_topic(deployment)
    outer = sorted(topic for topic in owned(cluster, deployment) if topic != last)
    mine = (deployment, names.genesis)
    inner = sorted(topic for topic in cluster.topics() if genesis_of(topic) == mine)
    return Remains(deployment, [*outer, *inner, last], len(ledger.charges), names.genesis)


def _wait(
    cluster: Cluster, whose: str, group: str, patience: float, told: Callable[[str], None]
) -> None:
    """Wait until nobody is in a group; Kafka keeps a member with a name for a session."""
    until = time.monotonic() + patience
    while workers := len(cluster.groups.members(group)):
        left = until - time.monotonic()
        text = f"{whose}: {workers} worker{'s' * (workers > 1)} in the group {group}"
        stays = f"one that has ended stays in it for engine.session_timeout, {patience:g} s"
        if left <= 0:
            raise EngineError(f"{text}: end them first; {stays}" + ", now over" * bool(patience))
        told(f"{text}; {stays}: waiting for that long")
        told = _silent
        time.sleep(min(left, LOOK_SECONDS))


def _silent(text: str) -> None:
    """Say nothing a second time."""


def delete(cluster: Cluster, found: Remains) -> None:
    """Delete all of it. Where this ends early, the ledger is left, and it can be done again.

    Raises:
        RightError: this user may not delete a topic; those after it are left.
    """
    for topic in found.topics:
        cluster.delete([topic])

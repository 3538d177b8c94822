"""Ends a deployment: deletes all of its topics, the ledger last.

With the ledger, the record of charges is lost, so a new deployment would spend on the same persons
again. The caller asks for confirmation if anything was charged.
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
    """Topics that the end of a deployment would delete, with what is forgotten.

    Attributes:
        deployment: name of the deployment.
        topics: topics that only this deployment writes, in the order of deletion; the ledger is
            last.
        charged: number of charges in the ledger; 0: nothing was released.
        genesis: id below which its snapshots lie in an object store.
    """

    deployment: str
    topics: list[str]
    charged: int
    genesis: str


def remains(
    cluster: Cluster,
    deployment: str,
    session: float = 0.0,
    told: Callable[[str], None] = lambda text: None,
    wait: bool = True,
) -> Remains:
    """Find a deployment's topics, and check that no worker of it is running.

    Args:
        deployment: name of the deployment; topics of others, and raw topics, are never found.
        session: seconds for which Kafka keeps a stopped worker in the group.
        told: called once with a message if a wait for that begins.
        wait: whether to wait for so long.

    Raises:
        EngineError: a worker is still in its group.
        NoLedgerError: there is no ledger.
        LedgerError: the ledger is broken.
        RightError: this user may not read the ledger, or may not describe the group.
    """
    ledger = read_ledger(cluster, deployment)
    names = ledger.names(deployment)
    _wait(cluster, f"deployment {deployment!r}", names.group, session, told, wait)
    last = ledger_topic(deployment)
    outer = sorted(topic for topic in owned(cluster, deployment) if topic != last)
    mine = (deployment, names.genesis)
    inner = sorted(topic for topic in cluster.topics() if genesis_of(topic) == mine)
    return Remains(deployment, [*outer, *inner, last], len(ledger.charges), names.genesis)


def _wait(
    cluster: Cluster,
    whose: str,
    group: str,
    session: float,
    told: Callable[[str], None],
    wait: bool,
) -> None:
    """Wait until a group is empty; Kafka keeps a named member for a session."""
    until = time.monotonic() + (session if wait else 0.0)
    while workers := len(cluster.groups.members(group)):
        left = until - time.monotonic()
        text = f"{whose}: {workers} worker{'s' * (workers > 1)} in the group {group}"
        stays = f"one that has ended stays in it for engine.session_timeout, {session:g} s"
        if left <= 0:
            raise EngineError(f"{text}: end them first; {stays}" + ", now over" * wait)
        told(f"{text}; {stays}: waiting for that long")
        told = _silent
        time.sleep(min(left, LOOK_SECONDS))


def _silent(text: str) -> None:
    """Drop a message."""


def delete(cluster: Cluster, found: Remains) -> None:
    """Delete the topics. If this fails half-way, the ledger is still there, and it can be repeated.

    Raises:
        RightError: this user may not delete a topic; it and later ones are left.
    """
    for topic in found.topics:
        cluster.delete([topic])

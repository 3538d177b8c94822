"""Three brokers on this machine that form one cluster: three replicas, two of them in sync."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from hushstream.deploy.broker import Broker
from hushstream.deploy.settings import HOST, cluster_id, free_port

NODES = (1, 2, 3)
REPLICATED = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
}


class Trio:
    """Each node is a broker and one of three controllers.

    Args:
        folder: for their data.
        overrides: additional settings of each.
    """

    def __init__(self, folder: Path, overrides: dict[str, str]) -> None:
        ports, controllers = _ports(), _ports()
        voters = ",".join(f"{n}@{HOST}:{controllers[n]}" for n in NODES)
        cluster = cluster_id()
        self.nodes = {
            n: Broker(
                folder / str(n),
                ports[n],
                quiet=True,
                cluster=cluster,
                overrides=REPLICATED | overrides | {
                    "node.id": str(n),
                    "controller.quorum.voters": voters,
                    "listeners": f"PLAINTEXT://{HOST}:{ports[n]},"
                                 f"CONTROLLER://{HOST}:{controllers[n]}",
                },
            )
            for n in NODES
        }  # fmt: skip
        self._lock = threading.Lock()

    @property
    def bootstrap(self) -> str:
        """Addresses for clients."""
        return ",".join(node.bootstrap for node in self.nodes.values())

    def start(self, timeout: float = 120) -> Self:
        """Start those that do not run; a quorum of two must come before any serves."""
        with self._lock, ThreadPoolExecutor(len(NODES)) as pool:
            list(pool.map(lambda node: node.start(timeout), self.nodes.values()))
        return self

    def kill(self, *nodes: int) -> None:
        """End these as a crash would; all of them if none is named."""
        for node in nodes or NODES:
            self.nodes[node].kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            node.kill()


def _ports() -> dict[int, int]:
    found: set[int] = set()
    while len(found) < len(NODES):
        found.add(free_port())
    return dict(zip(NODES, sorted(found), strict=True))

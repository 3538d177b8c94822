"""Three brokers on this machine that form one cluster: three replicas, two of them in sync."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from _switch import Network, address
from hushstream.deploy.broker import Broker
from hushstream.deploy.settings import HOST, BrokerNode, cluster_id, free_port

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
        folder: folder of their data.
        overrides: additional settings of each.
        network: network with a namespace for each; default: all on this machine's loopback.
    """

    def __init__(
        self, folder: Path, overrides: dict[str, str], network: Network | None = None
    ) -> None:
        ports, controllers = _ports(), _ports()
        hosts = {n: address(n) if network else HOST for n in NODES}
        voters = ",".join(f"{n}@{hosts[n]}:{controllers[n]}" for n in NODES)
        cluster = cluster_id()
        self.network = network
        self.nodes = {
            n: Broker(
                folder / str(n),
                ports[n],
                quiet=True,
                overrides=REPLICATED | overrides | {
                    "node.id": str(n),
                    "controller.quorum.voters": voters,
                    "listeners": f"PLAINTEXT://{hosts[n]}:{ports[n]},"
                                 f"CONTROLLER://{hosts[n]}:{controllers[n]}",
                    "advertised.listeners": f"PLAINTEXT://{hosts[n]}:{ports[n]}",
                },
                node=BrokerNode(
                    host=hosts[n],
                    within=network.inside(n) if network else (),
                    cluster=cluster,
                ),
            )
            for n in NODES
        }  # fmt: skip
        self._lock = threading.Lock()

    @property
    def bootstrap(self) -> str:
        """Addresses for clients."""
        return ",".join(node.bootstrap for node in self.nodes.values())

    def start(self, timeout: float = 120) -> Self:
        """Start the stopped nodes; none serves before a quorum of two is up."""
        with self._lock, ThreadPoolExecutor(len(NODES)) as pool:
            list(pool.map(lambda node: node.start(timeout), self.nodes.values()))
        return self

    def controller(self) -> int:
        """The node that became the active controller last."""
        elected = {n: _elected(node.log) for n, node in self.nodes.items()}
        return max(elected, key=lambda n: elected[n])

    def kill(self, *nodes: int) -> None:
        """Kill these nodes, as a crash would; all if none is named."""
        for node in nodes or NODES:
            self.nodes[node].kill()

    def stop(self, timeout: float = 60) -> None:
        """Shut all nodes down, and kill those that take longer: the last ones lack a quorum."""
        with self._lock, ThreadPoolExecutor(len(NODES)) as pool:
            list(pool.map(lambda node: node.stop(timeout), self.nodes.values()))

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


def _elected(log: Path) -> int:
    """The epoch in which a node last became the controllers' leader; 0 if it never did."""
    epochs = re.findall(r"Completed transition to Leader\(.*?epoch=(\d+)", log.read_text())
    return int(epochs[-1]) if epochs else 0

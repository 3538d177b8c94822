"""Settings of one small Kafka node on the loopback interface that starts quickly."""

from __future__ import annotations

import base64
import secrets
import socket
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import BrokerError

HOST = "127.0.0.1"

# In the range of outgoing ports, a client that keeps trying a dead broker's port can connect to
# itself and so block the broker's restart. These ports lie below that range.
PORTS = range(20_000, 32_000)

JVM_FLAGS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.awt.headless=true",
    "-Dfile.encoding=UTF-8",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaConfig=warn",
)

SINGLE_NODE = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    # After a crash the controller refuses the node until its old session ends (default 9 s).
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "400",
    # Otherwise an idle controller writes a record every half second for observers; there are none.
    "metadata.max.idle.interval.ms": "0",
    # Automatic creation would hide the mistake of a missing topic.
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "8",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    # The defaults suit large machines: 128 MB of cleaner buffer, 8 request threads.
    "log.cleaner.dedupe.buffer.size": "16777216",
    "num.io.threads": "4",
    "num.network.threads": "2",
    "num.recovery.threads.per.data.dir": "2",
}


@dataclass(frozen=True)
class BrokerNode:
    """One node as a process: by default alone in its cluster, on this machine.

    Attributes:
        host: address for clients, if its settings let it listen there.
        within: prefix of its command line, if it runs in a network namespace of its own.
        cluster: cluster id for which an empty folder is formatted, if several nodes form a cluster;
            None: a fresh one.
        features: levels (``transaction.version``, …) for which an empty folder is formatted,
            unless they are the newest.
        heap_mb: heap of the Java virtual machine, MiB.
        java_flags: further Java flags, in place of those that use the class archive.
    """

    host: str = HOST
    within: Sequence[str] = ()
    cluster: str | None = None
    features: Mapping[str, int] = field(default_factory=dict)
    heap_mb: int = 384
    java_flags: Sequence[str] = ()


ALONE = BrokerNode()


def server_settings(
    port: int, controller: int, logs: Path, overrides: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the settings of a node for clients on ``port`` of the loopback; ``overrides`` win."""
    place = {
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "log.dirs": str(logs),
    }
    return SINGLE_NODE | place | dict(overrides or {})


def properties(settings: Mapping[str, str]) -> str:
    """Return ``settings`` as a Java properties file.

    >>> properties({"log.dirs": "/a b"})
    'log.dirs=/a b\\n'
    """
    return "".join(
        f"{name}={value.replace(chr(92), chr(92) * 2)}\n" for name, value in settings.items()
    )


def cluster_id() -> str:
    """Return a fresh cluster id: 22 characters of URL-safe base64, the first one a letter."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if text[0].isalpha():
            return text


def port_is_free(port: int) -> bool:
    """Return whether a server could listen on ``port`` of the loopback now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """Return a free port of the loopback from `PORTS`, chosen at random; raises `BrokerError`."""
    for _ in range(1000):
        port = PORTS[secrets.randbelow(len(PORTS))]
        if port_is_free(port):
            return port
    raise BrokerError(f"no free port between {PORTS.start} and {PORTS.stop}")

"""One deployment in its own namespace, installed by the chart, and its releases."""

from __future__ import annotations

import base64
import json
import secrets
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from hushstream.deploy.broker import Broker

from ..e2e.judge import Row, newest, releases
from .api import Resource
from .control_plane import until
from .kubelets import ready
from .node import GATEWAY, NAME, Node
from .place import Place

IMAGE, TAG = "hush-e2e/pods", "1"
RAW, RELEASES = "trips", "hush.zones.releases.v1"
TEXT = """
[deployment]
name = "shop"
[[input]]
name = "trips"
topic = "trips"
unit = "trip"
time = { field = "at", format = "iso" }
[[pipeline]]
name = "zones"
input = "trips"
key = ["zone"]
unit_name = "trip"
window = { length = "10m" }
triggers = { every = "10s" }
lateness = "2s"
budget = { epsilon = 1.0, delta = 1e-6 }
"""


class Shop:
    """One deployment by the chart, and its releases.

    Args:
        place: its namespace.
        running: the machine.
        kafka: the broker.
        port: its port for pods.
    """

    def __init__(self, place: Place, running: Node, kafka: Broker, port: int) -> None:
        self.place, self.running, self.kafka, self.port = place, running, kafka, port
        self.key = secrets.token_hex(32)
        told = {"noise_key": base64.b64encode(self.key.encode()).decode()}
        self._make("v1", "Secret", "hush-noise-key", data=told)
        for number in range(2):
            path = self.volume(number)
            path.mkdir(mode=0o755)
            self._make("v1", "PersistentVolume", path.name, spec=_volume(path))

    def _make(self, version: str, kind: str, name: str, **rest: Any) -> None:
        head = {"apiVersion": version, "kind": kind, "metadata": {"name": name}}
        self.place.apply(json.dumps(head | rest))

    def values(self, **more: Any) -> dict[str, Any]:
        """Values of the chart; its defaults stay unless something needs another value."""
        small = {"cpu": "100m", "memory": "256Mi", "ephemeral-storage": "64Mi"}
        return {
            "image": {"repository": f"docker.io/{IMAGE}", "tag": TAG, "pullPolicy": "Never"},
            "kafka": {"bootstrap": f"{GATEWAY}:{self.port}"},
            "networkPolicy": {"kafkaPorts": [self.port]},
            "config": {"toml": TEXT},
            "storage": {"size": "1Gi"},
            "resources": {"requests": small},
            **more,
        }

    def volume(self, number: int) -> Path:
        """The folder of a worker's volume on this machine."""
        return self.running.folder / f"{self.place.name}-{number}"

    def send(self, count: int, tag: str) -> None:
        """Send events with the current time, each from a trip of its own."""
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap})
        now = datetime.now(UTC).isoformat()
        for n in range(count):
            event = {"trip": f"{tag}-{n}", "at": now, "zone": f"zone {n % 4}"}
            producer.produce(RAW, json.dumps(event))
        assert producer.flush(60) == 0

    def released(self, isolation: str = "read_committed") -> list[Row]:
        """All records of the release topic."""
        return releases(isolation, self.kafka.bootstrap, RELEASES)

    def goes_on(self) -> None:
        """Wait for a release of events that are sent now."""
        before = newest(self.released())
        self.send(4000, str(time.monotonic_ns()))
        until(lambda: newest(self.released()) > before, "the next release")

    def pod(self, number: int) -> Resource:
        """The pod of a worker."""
        return self.place.one("pods", f"hush-{number}")

    def status(self, number: int) -> Resource:
        """The kubelet's status of a worker's container."""
        (found,) = self.pod(number)["status"]["containerStatuses"]
        return dict(found)

    def process(self, number: int) -> int:
        """Process of a worker on this machine."""
        return self.running.process(self.pod(number))

    def logs(self, number: int) -> str:
        """The log of a worker so far."""
        folders = (self.running.folder / "logs").glob(f"{self.place.name}_hush-{number}_*/worker")
        return "".join(one.read_text("utf-8") for folder in folders for one in folder.iterdir())

    def both_ready(self) -> bool:
        """Tell whether both workers serve."""
        return all(ready(self.pod(n)) for n in range(2))


def _volume(path: Path) -> Resource:
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NAME]}
    return {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain", "local": {"path": str(path)},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
    }  # fmt: skip

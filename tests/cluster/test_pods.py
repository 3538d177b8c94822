"""The chart with pods that run: its image, volumes, probes and rights under a real kubelet."""

from __future__ import annotations

import base64
import json
import os
import secrets
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from hushstream.deploy.broker import Broker
from hushstream.deploy.settings import HOST, free_port

from ..e2e.engine import docker
from ..e2e.judge import Row, forms_of_key, newest, releases, second_releases
from ..e2e.standins import lent
from ..tree import ROOT
from . import node as machine
from . import programs
from .api import Resource
from .control_plane import ControlPlane, control_plane, until
from .kubelets import ready
from .node import GATEWAY, NAME, Node, node
from .place import Place

pytestmark = pytest.mark.slow
MISSING = programs.missing() or machine.missing()
needs_node = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
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


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("plane")) as found:
        yield found


@pytest.fixture(scope="module")
def running(plane: ControlPlane) -> Iterator[Node]:
    with lent():
        words = ["-q", "-f", str(ROOT / "deploy" / "Dockerfile"), "-t", f"{IMAGE}:{TAG}"]
        docker("build", *words, str(ROOT), timeout=1800)
    with node(plane) as found:
        found.take(f"{IMAGE}:{TAG}")
        yield found


@pytest.fixture
def pods_port() -> int:
    return free_port()


@pytest.fixture
def kafka(running: Node, pods_port: int) -> Iterator[Broker]:
    """A broker that pods reach at the address of their bridge."""
    port, controller = free_port(), free_port()
    at = f"PLAINTEXT://{HOST}:{port},PODS://{GATEWAY}:{pods_port}"
    overrides = {
        "listeners": f"{at},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": at,
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PODS:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
    with Broker(port=port, quiet=True, overrides=overrides) as found:
        admin = AdminClient({"bootstrap.servers": found.bootstrap})
        admin.create_topics([NewTopic(RAW, 2, 1)])[RAW].result(60)
        yield found


class Shop:
    """One deployment by the chart, and what it releases.

    Args:
        place: its namespace.
        running: the machine.
        kafka: the broker.
        port: its port for pods.
    """

    def __init__(self, place: Place, running: Node, kafka: Broker, port: int) -> None:
        self.place, self.running, self.kafka, self._port = place, running, kafka, port
        self.key = secrets.token_hex(32)
        told = {"noise_key": base64.b64encode(self.key.encode()).decode()}
        self._make("v1", "Secret", "hush-noise-key", data=told)
        for number in range(2):
            path = running.folder / f"volume-{number}"
            path.mkdir(mode=0o755)
            self._make("v1", "PersistentVolume", f"local-{number}", spec=_volume(path))

    def _make(self, version: str, kind: str, name: str, **rest: Any) -> None:
        head = {"apiVersion": version, "kind": kind, "metadata": {"name": name}}
        self.place.apply(json.dumps(head | rest))

    def values(self, **more: Any) -> dict[str, Any]:
        """Values of the chart; what it says by default stays where nothing stands against it."""
        small = {"cpu": "100m", "memory": "256Mi", "ephemeral-storage": "64Mi"}
        return {
            "image": {"repository": f"docker.io/{IMAGE}", "tag": TAG, "pullPolicy": "Never"},
            "kafka": {"bootstrap": f"{GATEWAY}:{self._port}"},
            "config": {"toml": TEXT},
            "storage": {"size": "1Gi"},
            "resources": {"requests": small},
            **more,
        }

    def send(self, count: int, tag: str) -> None:
        """Write events of now, each of a trip of its own."""
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap})
        now = datetime.now(UTC).isoformat()
        for n in range(count):
            event = {"trip": f"{tag}-{n}", "at": now, "zone": f"zone {n % 4}"}
            producer.produce(RAW, json.dumps(event))
        assert producer.flush(60) == 0

    def released(self, isolation: str = "read_committed") -> list[Row]:
        """All records of releases."""
        return releases(isolation, self.kafka.bootstrap, RELEASES)

    def goes_on(self) -> None:
        """Wait for a release of events that are sent now."""
        before = newest(self.released())
        self.send(4000, str(time.monotonic_ns()))
        until(lambda: newest(self.released()) > before, "the next release")

    def pod(self, number: int) -> Resource:
        """One worker."""
        return self.place.one("pods", f"hush-{number}")

    def status(self, number: int) -> Resource:
        """What the kubelet says of a worker's container."""
        (found,) = self.pod(number)["status"]["containerStatuses"]
        return dict(found)

    def process(self, number: int) -> int:
        """Process of a worker on this machine."""
        name = self.status(number)["containerID"].removeprefix("containerd://")
        lines = self.running.ctr("tasks", "list").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(name))

    def logs(self, number: int) -> str:
        """What a worker has said so far."""
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


@pytest.fixture
def shop(plane: ControlPlane, running: Node, kafka: Broker, pods_port: int, tmp_path: Path) -> Shop:
    place = Place(plane, "shop", tmp_path)
    accounts = "/api/v1/namespaces/shop/serviceaccounts"
    until(lambda: plane.api.items(accounts), "the namespace has its account")
    return Shop(place, running, kafka, pods_port)


@pytest.fixture
def installed(shop: Shop) -> Shop:
    with timed("installed and ready"):
        shop.place.put("install", shop.values())
    assert shop.place.settled()
    shop.send(4000, "first")
    until(lambda: any(row.is_row for row in shop.released()), "rows in a release")
    return shop


@contextmanager
def timed(step: str) -> Iterator[None]:
    """Print how long a step took."""
    begin = time.monotonic()
    yield
    print(f"{step}: {time.monotonic() - begin:.1f} s")


@needs_node
def test_pods_of_the_chart_release_each_trigger_once_whatever_happens(installed: Shop) -> None:
    shop, place = installed, installed.place
    _confined(shop)
    volumes = place.volumes()

    os.kill(shop.process(0), signal.SIGKILL)
    with timed("after a crash, ready again"):
        until(lambda: shop.status(0)["restartCount"] == 1 and shop.both_ready(), "it is back")
    shop.goes_on()

    path = f"/api/v1/namespaces/{place.name}/pods"
    before = place.api.get(path)["metadata"]["resourceVersion"]
    with timed("rolling restart of two workers"):
        place.put("upgrade", shop.values(podAnnotations={"restarted": "1"}))
    assert place.settled() and place.volumes() == volumes
    after = place.api.get(path)["metadata"]["resourceVersion"]
    assert _exits(place, path, before, after) == {"hush-0": {0}, "hush-1": {0}}
    shop.goes_on()

    _without_a_broker(shop)
    shop.goes_on()

    with timed("uninstalled"):
        place.helm("uninstall", "hush", "--wait")
        until(lambda: not place.pods(), "no worker is left")
    with timed("installed again, ready on the same volumes"):
        place.put("install", shop.values())
    assert place.volumes() == volumes
    shop.goes_on()
    assert second_releases(shop.released(), shop.released("read_uncommitted")) == []


def _confined(shop: Shop) -> None:
    """Hold what the kernel says of the processes against what the chart asks for."""
    told = json.dumps(shop.place.items("pods")) + json.dumps(shop.place.items("events"))
    for number in range(2):
        found = dict(
            line.split(":\t", 1)
            for line in Path(f"/proc/{shop.process(number)}/status").read_text().splitlines()
        )
        assert set(found["Uid"].split()) == set(found["Gid"].split()) == {"10001"}
        assert int(found["CapEff"], 16) == int(found["CapBnd"], 16) == 0
        assert (found["NoNewPrivs"], found["Seccomp"]) == ("1", "2")
        mounts = Path(f"/proc/{shop.process(number)}/mounts").read_text().splitlines()
        options = {line.split()[1]: line.split()[3].split(",") for line in mounts}
        assert options["/"][0] == options["/etc/hush"][0] == "ro" and options["/data"][0] == "rw"
        assert "/var/run/secrets/kubernetes.io/serviceaccount" not in options
        assert (shop.running.folder / f"volume-{number}").stat().st_gid == 10001
        told += shop.logs(number)
    assert "hush-0" in told and not any(form in told for form in forms_of_key(shop.key))


def _exits(place: Place, path: str, before: str, after: str) -> dict[str, set[int]]:
    """Codes with which the containers of pods have ended between two versions of the list."""
    found = defaultdict(set)
    for event in place.api.since(path, before, after):
        for one in event["object"]["status"].get("containerStatuses", ()):
            ended = one["state"].get("terminated") if one["name"] == "worker" else None
            if ended and event["object"]["metadata"].get("deletionTimestamp"):
                found[event["object"]["metadata"]["name"]].add(ended["exitCode"])
    return dict(found)


def _without_a_broker(shop: Shop) -> None:
    """While no broker answers, no worker is ready, and none is restarted for that."""
    assert shop.kafka.pid is not None
    restarts = [shop.status(number)["restartCount"] for number in range(2)]
    os.kill(shop.kafka.pid, signal.SIGSTOP)
    try:
        with timed("broker away: no worker is ready"):
            until(lambda: not any(ready(shop.pod(n)) for n in range(2)), "none is ready")
        time.sleep(75)  # longer than the probe of life is patient
    finally:
        os.kill(shop.kafka.pid, signal.SIGCONT)
    with timed("broker back: both are ready"):
        until(shop.both_ready, "both are ready")
    assert [shop.status(number)["restartCount"] for number in range(2)] == restarts

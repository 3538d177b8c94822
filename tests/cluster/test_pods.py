"""The chart with running pods: its image, volumes, probes and rights under a real kubelet."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from hushstream.deploy.broker import Broker
from hushstream.deploy.settings import HOST, free_port

from ..e2e.engine import docker
from ..e2e.judge import second_releases, texts_of_key
from ..e2e.standins import lent
from ..tree import ROOT
from . import node as machine
from . import programs
from .control_plane import ControlPlane, control_plane, until
from .kubelets import ready
from .node import GATEWAY, Node, node
from .place import Place
from .policies import Outsider, enforcer, reaches
from .shop import IMAGE, RAW, TAG, Shop

pytestmark = pytest.mark.slow
MISSING = programs.missing() or machine.missing()
needs_node = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
PUBLIC, EXACT = 9464, 9465  # ports of a worker's metrics


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
    """A broker that pods reach at their bridge's address."""
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


@pytest.fixture
def shop(plane: ControlPlane, running: Node, kafka: Broker, pods_port: int, tmp_path: Path) -> Shop:
    place = Place(plane, f"shop-{pods_port}", tmp_path)
    accounts = f"/api/v1/namespaces/{place.name}/serviceaccounts"
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
    """Print the duration of a step."""
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
    """Compare what the kernel reports about the processes with what the chart asks for."""
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
        assert shop.volume(number).stat().st_gid == 10001
        told += shop.logs(number)
    assert "hush-0" in told and not any(text in told for text in texts_of_key(shop.key))


def _exits(place: Place, path: str, before: str, after: str) -> dict[str, set[int]]:
    """Exit codes of the pods' containers between two versions of the list."""
    found = defaultdict(set)
    for event in place.api.since(path, before, after):
        for one in event["object"]["status"].get("containerStatuses", ()):
            ended = one["state"].get("terminated") if one["name"] == "worker" else None
            if ended and event["object"]["metadata"].get("deletionTimestamp"):
                found[event["object"]["metadata"]["name"]].add(ended["exitCode"])
    return dict(found)


def _without_a_broker(shop: Shop) -> None:
    """While no broker answers, no worker is ready, and none is restarted because of that."""
    assert shop.kafka.pid is not None
    restarts = [shop.status(number)["restartCount"] for number in range(2)]
    os.kill(shop.kafka.pid, signal.SIGSTOP)
    try:
        with timed("broker away: no worker is ready"):
            until(lambda: not any(ready(shop.pod(n)) for n in range(2)), "none is ready")
        time.sleep(75)  # longer than the liveness probe's patience
    finally:
        os.kill(shop.kafka.pid, signal.SIGCONT)
    with timed("broker back: both are ready"):
        until(shop.both_ready, "both are ready")
    assert [shop.status(number)["restartCount"] for number in range(2)] == restarts


@needs_node
def test_the_network_policy_lets_through_what_it_names_and_nothing_else(
    shop: Shop, plane: ControlPlane, tmp_path: Path
) -> None:
    image = f"docker.io/{IMAGE}:{TAG}"
    strangers, operators = (
        Outsider(Place(plane, name, tmp_path, labels), shop.running, image, shop.port)
        for name, labels in (("strangers", {}), ("operators", {"hushstream/operators": "true"}))
    )
    policy = {"kafkaPorts": [shop.port], "kafkaTo": [{"ipBlock": {"cidr": f"{GATEWAY}/32"}}]}
    with (
        enforcer(plane, shop.running),
        closing(socket.create_server((GATEWAY, 53))),
        closing(socket.create_server((GATEWAY, 0))) as other,
    ):

        def refused() -> set[str]:
            own, second = shop.process(0), shop.pod(1)["status"]["podIP"]
            tries = {
                "strangers to public metrics": (strangers.process(), second, PUBLIC),
                "strangers to exact metrics": (strangers.process(), second, EXACT),
                "operators to public metrics": (operators.process(), second, PUBLIC),
                "operators to exact metrics": (operators.process(), second, EXACT),
                "a worker to another's exact metrics": (own, second, EXACT),
                "a worker to Kafka": (own, GATEWAY, shop.port),
                "a worker to a server of names": (own, GATEWAY, 53),
                "a worker to another port there": (own, GATEWAY, other.getsockname()[1]),
                "a worker to Kafka's port elsewhere": (own, strangers.address(), shop.port),
            }
            return {name for name, (who, address, port) in tries.items()
                    if not reaches(who, address, port)}  # fmt: skip

        shop.place.put("install", shop.values(networkPolicy=policy))
        shop.goes_on()
        wanted = {
            "strangers to exact metrics", "a worker to another's exact metrics",
            "a worker to another port there", "a worker to Kafka's port elsewhere",
        }  # fmt: skip
        until(lambda: refused() == wanted, "the policy is in force", 60)
        shop.goes_on()

        # Without the policy, the same attempts succeed, so it is the policy that refuses them.
        everywhere = {"networkPolicy": {"enabled": False}, "metrics": {"operatorHost": "0.0.0.0"}}
        shop.place.put("upgrade", shop.values(**everywhere))
        until(lambda: not refused(), "nothing is refused", 60)
        shop.goes_on()

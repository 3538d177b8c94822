"""The manifests and the chart on a real API server, with its admission and its controllers.

No machine runs pods here: a stand-in for the kubelets reports them as ready. Everything else is
real: the server's refusals and warnings, the chart's hooks, and the order in which pods are
replaced. Pods run in `test_pods.py`.
"""

from __future__ import annotations

import doctest
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from ..deploy.test_kubernetes import CHART, PLAIN, SECURED
from . import api as api_module
from . import programs
from .api import Api, Refused, Resource, documents
from .control_plane import ControlPlane, control_plane, until
from .kubelets import Kubelets, ready
from .place import WORKERS, Place

pytestmark = pytest.mark.slow
MISSING = programs.missing()
needs_server = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
TEXT = '[deployment]\nname = "shop"\n'
CASES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "secured": SECURED,
    "bare": {
        "name": "other",
        "replicas": 1,
        "config": {"toml": TEXT},
        "topics": {"enabled": False},
        "networkPolicy": {"enabled": False},
        "topologyKeys": [],
    },
    "placed": {
        "replicas": 3,
        "processes": 4,
        "maxUnavailable": "34%",
        "image": {"tag": "1.2.3", "pullPolicy": "Always", "pullSecrets": [{"name": "registry"}]},
        "kafka": {"securityProtocol": "SSL", "tls": {"caSecret": "ca", "clientSecret": "own"}},
        "storage": {"size": "5Gi", "className": "fast"},
        "nodeSelector": {"disk": "local"},
        "tolerations": [{"key": "kafka", "operator": "Exists", "effect": "NoSchedule"}],
        "podLabels": {"team": "data"},
        "podAnnotations": {"note": "x"},
    },
}
NEWER: dict[str, Any] = {  # an operator changes these
    "image": {"tag": "9.9.9"},
    "config": {"toml": TEXT + "# another text\n"},
    "resources": {"limits": {"memory": "3Gi", "ephemeral-storage": "1Gi"}},
}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("plane")) as found:
        for path in programs.types():
            found.api.apply(path.read_text("utf-8"), "")
        for path in programs.types():
            defined = yaml.safe_load(path.read_text("utf-8"))
            until(partial(_serves, found.api, defined), f"{path.name} is served")
        yield found


def _serves(api: Api, defined: Resource) -> bool:
    try:
        for version in defined["spec"]["versions"]:
            if version["served"]:
                api.items(f"/apis/{defined['spec']['group']}/{version['name']}/"
                          f"{defined['spec']['names']['plural']}")  # fmt: skip
    except Refused:
        return False
    return True


@pytest.fixture(scope="module")
def kubelets(plane: ControlPlane) -> Iterator[Kubelets]:
    one = Kubelets(plane.api)
    yield one
    one.end()


@pytest.fixture
def place(
    plane: ControlPlane, kubelets: Kubelets, request: pytest.FixtureRequest, tmp_path: Path
) -> Place:
    name = "".join(c if c.isalnum() else "-" for c in request.node.name.lower())[-60:].strip("-")
    found = Place(plane, name, tmp_path)
    accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
    until(lambda: plane.api.items(accounts), "the namespace has its account")
    return found


@pytest.mark.parametrize("module", [api_module, programs], ids=lambda m: m.__name__)
def test_examples(module: Any) -> None:
    done = doctest.testmod(module)
    assert done.attempted and not done.failed


@needs_server
def test_the_plain_manifests_are_taken_without_a_warning(place: Place) -> None:
    texts = documents(PLAIN.read_text("utf-8"))
    assert len(texts) == 5
    assert [place.apply(text) for text in texts] == [[]] * 5
    until(place.settled, "two workers are ready")
    (job,) = place.items("jobs", "apis/batch/v1")
    until(lambda: place.items("jobs", "apis/batch/v1")[0]["status"].get("succeeded"), "topics")
    assert len(place.volumes()) == 2
    before = place.workers()["metadata"]["generation"]
    assert [place.apply(text) for text in texts] == [[]] * 5  # the second time changes nothing
    assert place.workers()["metadata"]["generation"] == before
    assert place.items("jobs", "apis/batch/v1")[0]["metadata"]["uid"] == job["metadata"]["uid"]


@needs_server
def test_another_version_of_the_plain_manifests_needs_the_job_deleted(place: Place) -> None:
    for text in documents(PLAIN.read_text("utf-8")):
        place.apply(text)
    until(place.settled, "two workers are ready")
    texts = documents(PLAIN.read_text("utf-8").replace('"hushstream:0.1.0"', '"hushstream:9.9.9"'))
    (job,) = (text for text in texts if "kind: Job" in text)
    with pytest.raises(Refused, match="field is immutable"):
        place.apply(job)
    path = f"/apis/batch/v1/namespaces/{place.name}/jobs/hush-topics"
    place.api.call("DELETE", path, propagationPolicy="Background")
    until(lambda: not place.items("jobs", "apis/batch/v1"), "the Job is gone")
    assert [place.apply(text) for text in texts] == [[]] * 5
    until(place.settled, "two workers of the new version are ready")


@needs_server
@pytest.mark.parametrize("case", sorted(CASES))
def test_the_chart_is_installed_upgraded_and_removed(case: str, place: Place) -> None:
    values = CASES[case]
    name = values.get("name", "hush")
    text = place.helm("template", "hush", str(CHART), "--validate", values=values)
    for one in documents(text):
        assert place.apply(one, dryRun="All") == []
    place.put("install", values)
    assert place.settled(name)
    first, volumes = place.workers(name), place.volumes()
    assert len(volumes) == first["spec"]["replicas"]
    place.put("upgrade", _merged(values, NEWER))
    assert place.settled(name)
    second = place.workers(name)
    assert second["metadata"]["uid"] == first["metadata"]["uid"]
    assert second["metadata"]["generation"] > first["metadata"]["generation"]
    (container,) = second["spec"]["template"]["spec"]["containers"]
    assert container["image"].endswith(":9.9.9")
    assert place.one("configmaps", f"{name}-config")["data"]["hush.toml"].endswith("text\n")
    assert place.volumes() == volumes
    place.helm("uninstall", "hush", "--wait")
    assert place.items("statefulsets", "apis/apps/v1") == []
    until(lambda: not place.items("pods", labelSelector=WORKERS),
          "no worker is left")  # fmt: skip
    assert place.volumes() == volumes  # they may be the only evidence of a rewound cluster


def _merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    both = {**one, **other}
    for name in one.keys() & other.keys():
        if isinstance(one[name], dict):
            both[name] = _merged(one[name], other[name])
    return both


@needs_server
def test_an_upgrade_replaces_one_worker_after_the_other(place: Place) -> None:
    values = {"replicas": 3}
    place.put("install", values)
    path = f"/api/v1/namespaces/{place.name}/pods"
    before = place.api.get(path, labelSelector=WORKERS)
    place.put("upgrade", _merged(values, NEWER))
    after = place.api.get(path, labelSelector=WORKERS)
    serving = {pod["metadata"]["name"]: ready(pod) for pod in before["items"]}
    assert serving == {f"hush-{number}": True for number in range(3)}
    versions = [found["metadata"]["resourceVersion"] for found in (before, after)]
    fewest, replaced = 3, set()
    for event in place.api.since(path, *versions):
        pod = event["object"]
        if pod["metadata"]["labels"].get("app.kubernetes.io/component") != "worker":
            continue
        gone = event["type"] == "DELETED"
        serving[pod["metadata"]["name"]] = not gone and ready(pod)
        replaced |= {pod["metadata"]["name"]} if gone else set()
        fewest = min(fewest, sum(serving.values()))
    assert replaced == set(serving)
    assert fewest == 2


@needs_server
def test_a_rollback_brings_back_the_configuration_too(place: Place) -> None:
    values = {"config": {"toml": TEXT}}
    place.put("install", values)
    first = place.workers()
    place.put("upgrade", _merged(values, NEWER))
    place.helm("rollback", "hush", "1", "--wait", "--timeout", "8m")
    assert place.settled()
    assert place.workers()["spec"]["template"] == first["spec"]["template"]
    assert place.one("configmaps", "hush-config")["data"]["hush.toml"] == TEXT


@needs_server
def test_a_disruption_takes_one_worker_at_a_time(place: Place, kubelets: Kubelets) -> None:
    place.put("install", {})
    budget = partial(place.one, "poddisruptionbudgets", "hush", "apis/policy/v1")
    until(lambda: budget()["status"].get("disruptionsAllowed") == 1, "the budget is counted")

    def evict(name: str) -> None:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        path = f"/api/v1/namespaces/{place.name}/pods/{name}/eviction"
        place.api.call("POST", path, json.dumps(body).encode())

    with kubelets.held():
        evict("hush-0")
        with pytest.raises(Refused, match="disruption budget") as caught:
            evict("hush-1")
        assert caught.value.status == 429
    until(lambda: budget()["status"].get("disruptionsAllowed") == 1, "hush-0 is back")
    evict("hush-1")


@needs_server
def test_volumes_grow_in_the_steps_of_the_docs(place: Place) -> None:
    place.put("install", {})
    volumes = place.volumes()
    larger = {"storage": {"size": "40Gi"}}
    done = place.try_helm("upgrade", "hush", str(CHART), values=larger)
    assert done.returncode != 0 and "spec: Forbidden: updates to statefulset spec" in done.stderr
    path = f"/apis/apps/v1/namespaces/{place.name}/statefulsets/hush"
    place.api.call("DELETE", path, propagationPolicy="Orphan")
    until(lambda: not place.items("statefulsets", "apis/apps/v1"), "the set is gone")
    pods = place.pods()
    assert len(pods) == 2
    place.put("upgrade", larger)
    assert place.settled() and place.volumes() == volumes
    assert place.pods() == pods
    (claim,) = place.workers()["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "40Gi"


@needs_server
def test_two_deployments_share_a_namespace(place: Place) -> None:
    place.put("install", {"replicas": 1})
    other = {"name": "other", "replicas": 1, "config": {"existingConfigMap": "other-config"}}
    place.helm("install", "other", str(CHART), "--wait", "--timeout", "8m", values=other)
    assert place.settled() and place.settled("other")
    pods = place.items("pods", labelSelector=WORKERS)
    owners = {
        pod["metadata"]["name"]: pod["metadata"]["ownerReferences"][0]["name"] for pod in pods
    }
    assert owners == {"hush-0": "hush", "other-0": "other"}


@needs_server
@pytest.mark.parametrize(
    ("wrong", "right", "told"),
    [
        ("  podManagementPolicy", "  podManagmentPolicy", "field not declared"),
        ("  serviceName: hush\n", "  serviceName: hush\n  serviceName: hush\n", "already set"),
        (
            "  podManagementPolicy: Parallel",
            "  podManagementPolicy: Wild",
            "must be 'OrderedReady'",
        ),
    ],
)
def test_a_mistake_would_be_refused(wrong: str, right: str, told: str, place: Place) -> None:
    (text,) = (t for t in documents(PLAIN.read_text("utf-8")) if "kind: StatefulSet" in t)
    assert wrong in text
    with pytest.raises(Refused, match=told):
        place.apply(text.replace(wrong, right, 1))


@needs_server
def test_a_right_too_many_would_be_warned_of(place: Place) -> None:
    (text,) = (t for t in documents(PLAIN.read_text("utf-8")) if "kind: StatefulSet" in t)
    (told,) = place.apply(text.replace("runAsNonRoot: true", "runAsNonRoot: false"))
    assert 'would violate PodSecurity "restricted' in told

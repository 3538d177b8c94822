"""The chart for Kubernetes: which pods hold which secrets, and what the live page has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hushstream.errors import ConfigError
from hushstream.topics.config.access.secret import read_key

from ..tree import ROOT
from .test_kubernetes import (
    SECURED,
    VERSION,
    agreed,
    confined,
    environment,
    needs_helm,
    rendered,
    secrets_of,
)

SOURCE = ROOT / "deploy" / "grafana" / "provisioning" / "datasources" / "live.yaml"
KINDS = {"StatefulSet", "Job"}  # of pods with keys


@needs_helm
def test_further_secrets_reach_workers_and_the_job_but_never_the_live_page(tmp_path: Path) -> None:
    password = {"secretKeyRef": {"name": "registry", "key": "password"}}
    more = {
        "extraEnv": [{"name": "HUSH_REGISTRY__PASSWORD", "valueFrom": password}],
        "extraSecrets": ["second-key", "aws.creds"],
        "serviceAccountName": "reads-copies",
        "live": {"enabled": True},
    }
    text = rendered(tmp_path, more)
    wanted = KINDS | {"Deployment"}
    parted = (part for part in yaml.safe_load_all(text) if part and part["kind"] in wanted)
    found = {part["kind"]: part for part in parted}
    for part in found.values():
        pytest.importorskip("kubernetes_validate").validate(part, VERSION, strict=True)
    for kind in KINDS:
        pod = found[kind]["spec"]["template"]["spec"]
        container = confined(pod)  # read-only, and with the mode of all keys
        assert more["extraEnv"][0] in container["env"]  # type: ignore[index]
        assert pod["serviceAccountName"] == "reads-copies"
        places = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
        secrets = {places[v["name"]]: v["secret"] for v in pod["volumes"] if "secret" in v}
        second = secrets["/run/secrets/extra/second-key"]
        assert second["secretName"] == "second-key"
        assert secrets["/run/secrets/extra/aws.creds"]["secretName"] == "aws.creds"
        own = tmp_path / "second.key"  # as the kubelet writes it, for the group `fsGroup`
        own.write_text(bytes(range(32)).hex())
        own.chmod(second["defaultMode"])
        assert read_key(own) == bytes(range(32))
        own.chmod(0o644)  # a ConfigMap's
        with pytest.raises(ConfigError, match="others have access"):
            read_key(own)
    page = found["Deployment"]["spec"]["template"]["spec"]
    assert secrets_of(found["Deployment"]) == set() and "serviceAccountName" not in page
    assert "HUSH_REGISTRY__PASSWORD" not in {e["name"] for e in page["containers"][0]["env"]}


def _of_live(folder: Path, values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Resources of the live page by kind, checked against Kubernetes's schemas."""
    checker = pytest.importorskip("kubernetes_validate")
    found = {}
    for part in yaml.safe_load_all(rendered(folder, values)):
        labels = (part or {}).get("metadata", {}).get("labels", {})
        if labels.get("app.kubernetes.io/component") == "live":
            checker.validate(part, VERSION, strict=True)
            found[part["kind"]] = part
    return found


@needs_helm
def test_the_live_page_has_no_key_and_grafana_reads_nothing_else(tmp_path: Path) -> None:
    sasl = {"username": "reader", "existingSecret": "hush-reader"}
    own = {"enabled": True, "sasl": sasl, "tls": {"clientSecret": "hush-reader-client"}}
    found = _of_live(tmp_path, SECURED | {"live": own})
    assert set(found) == {"Deployment", "Service", "NetworkPolicy", "ConfigMap"}
    pod = found["Deployment"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert secrets_of(found["Deployment"]) == {"hush-reader", "kafka-ca", "hush-reader-client"}
    assert {m["name"] for m in container["volumeMounts"]} == {
        volume["name"] for volume in pod["spec"]["volumes"]
    }
    assert not [name for name in environment(container) if name.endswith("_KEY_FILE")]
    assert environment(container)["HUSH_KAFKA__SASL_USERNAME"] == "reader"
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
    port = int(container["args"][container["args"].index("--port") + 1])
    service, policy = found["Service"]["spec"], found["NetworkPolicy"]["spec"]
    assert [one["port"] for one in service["ports"]] == [port]
    assert [one["containerPort"] for one in container["ports"]] == [port]
    assert [rule["ports"] for rule in policy["ingress"]] == [[{"port": port}]]
    for selector in (service["selector"], policy["podSelector"]["matchLabels"]):
        assert selector == pod["metadata"]["labels"]
    shipped = yaml.safe_load(SOURCE.read_text("utf-8"))
    rendered_source = yaml.safe_load(found["ConfigMap"]["data"]["hush-live.yaml"])
    url = f"http://{found['Service']['metadata']['name']}.default:{port}"
    (source,) = shipped["datasources"]
    source |= {"url": url, "jsonData": {"allowedHosts": [f"{url}/"]}}
    assert rendered_source == shipped


@needs_helm
def test_the_job_has_the_workers_certificate_unless_it_has_its_own(tmp_path: Path) -> None:
    kafka = {"securityProtocol": "SSL", "tls": {"clientSecret": "worker-cert"}}
    found = agreed(rendered(tmp_path, {"kafka": kafka}))
    assert secrets_of(found["Job"]) == {"hush-noise-key", "worker-cert"}
    own = {"topics": {"tls": {"clientSecret": "admin-cert"}}}
    found = agreed(rendered(tmp_path, {"kafka": kafka} | own))
    assert secrets_of(found["Job"]) == {"hush-noise-key", "admin-cert"}
    assert secrets_of(found["StatefulSet"]) == {"hush-noise-key", "worker-cert"}


@needs_helm
def test_there_is_no_live_page_unless_it_is_asked_for(tmp_path: Path) -> None:
    assert _of_live(tmp_path, SECURED) == {}
    found = _of_live(tmp_path, {"live": {"enabled": True}, "networkPolicy": {"enabled": False}})
    assert set(found) == {"Deployment", "Service", "ConfigMap"}

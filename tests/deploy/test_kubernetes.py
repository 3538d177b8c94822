"""The manifests and the chart for Kubernetes: valid, confined, and consistent.

A real `helm` lints and renders the chart where it is installed or was built by `make cluster`.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hushstream.agents.worker.startup import LEAVE_SECONDS
from hushstream.errors import ConfigError
from hushstream.topics.config.load import load

from ..cluster.programs import program
from ..tree import ROOT

HELM = shutil.which("helm") or program("helm")
CHART = ROOT / "deploy" / "kubernetes" / "chart"
PLAIN = ROOT / "deploy" / "kubernetes" / "hush.yaml"
VERSION = "1.31"
SECURED = {
    "replicas": 3,
    "processes": 2,
    "config": {"toml": '[deployment]\nname = "shop"\n'},
    "kafka": {
        "bootstrap": "broker-0:9093,broker-1:9093",
        "securityProtocol": "SASL_SSL",
        "sasl": {
            "mechanism": "OAUTHBEARER",
            "username": "hush-worker",
            "existingSecret": "hush-worker",
            "tokenUrl": "https://id.example/token",
            "tokenScope": "kafka",
        },
        "tls": {"caSecret": "kafka-ca", "clientSecret": "hush-client"},
    },
    "noiseKey": {"existingSecret": "hush-noise-key", "key": "k", "external": {"enabled": True}},
    "signingKey": {"existingSecret": "hush-signing", "key": "s", "external": {"enabled": True}},
    "ratchet": {"enabled": True},
    "topics": {
        "sasl": {"username": "hush-admin", "existingSecret": "hush-admin"},
        "tls": {"clientSecret": "hush-admin-client"},
    },
    "metrics": {"podMonitor": {"enabled": True, "labels": {"team": "data"}}},
    "networkPolicy": {
        "kafkaPorts": [9093],
        "kafkaTo": [{"namespaceSelector": {"matchLabels": {"name": "kafka"}}}],
        "moreEgress": [{"ports": [{"port": 443}]}],
    },
}
SASL = {
    "securityProtocol": "SASL_SSL",
    "sasl": {"mechanism": "PLAIN", "username": "worker", "existingSecret": "worker"},
}
needs_helm = pytest.mark.skipif(
    HELM is None, reason="helm is not installed: `go install helm.sh/helm/v3/cmd/helm@v3.21.4`"
)


def _helm(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [HELM or "", *words], capture_output=True, text=True, check=False, timeout=120
    )


def rendered(folder: Path, values: dict[str, Any]) -> str:
    """The chart rendered with some values."""
    (folder / "values.yaml").write_text(yaml.safe_dump(values))
    done = _helm("template", "hush", str(CHART), "--kube-version", VERSION,
                 "-f", str(folder / "values.yaml"))  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def parts(text: str) -> dict[str, dict[str, Any]]:
    """Resources by kind; there is one of each, except external secrets."""
    found = [part for part in yaml.safe_load_all(text) if part]
    single = [part["kind"] for part in found if part["kind"] != "ExternalSecret"]
    assert len(set(single)) == len(single)
    return {part["kind"]: part for part in found}


def valid(text: str) -> Iterator[str]:
    """Check resources against Kubernetes's own schemas; yield kinds without a schema."""
    checker = pytest.importorskip("kubernetes_validate")
    for part in parts(text).values():
        try:
            checker.validate(part, VERSION, strict=True)
        except checker.SchemaNotFoundError:
            yield part["kind"]


def confined(pod: dict[str, Any]) -> dict[str, Any]:
    """Check the rights and mounts of a pod; return its container."""
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert {"ephemeral-storage", "memory"} <= container["resources"]["limits"].keys()
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted - {"tables"} == {volume["name"] for volume in pod["volumes"]}
    modes = {v["name"]: v["secret"].get("defaultMode") for v in pod["volumes"] if "secret" in v}
    assert {mode for name, mode in modes.items() if name.endswith("-key")} == {0o440}
    for mount in container["volumeMounts"]:
        assert mount.get("readOnly", False) == (mount["name"] not in ("tables", "tmp"))
    for waiting in pod.get("initContainers", ()):
        assert waiting["securityContext"] == container["securityContext"]
    return container  # type: ignore[no-any-return]


def secrets_of(part: dict[str, Any]) -> set[str]:
    """Names of the Secrets that a pod holds."""
    volumes = part["spec"]["template"]["spec"]["volumes"]
    return {one["secret"]["secretName"] for one in volumes if "secret" in one}


def environment(container: dict[str, Any]) -> dict[str, str]:
    return {e["name"]: e["value"] for e in container["env"] if "value" in e}


def agreed(text: str) -> dict[str, dict[str, Any]]:
    """Check the properties of every rendering; return its parts."""
    found = parts(text)
    spec = found["StatefulSet"]["spec"]
    pod = spec["template"]["spec"]
    worker = confined(pod)
    confined(found["Job"]["spec"]["template"]["spec"])
    labels = spec["template"]["metadata"]["labels"]
    own = [spec["selector"], found["PodDisruptionBudget"]["spec"]["selector"]]
    own += [c["labelSelector"] for c in pod["topologySpreadConstraints"]]
    for selector in [*own, {"matchLabels": found["Service"]["spec"]["selector"]}]:
        assert selector["matchLabels"].items() <= labels.items()
        of_job = found["Job"]["spec"]["template"]["metadata"]["labels"]
        assert not selector["matchLabels"].items() <= of_job.items()
    assert pod["terminationGracePeriodSeconds"] > LEAVE_SECONDS
    paths = {name: worker[f"{name}Probe"]["httpGet"]["path"] for name in
             ("startup", "liveness", "readiness")}  # fmt: skip
    assert paths == {"startup": "/live", "liveness": "/live", "readiness": "/ready"}
    assert spec["volumeClaimTemplates"][0]["metadata"]["name"] == "tables"
    network = found["NetworkPolicy"]["spec"]
    assert set(network["policyTypes"]) == {"Ingress", "Egress"}
    public = [rule["ports"][0]["port"] for rule in network["ingress"] if "from" not in rule]
    assert public == [9464]
    load(ROOT / "deploy" / "compose" / "hush.toml", environ=environment(worker))
    return found


def test_the_plain_manifests_are_valid() -> None:
    text = PLAIN.read_text("utf-8")
    assert list(valid(text)) == []
    found = agreed(text)
    (container,) = found["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    config = load(ROOT / "deploy" / "compose" / "hush.toml", environ=environment(container))
    assert config.kafka.bootstrap == "kafka:9092" and config.engine.operator_host == "0.0.0.0"
    egress = found["NetworkPolicy"]["spec"]["egress"]
    assert [port["port"] for rule in egress for port in rule["ports"]] == [53, 53, 9092]


def test_a_mistake_in_a_manifest_would_be_found() -> None:
    checker = pytest.importorskip("kubernetes_validate")
    text = PLAIN.read_text("utf-8").replace("defaultMode: 288", "defaultMode: 0o440")
    with pytest.raises(checker.ValidationError):
        list(valid(text))


@needs_helm
def test_the_plain_manifests_are_what_the_chart_renders(tmp_path: Path) -> None:
    plain = PLAIN.read_text("utf-8")
    assert plain[plain.index("---\n") :] == rendered(tmp_path, {})


@needs_helm
def test_the_chart_has_no_faults() -> None:
    done = _helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr


@needs_helm
def test_a_secured_deployment(tmp_path: Path) -> None:
    text = rendered(tmp_path, SECURED)
    assert set(valid(text)) == {"PodMonitor", "ExternalSecret"}  # operators define these kinds
    found = agreed(text)
    (worker,) = found["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    config = load(ROOT / "deploy" / "compose" / "hush.toml", environ=environment(worker))
    assert config.kafka.sasl_mechanism == "OAUTHBEARER" and config.kafka.ssl_certfile
    assert worker["args"] == ["worker", "--member", "$(POD_NAME)", "--processes", "2"]
    (job,) = found["Job"]["spec"]["template"]["spec"]["containers"]
    assert environment(job)["HUSH_KAFKA__SASL_USERNAME"] == "hush-admin"
    keys = {"hush-noise-key", "hush-signing", "kafka-ca"}
    assert secrets_of(found["Job"]) == keys | {"hush-admin", "hush-admin-client"}
    assert secrets_of(found["StatefulSet"]) == keys | {"hush-worker", "hush-client"}
    assert found["ConfigMap"]["data"]["hush.toml"] == SECURED["config"]["toml"]  # type: ignore[index]
    jobs = {e["path"]: e["relabelings"][0]["replacement"]
            for e in found["PodMonitor"]["spec"]["podMetricsEndpoints"]}  # fmt: skip
    assert jobs == {"/metrics": "hush-public", "/internal/metrics": "hush-operator"}
    external = [part["spec"] for part in yaml.safe_load_all(text)
                if part and part["kind"] == "ExternalSecret"]  # fmt: skip
    made = {one["target"]["name"]: one["data"][0] for one in external}
    assert {name: one["secretKey"] for name, one in made.items()} == {
        "hush-noise-key": "k", "hush-signing": "s"
    }  # fmt: skip
    properties = {one["remoteRef"]["property"] for one in made.values()}
    assert len(properties) == 2  # both are in one entry of the store, so the keys must differ
    egress = found["NetworkPolicy"]["spec"]["egress"]
    assert egress[1]["ports"] == [{"port": 9093}] and egress[1]["to"] and len(egress) == 3


@needs_helm
def test_a_signed_deployment_reads_its_key_from_a_secret(tmp_path: Path) -> None:
    found = agreed(rendered(tmp_path, {"signingKey": {"existingSecret": "ours", "key": "hex"}}))
    for part in (found["StatefulSet"], found["Job"]):
        pod = part["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        place = Path(environment(container)["HUSH_SIGNING_KEY_FILE"])
        (volume,) = (m["name"] for m in container["volumeMounts"]
                     if m["mountPath"] == str(place.parent))  # fmt: skip
        (secret,) = (v["secret"] for v in pod["volumes"] if v["name"] == volume)
        assert secret["secretName"] == "ours"
        assert secret["items"] == [{"key": "hex", "path": place.name}]
    plain = rendered(tmp_path, {})
    assert "SIGNING" not in plain and "signing" not in plain  # a deployment may begin without a key


@needs_helm
def test_exact_metrics_leave_a_pod_only_where_a_policy_or_an_operator_says_so(
    tmp_path: Path,
) -> None:
    def served(**values: Any) -> tuple[str, bool, list[str]]:
        """Address of exact metrics, whether their port is named, and paths that are scraped."""
        values["metrics"] = {"podMonitor": {"enabled": True}} | values.get("metrics", {})
        found = parts(rendered(tmp_path, values))
        (worker,) = found["StatefulSet"]["spec"]["template"]["spec"]["containers"]
        config = load(ROOT / "deploy" / "compose" / "hush.toml", environ=environment(worker))
        scraped = [one["path"] for one in found["PodMonitor"]["spec"]["podMetricsEndpoints"]]
        named = "operator" in {port["name"] for port in worker["ports"]}
        return config.engine.operator_host, named, scraped

    both, off = ["/metrics", "/internal/metrics"], {"enabled": False}
    assert served() == ("0.0.0.0", True, both)
    assert served(networkPolicy=off) == ("127.0.0.1", False, ["/metrics"])
    own = {"operatorHost": "0.0.0.0"}
    assert served(networkPolicy=off, metrics=own) == ("0.0.0.0", True, both)


@needs_helm
def test_each_worker_waits_for_a_ratchet_in_its_own_volume(tmp_path: Path) -> None:
    found = agreed(rendered(tmp_path, {"ratchet": {"enabled": True}}))
    pod = found["StatefulSet"]["spec"]["template"]["spec"]
    (worker,), (waiting,) = pod["containers"], pod["initContainers"]
    secret = load(ROOT / "deploy" / "compose" / "hush.toml", environ=environment(worker)).secret
    (tables,) = waiting["volumeMounts"]
    assert tables in worker["volumeMounts"]
    assert tables["name"] == "tables"  # `agreed` checks that it is a persistent claim per worker
    for file in (secret.ratchet_file, secret.escrow_file):
        assert file.startswith(f"{tables['mountPath']}/ratchet/")
    # Run the script itself, with a folder in place of the volume.
    shell, flag, script = waiting["command"]
    words = [shell, flag, script.replace("/data/", f"{tmp_path}/").replace("sleep 5", "sleep 0.1")]
    running = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    assert "deploy/README.md" in running.stdout.readline() and running.poll() is None
    file = tmp_path / Path(secret.ratchet_file).relative_to("/data")
    assert file.parent.stat().st_mode & 0o777 == 0o700
    file.write_text("x")
    assert running.wait(20) == 0
    running.stdout.close()
    job = found["Job"]["spec"]["template"]["spec"]  # it needs only the public name
    assert "initContainers" not in job
    assert "HUSH_SECRET__RATCHET_FILE" not in environment(job["containers"][0])


@needs_helm
@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"signingKey": {"external": {"enabled": True}}}, "signingKey.existingSecret is needed"),
        ({"kafka": {"securityProtocol": "SASL_SSL"}}, "kafka.sasl.mechanism is needed"),
        ({"kafka": {"securityProtocol": "TLS"}}, "securityProtocol"),
        ({"image": {"tag": "latest"}}, "tag"),
        ({"terminationGracePeriodSeconds": 30}, "terminationGracePeriodSeconds"),
        ({"replica": 3}, "replica"),
        ({"extraSecrets": ["../hush"]}, "extraSecrets"),
        ({"live": {"enabled": True}, "kafka": SASL}, "live.sasl.username is needed"),
        (
            {"live": {"enabled": True}, "kafka": {"tls": {"clientSecret": "c"}}},
            "live.tls.clientSecret is needed",
        ),
        (
            {"kafka": {"bootstrap": "a:9092, b:9093"}},
            "kafkaPorts are 9092, and kafka.bootstrap names b:9093",
        ),
    ],
)
def test_values_that_would_not_do(values: dict[str, Any], told: str, tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    done = _helm("template", "hush", str(CHART), "--kube-version", VERSION,
                 "-f", str(tmp_path / "values.yaml"))  # fmt: skip
    assert done.returncode != 0 and told in done.stderr


def test_a_connection_without_its_secret_would_be_refused() -> None:
    environ = {"HUSH_KAFKA__SECURITY_PROTOCOL": "SASL_SSL", "HUSH_KAFKA__BOOTSTRAP": "k:1"}
    with pytest.raises(ConfigError, match="sasl_mechanism"):
        load(ROOT / "deploy" / "compose" / "hush.toml", environ=environ)

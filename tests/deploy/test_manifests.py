"""Compose, Prometheus, Grafana and Kubernetes files: they parse, agree, and ask for what exists.

Covers: deploy/dashboards.py
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hushstream.agents.cli.group import hush
from hushstream.agents.cli.topics import gaps
from hushstream.agents.cli.worker import worker
from hushstream.agents.worker.metrics import OperatorMetrics, PublicMetrics
from hushstream.agents.worker.startup import LEAVE_SECONDS
from hushstream.deploy import alerts, dashboards
from hushstream.deploy.jars import kafka_version, read_lock
from hushstream.topics.config.load import load
from prometheus_client import CollectorRegistry

from ..tree import PACKAGES, ROOT

DEPLOY = ROOT / "deploy"


def _yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def _names(registry: CollectorRegistry) -> set[str]:
    """Names of series that a scrape of a registry can give."""
    suffixes = {
        "counter": ["_total"],
        "histogram": ["_bucket", "_sum", "_count"],
        "gauge": [""],
    }
    return {m.name + s for m in registry.collect() for s in suffixes[m.type]}


PUBLIC = _names(PublicMetrics().registry)
OPERATOR = _names(OperatorMetrics().registry)


def _asked(expressions: list[str]) -> set[str]:
    return {name for text in expressions for name in re.findall(r"\bhush_[a-z_]+\b", text)}


def _rules(group: str) -> list[dict[str, Any]]:
    groups = _yaml(DEPLOY / "prometheus" / "alert-rules.yml")["groups"]
    rules: list[dict[str, Any]] = next(g["rules"] for g in groups if g["name"] == group)
    return rules


def _expressions(panels: tuple[dashboards.Panel, ...]) -> list[str]:
    return [query for panel in panels for query in panel.queries.values()]


def test_the_two_registries_share_no_series() -> None:
    assert len(PUBLIC) > 8
    assert len(OPERATOR) > 8
    assert not PUBLIC & OPERATOR


def test_public_dashboards_and_alerts_need_the_public_registry_alone() -> None:
    public = _expressions(dashboards.RELEASES) + [r["expr"] for r in _rules("hush-public")]
    assert _asked(public)
    assert _asked(public) <= PUBLIC
    operator = _expressions(dashboards.OPERATOR) + [r["expr"] for r in _rules("hush-operator")]
    assert _asked(operator) <= OPERATOR
    assert {n for n in OPERATOR if not n.endswith(("_sum", "_count"))} <= _asked(operator)


def test_every_alert_says_what_happened_and_how_grave_it_is() -> None:
    rules = _rules("hush-public") + _rules("hush-operator")
    assert len({r["alert"] for r in rules}) == len(rules) >= 10
    for rule in rules:
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert set(rule["annotations"]) == {"summary", "description"}
        assert rule["expr"].count("(") == rule["expr"].count(")")


def test_shipped_alerts_are_those_of_the_sample_deployment() -> None:
    config = load(DEPLOY / "compose" / "hush.toml", environ={})
    shipped = (DEPLOY / "prometheus" / "alert-rules.yml").read_text("utf-8")
    assert shipped == alerts.text(gaps(config))


@pytest.mark.parametrize("name", sorted(dashboards.DASHBOARDS))
def test_shipped_dashboards_are_the_generated_ones(name: str, tmp_path: Path) -> None:
    dashboards.write(tmp_path)
    shipped = (DEPLOY / "grafana" / "dashboards" / name).read_text("utf-8")
    assert shipped == (tmp_path / name).read_text("utf-8")
    board = json.loads(shipped)
    ids = [panel["id"] for panel in board["panels"]]
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in board["panels"]]
    assert len(set(ids)) == len(set(places)) == len(ids) == 8
    source = _yaml(DEPLOY / "grafana/provisioning/datasources/prometheus.yaml")["datasources"][0]
    variable = board["templating"]["list"][0]
    assert variable["name"] == "DS_PROMETHEUS"
    assert variable["current"]["value"] == source["uid"]


def _mounts(service: dict[str, Any]) -> Iterator[Path]:
    for volume in service.get("volumes", ()):
        if volume.startswith("./"):
            yield ROOT / volume.split(":")[0]


def test_compose_is_complete() -> None:
    compose = _yaml(ROOT / "docker-compose.yml")
    services = compose["services"]
    assert services["kafka"]["image"] == f"apache/kafka:{kafka_version(read_lock())}"
    for name, service in services.items():
        assert set(service.get("depends_on", {})) <= set(services), name
        assert all(path.exists() for path in _mounts(service)), name
        assert all(p.startswith("127.0.0.1:") for p in service.get("ports", ())), name
        assert "latest" not in service["image"]
    for name in ("kafka", "worker", "prometheus"):
        assert "healthcheck" in services[name]
    assert services["prometheus"]["profiles"] == services["grafana"]["profiles"]
    named = {v.split(":")[0] for s in services.values() for v in s.get("volumes", ())}
    assert {v for v in named if not v.startswith("./")} == set(compose["volumes"])
    assert (ROOT / services["topics"]["build"]["dockerfile"]).is_file()
    assert "9465" not in json.dumps([s.get("ports") for s in services.values()])


def test_the_sample_deployment_is_valid_with_the_environment_of_compose() -> None:
    compose = _yaml(ROOT / "docker-compose.yml")
    environ = compose["services"]["worker"]["environment"]
    sample = re.search(r":-\./(.*)\}", compose["configs"]["deployment"]["file"])
    assert sample is not None
    config = load(ROOT / sample[1], environ=environ)
    assert config.kafka.bootstrap == "kafka:19092"
    default = re.search(r":-(\w+)\}", compose["services"]["raw-topic"]["command"])
    assert default is not None
    assert config.input[0].topic == default[1]


def test_prometheus_scrapes_both_registries_where_they_are_served() -> None:
    jobs = _yaml(DEPLOY / "prometheus" / "prometheus.yml")["scrape_configs"]
    engine = load(DEPLOY / "compose" / "hush.toml", environ={}).engine
    paths = {j["metrics_path"]: j["static_configs"][0]["targets"][0] for j in jobs}
    assert paths == {
        "/metrics": f"worker:{engine.public_port}",
        "/internal/metrics": f"worker:{engine.operator_port}",
    }


def test_the_image_copies_all_packages_and_runs_without_root() -> None:
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    for package in PACKAGES:
        assert f"COPY {package} {package}" in text
        assert f"!{package}" in (ROOT / ".dockerignore").read_text("utf-8")
    modules = sorted(path.name for path in ROOT.glob("*.py"))
    assert f"COPY {' '.join(modules)} py.typed ./" in text
    assert "-r requirements.lock" in text
    assert "--require-hashes" in text
    assert re.search(r"^USER 10001", text, re.MULTILINE)


def test_kubernetes_workers_are_confined_and_keep_their_tables() -> None:
    path = DEPLOY / "kubernetes" / "hush.yaml"
    parts = {part["kind"]: part for part in yaml.safe_load_all(path.read_text("utf-8"))}
    spec = parts["StatefulSet"]["spec"]
    pod = spec["template"]["spec"]
    container = pod["containers"][0]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert spec["volumeClaimTemplates"][0]["metadata"]["name"] == "tables"
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {v["name"] for v in pod["volumes"]} | {"tables"}
    assert container["livenessProbe"]["httpGet"]["path"] == "/live"
    assert container["readinessProbe"]["httpGet"]["path"] == "/ready"
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"].items() <= labels.items()
    open_ports = parts["NetworkPolicy"]["spec"]["ingress"]
    assert [rule["ports"][0]["port"] for rule in open_ports if "from" not in rule] == [9464]
    environ = {e["name"]: e["value"] for e in container["env"] if "value" in e}
    config = load(DEPLOY / "compose" / "hush.toml", environ=environ)
    assert config.kafka.bootstrap == "kafka:9092"


def test_the_unit_for_systemd_starts_a_worker_and_restarts_it_where_that_helps() -> None:
    text = (DEPLOY / "systemd" / "hush-worker@.service").read_text("utf-8").replace("\\\n", " ")
    lines = [line.partition("=") for line in text.splitlines() if re.match(r"[A-Za-z]+=", line)]
    unit = {name: value for name, _, value in lines}
    assert (unit["Type"], unit["WatchdogSec"]) == ("notify", "1m")
    assert set(unit["RestartPreventExitStatus"].split()) == {"2", "3"}  # a restart helps neither
    assert float(unit["TimeoutStopSec"].rstrip("s")) > LEAVE_SECONDS
    words = unit["ExecStart"].split()[1:]
    parser = hush.make_context("hush", words, resilient_parsing=True)
    assert parser.params["log_format"] == "json"
    rest = words[words.index("worker") + 1 :]
    given = worker.make_context("worker", rest).params
    assert given["processes"] == 1  # `--processes` does not pass the watchdog on
    assert given["member"] == "%H-%i" and given["path"] == "/etc/hushstream/hush.toml"
    assert given["settings"] == ("engine.data_dir=/var/lib/hushstream",)
    assert {"NoNewPrivileges", "ProtectSystem", "LimitCORE", "SystemCallFilter"} <= unit.keys()

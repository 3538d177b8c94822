"""Compose, Prometheus, Grafana and Kubernetes files: they parse, agree, and name what exists.

Covers: deploy/dashboards.py
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hushstream.agents.worker.metrics import OperatorMetrics, PublicMetrics
from hushstream.agents.worker.startup import LEAVE_SECONDS
from hushstream.cli.group import hush
from hushstream.cli.topics import gaps
from hushstream.cli.worker import worker
from hushstream.deploy import alerts, dashboards
from hushstream.deploy.jars import kafka_version, read_lock
from hushstream.topics.config.load import load
from hushstream.topics.config.model import Kafka
from prometheus_client import CollectorRegistry

from ..tree import PACKAGES, ROOT

DEPLOY = ROOT / "deploy"


def _yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def _names(registry: CollectorRegistry) -> set[str]:
    """Names of series that a scrape of a registry can contain."""
    suffixes = {
        "counter": ["_total"],
        "histogram": ["_bucket", "_sum", "_count"],
        "gauge": [""],
    }
    found = {m.name + s for m in registry.collect() for s in suffixes[m.type]}
    assert all(name.startswith(("hush_", "process_")) for name in found)
    return found


PUBLIC = _names(PublicMetrics().series)
OPERATOR = _names(OperatorMetrics().series)


def _asked(expressions: list[str]) -> set[str]:
    return {
        name for text in expressions for name in re.findall(r"\b(?:hush|process)_[a-z_]+\b", text)
    }


def _rules(group: str) -> list[dict[str, Any]]:
    groups = _yaml(DEPLOY / "prometheus" / "alert-rules.yml")["groups"]
    rules: list[dict[str, Any]] = next(g["rules"] for g in groups if g["name"] == group)
    return rules


def _expressions(panels: tuple[dashboards.Panel, ...]) -> list[str]:
    return [query for panel in panels for query in panel.queries.values()]


def test_the_two_sets_share_no_series() -> None:
    assert len(PUBLIC) > 8
    assert len(OPERATOR) > 8
    assert not PUBLIC & OPERATOR


def test_public_dashboards_and_alerts_need_the_public_metrics_alone() -> None:
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
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
        assert rule["expr"].count("(") == rule["expr"].count(")")


def test_shipped_alerts_are_those_of_the_sample_deployment() -> None:
    config = load(DEPLOY / "compose" / "hush.toml", environ={})
    shipped = (DEPLOY / "prometheus" / "alert-rules.yml").read_text("utf-8")
    assert shipped == alerts.text(gaps(config))


def test_shipped_dashboards_are_the_generated_ones(tmp_path: Path) -> None:
    dashboards.write(tmp_path)
    shipped, made = (
        {path.name: path.read_text("utf-8") for path in folder.iterdir()}
        for folder in (DEPLOY / "grafana" / "dashboards", tmp_path)
    )
    assert shipped == made and len(made) == 3


@pytest.mark.parametrize("name", sorted(dashboards.DASHBOARDS))
def test_panels_of_metrics_lie_side_by_side(name: str) -> None:
    shipped = (DEPLOY / "grafana" / "dashboards" / name).read_text("utf-8")
    board = json.loads(shipped)
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len(panels) == {"releases.json": 10, "operator.json": 16}[name]
    covered = [
        (x, y)
        for at in (panel["gridPos"] for panel in panels)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    bottom = max(y for _, y in covered) + 1
    assert len(covered) == len(set(covered)) == 24 * bottom  # no overlap, no gap
    source = _yaml(DEPLOY / "grafana/provisioning/datasources/prometheus.yaml")["datasources"][0]
    variable = board["templating"]["list"][0]
    assert variable["name"] == "DS_PROMETHEUS"
    assert variable["current"]["value"] == source["uid"]


def lost(given: Any, kept: Any, place: str = "") -> Iterator[str]:
    """Paths of values that a model did not keep."""
    if isinstance(given, dict):
        for name, inner in given.items():
            found = isinstance(kept, dict) and name in kept
            yield from lost(inner, kept[name], f"{place}.{name}") if found else [f"{place}.{name}"]
    elif isinstance(given, list):
        same = isinstance(kept, list) and len(kept) == len(given)
        pairs = enumerate(zip(given, kept, strict=True)) if same else ()
        yield from () if same else [place]
        for n, (one, other) in pairs:
            yield from lost(one, other, f"{place}[{n}]")
    elif given != kept:
        yield place


def as_grafana_reads(board: dict[str, Any]) -> Any:
    """A dashboard after a round trip through the types that Grafana generates from its schema."""
    model = pytest.importorskip("grafana_foundation_sdk.models.dashboard")
    plugins = importlib.import_module("grafana_foundation_sdk.cog.plugins")
    encoder = importlib.import_module("grafana_foundation_sdk.cog.encoder")
    plugins.register_default_plugins()
    return json.loads(encoder.JSONEncoder().encode(model.Dashboard.from_json(board)))


@pytest.mark.parametrize("name", [*sorted(dashboards.DASHBOARDS), "values.json"])
def test_dashboards_say_nothing_that_grafana_does_not_know(name: str) -> None:
    board = json.loads((DEPLOY / "grafana" / "dashboards" / name).read_text("utf-8"))
    assert list(lost(board, as_grafana_reads(board))) == []
    board["panels"][1]["fieldConfig"]["defaults"]["units"] = "s"
    board["panels"][0]["options"]["header"] = True
    board["refreshes"] = "15s"
    wrong = [".panels[0].options.header", ".panels[1].fieldConfig.defaults.units", ".refreshes"]
    if name != "values.json":  # queries of another plugin are not modelled
        board["panels"][0]["targets"][0]["expression"] = "up"
        wrong.append(".panels[0].targets[0].expression")
    assert sorted(lost(board, as_grafana_reads(board))) == sorted(wrong)


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
    for name in ("kafka", "worker", "prometheus", "grafana"):
        assert "healthcheck" in services[name]
    assert services["prometheus"]["profiles"] == services["grafana"]["profiles"]
    named = {v.split(":")[0] for s in services.values() for v in s.get("volumes", ())}
    assert {v for v in named if not v.startswith((".", "/"))} == set(compose["volumes"])
    assert (ROOT / services["topics"]["build"]["dockerfile"]).is_file()
    assert "9465" not in json.dumps([s.get("ports") for s in services.values()])


def test_grafana_of_compose_lets_viewers_look_and_nobody_sign_in_with_a_known_password() -> None:
    told = _yaml(ROOT / "docker-compose.yml")["services"]["grafana"]["environment"]
    assert told["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert told["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"


def test_workers_of_compose_can_be_scaled_and_read_their_key_from_a_file() -> None:
    compose = _yaml(ROOT / "docker-compose.yml")
    worker = compose["services"]["worker"]
    (port,) = worker["ports"]
    first, last = map(int, port.split(":")[1].split("-"))
    assert last - first >= 9  # a fixed port would allow only one worker
    assert "container_name" not in worker and "hostname" not in worker
    assert worker["volumes"][0] == "/data"  # an anonymous volume, one for each worker
    assert float(worker["stop_grace_period"].rstrip("s")) > LEAVE_SECONDS
    for name in ("worker", "topics"):
        service = compose["services"][name]
        assert service["secrets"] == ["noise_key", "signing_key"]
        for secret in service["secrets"]:
            variable = f"HUSH_{secret.upper()}"
            assert variable not in service["environment"]
            assert service["environment"][f"{variable}_FILE"] == f"/run/secrets/{secret}"
            assert set(compose["secrets"][secret]) == {"file"}
        assert service["group_add"]  # the image's user does not own the key file


@pytest.mark.parametrize("page", ["docker-compose.yml", "deploy/README.md"])
def test_every_later_command_finds_the_group_that_reads_the_keys(page: str, tmp_path: Path) -> None:
    text = (ROOT / page).read_text("utf-8")
    line = next(one for one in text.splitlines() if "hush init . &&" in one).strip("# ")
    (tmp_path / "hush").write_text("#!/bin/sh\ntouch hush.key hush-signing.key\n")
    (tmp_path / "docker").write_text("#!/bin/sh\n")
    for program in ("hush", "docker"):
        (tmp_path / program).chmod(0o755)
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-euc", line], cwd=tmp_path, env=environ, check=True)
    # Compose reads this file at each command, also in another shell.
    assert (tmp_path / ".env").read_text() == f"HUSH_KEY_GROUP={os.getgid()}\n"
    ignored = set((ROOT / ".gitignore").read_text("utf-8").split())
    for file in tmp_path.glob("*.key"):
        assert file.stat().st_mode & 0o777 == 0o640 and file.match("hush*.key")
    assert {"/.env", "/hush*.key"} <= ignored


def test_workers_of_compose_share_a_ratchet_that_they_can_write_and_that_stays() -> None:
    compose = _yaml(ROOT / "docker-compose.yml")
    worker = compose["services"]["worker"]
    places = dict(v.split(":") for v in worker["volumes"] if ":" in v)  # none is read-only
    (volume,) = (name for name, place in places.items() if place == "/ratchet")
    assert volume in compose["volumes"]  # a named volume survives `docker compose down`
    config = load(DEPLOY / "compose" / "hush.toml", environ=worker["environment"])
    for file in (config.secret.ratchet_file, config.secret.escrow_file):
        assert Path(file).parent == Path("/ratchet")  # a folder, because the file is replaced
    # A new volume takes the owner of the image's folder; without that folder, root would own it.
    image = (DEPLOY / "Dockerfile").read_text("utf-8")
    assert re.search(r"install -d -m 0700 -o 10001 -g 10001 .*/ratchet", image)
    assert "/ratchet" not in re.findall(r"^VOLUME (.*)$", image, re.MULTILINE)
    assert not any("ratchet" in v for v in compose["services"]["topics"].get("volumes", ()))


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


def test_prometheus_scrapes_both_sets_where_they_are_served() -> None:
    jobs = _yaml(DEPLOY / "prometheus" / "prometheus.yml")["scrape_configs"]
    engine = load(DEPLOY / "compose" / "hush.toml", environ={}).engine
    found = {job["metrics_path"]: job["dns_sd_configs"][0] for job in jobs}
    # By name, not by address, because there may be several workers.
    assert {(path, *one["names"], one["type"], one["port"]) for path, one in found.items()} == {
        ("/metrics", "worker", "A", engine.public_port),
        ("/internal/metrics", "worker", "A", engine.operator_port),
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


def test_the_unit_for_systemd_starts_a_worker_and_restarts_it_where_that_helps() -> None:
    text = (DEPLOY / "systemd" / "hush-worker@.service").read_text("utf-8").replace("\\\n", " ")
    lines = [line.partition("=") for line in text.splitlines() if re.match(r"[A-Za-z]+=", line)]
    unit = {name: value for name, _, value in lines}
    assert (unit["Type"], unit["WatchdogSec"]) == ("notify", "1m")
    assert set(unit["RestartPreventExitStatus"].split()) == {"2", "3"}  # a restart helps neither
    assert float(unit["TimeoutStopSec"].rstrip("s")) > LEAVE_SECONDS
    outage = Kafka().outage_timeout / 1e6 + float(unit["RestartSec"].rstrip("s"))
    assert unit["StartLimitIntervalSec"] == "1h"
    assert int(unit["StartLimitBurst"]) > 3600 / outage  # an outage of any length ends no unit
    words = unit["ExecStart"].replace("%H-%i", "host-1").split()[1:]
    parser = hush.make_context("hush", words, resilient_parsing=True)
    assert parser.params["log_format"] == "json"
    rest = words[words.index("worker") + 1 :]
    given = worker.make_context("worker", rest).params
    assert given["processes"] == 1
    assert given["member"] == "host-1" and given["path"] == "/etc/hushstream/hush.toml"
    assert given["settings"] == ("engine.data_dir=/var/lib/hushstream",)
    assert unit["EnvironmentFile"] == "-/etc/hushstream/%i.env"  # ports of its own
    environ = dict(v.split("=", 1) for name, _, v in lines if name == "Environment")
    secret = load(DEPLOY / "compose" / "hush.toml", environ=environ).secret
    files = {Path(secret.ratchet_file).parent, Path(secret.escrow_file).parent}
    assert files == {Path("/var/lib") / unit["StateDirectory"]}  # all else is read-only
    assert {"NoNewPrivileges", "ProtectSystem", "LimitCORE", "SystemCallFilter"} <= unit.keys()

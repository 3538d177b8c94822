"""The parts of `make e2e` that need no engine; the run itself takes too long for a suite.

If Compose is installed, it reads the shipped file itself, which needs no engine.
"""

from __future__ import annotations

import doctest
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hushstream.deploy.jars import fetch, is_intact, kafka_version, read_lock
from hushstream.topics.config.load import load

from ..tree import ROOT
from . import compose, image, judge, standins
from .__main__ import alone
from .engine import EngineError, docker

FILE = ROOT / "docker-compose.yml"


def test_one_run_at_a_time(tmp_path: Path) -> None:
    """A second run would remove the first one's containers."""
    lock = tmp_path / "lock"
    with alone(lock), pytest.raises(EngineError, match="another run"), alone(lock):
        pass
    with alone(lock):  # the lock was released
        pass


def _has_compose() -> bool:
    try:
        docker("compose", "version")
    except (EngineError, OSError):
        return False
    return True


needs_compose = pytest.mark.skipif(
    not _has_compose(),
    reason="no `docker compose`: install docker-compose-plugin",
)


@pytest.mark.parametrize("module", [image, judge, standins], ids=lambda m: m.__name__)
def test_examples(module: Any) -> None:
    done = doctest.testmod(module)
    assert done.attempted and not done.failed


def _read(folder: Path) -> Any:
    key = folder / "hush.key"
    key.write_text("00" * 32)
    one = compose.Compose(key, ROOT / "tests" / "e2e" / "hush.toml", folder / "log")
    return json.loads(one.do("config", "--format", "json"))


@needs_compose
def test_compose_itself_reads_the_shipped_file(tmp_path: Path) -> None:
    services = _read(tmp_path)["services"]
    assert set(compose.SERVICES) | {"kafka", "raw-topic", "topics", "live", "grafana"} == set(
        services
    )
    for name in ("topics", "worker"):
        assert services[name]["read_only"] is True
        assert services[name]["cap_drop"] == ["ALL"]
        assert services[name]["security_opt"] == ["no-new-privileges:true"]
    assert "00" * 32 not in compose.names(services)
    assert services["worker"]["stop_grace_period"] == "45s"


def test_whatever_runs_hush_in_compose_has_no_rights() -> None:
    services = yaml.safe_load(FILE.read_text("utf-8"))["services"]
    ours = [one for one in services.values() if one["image"] == image.IMAGE]
    assert len(ours) == 3
    for one in ours:
        assert one["read_only"] is True and one["cap_drop"] == ["ALL"] and one["tmpfs"] == ["/tmp"]
        assert one["security_opt"] == ["no-new-privileges:true"]


def test_stand_ins_are_of_the_images_that_are_used() -> None:
    services = yaml.safe_load(FILE.read_text("utf-8"))["services"].values()
    used = {one["image"] for one in services if not one["image"].startswith("grafana/")}
    text = (ROOT / "deploy" / "Dockerfile").read_text("utf-8")
    bases = set(re.findall(r"^FROM (\S+)", text, re.MULTILINE))
    assert set(standins.STAND_INS) == bases | used - {image.IMAGE}


def test_tools_are_those_of_the_broker() -> None:
    (tools,) = read_lock(standins.TOOLS)
    assert tools.coordinate == f"org.apache.kafka:kafka-tools:{kafka_version(read_lock())}"
    assert is_intact(tools, fetch(lock=standins.TOOLS, quiet=True) / tools.filename)


def test_the_deployment_of_a_run_is_the_sample_with_other_times() -> None:
    sample = load(ROOT / "deploy" / "compose" / "hush.toml", environ={})
    ours = load(ROOT / "tests" / "e2e" / "hush.toml", environ={})
    assert ours.input == sample.input
    (one,), (other,) = ours.pipeline, sample.pipeline
    assert (one.name, one.key, one.mechanism) == (other.name, other.key, other.mechanism)
    assert f"{ours.deployment.name}.{one.name}.releases.v1" == judge.RELEASES


def test_a_machine_without_an_engine_is_told_what_to_install(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.e2e"],
        cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stdout.startswith("e2e: SKIPPED: no `docker` command: install")


def test_a_container_is_healthy_only_if_it_says_so() -> None:
    assert compose.health({"State": {}}) == ""
    assert compose.health({"State": {"Health": {"Status": "healthy"}}}) == "healthy"


def test_waiting_ends_with_what_was_waited_for() -> None:
    assert compose.until(lambda: True, "now") < 60
    with pytest.raises(EngineError, match="not yet: never"):
        compose.until(lambda: False, "never", 0.1)

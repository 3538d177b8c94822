"""A worker that starts while a partition has no leader waits, and names the partition."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from hushstream.deploy.settings import HOST, free_port

from .local import BROKER, Local, Trio, local
from .test_outage import DAY, ORIGIN, TOML, publish

pytestmark = pytest.mark.broker

AWAY = 65.0  # a start used to give up after a minute


def leader(run: Local, topic: str) -> int:
    """The node that leads a topic's first partition; a new topic has none for a moment."""
    client = AdminClient({"bootstrap.servers": run.bootstrap, "log_level": 0})
    end, found = time.monotonic() + 150, -1
    while found < 0:
        assert time.monotonic() < end, f"{topic} has no leader"
        found = int(client.list_topics(topic).topics[topic].partitions[0].leader)
    return found


def status(port: int, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}{path}", timeout=120) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def until(done: Callable[[], bool], run: Local, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end and run.workers["w"].returncode is None, run.tail("w")
        time.sleep(0.3)


def said(run: Local) -> str:
    log: Path = run.log("w")
    return log.read_text() if log.exists() else ""


@pytest.mark.thorough
def test_a_start_without_a_leader_is_waited_out_and_a_long_one_is_given_up(tmp_path):
    """Each topic has one replica, so the partitions of a dead node have no leader."""
    port = free_port()
    with (
        Trio(tmp_path / "brokers", BROKER) as trio,
        local(tmp_path, trio.bootstrap, TOML, {"events": 1}, replication=1) as run,
    ):
        publish(run, 0)
        node = leader(run, run.names.ledger)
        trio.kill(node)
        run.settings = {"engine.public_port": str(port), "kafka.outage_timeout": "6s"}
        child = run.start("w")
        assert child.wait(150), run.tail("w")
        assert child.returncode == 4
        assert "(waited for 6 s)" in said(run).splitlines()[-1]

        mark = len(said(run))
        del run.settings["kafka.outage_timeout"]  # the default is five minutes
        began = time.monotonic()
        run.start("w")
        until(lambda: "the start is waiting for Kafka" in said(run)[mark:], run, 180)
        while time.monotonic() - began < AWAY:
            assert (status(port, "/live"), status(port, "/ready")) == (200, 503)
            time.sleep(1)
        lines = [x for x in said(run)[mark:].splitlines() if "the start is waiting for Kafka" in x]
        passed = time.monotonic() - began
        assert 1 <= len(lines) <= 1 + passed // 60, (passed, lines)  # once a minute
        trio.start()
        until(lambda: "ready:" in said(run)[mark:], run, 180)
        assert status(port, "/ready") == 200
        run.trigger(ORIGIN + DAY // 2)
        run.wait_released(run.wait_triggers(1))
        assert run.stop("w") == 0

"""``hush trigger`` on the broker: costs are shown first; requests are limited, awaited, ended."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hushstream.agents.kafka.logs import read_topic
from hushstream.deploy.broker import Broker

from ..cli.bench import typed
from .local import Local, local
from .test_outage import TOML

pytestmark = pytest.mark.broker


def trigger(run: Local, *words: str) -> subprocess.CompletedProcess[str]:
    said = typed("trigger", "-c", str(run.toml), "--bootstrap", run.bootstrap, *words)
    return subprocess.CompletedProcess(words, *said)


def requests(run: Local) -> list[dict[str, object]]:
    found = read_topic(run.config().kafka, run.names.requests, 1)[0].records
    return [json.loads(r.value or b"{}") for r in found]


def test_what_fires_is_told_limited_waited_for_and_ended(empty_broker: Broker, tmp_path):
    with local(tmp_path, empty_broker.bootstrap, TOML, {"events": 1}) as run:
        for at, words in (("2999-01-01", "more than a day ahead"), ("2019-03-20", "need --yes")):
            refused = trigger(run, "--at", at, *(["--yes"] if "day" in words else []))
            assert refused.returncode == 2 and words in refused.stderr
        assert "p: 38 triggers; 19 epochs are charged: epsilon 152, delta 0.0019" in refused.stdout
        assert requests(run) == []  # nothing was sent
        assert trigger(run, "--at", "2019-03-20", "--yes", "--id", "a").returncode == 0
        assert trigger(run, "--cancel", "--id", "b").returncode == 0
        assert [r["id"] for r in requests(run)] == ["a", "b"]
        run.start("w")  # the first request has been cancelled before anything fires
        run.wait_ready(["w"])
        done = trigger(run, "--at", "2019-03-02", "--wait", "--json")
        assert done.returncode == 0, done.stderr
        assert "all triggers fired" in done.stderr
        body = json.loads(done.stdout)["pipelines"][0]
        assert (body["triggers"], body["charges"], body["epsilon"]) == (2, 1, 8.0)
        assert len(run.triggers()) == 2
        again = json.loads(trigger(run, "--at", "2019-03-02", "--json").stdout)["pipelines"][0]
        assert (again["triggers"], again["charges"]) == (0, 0)


def test_who_waits_for_a_cancelled_request_is_told(empty_broker: Broker, tmp_path):
    with local(tmp_path, empty_broker.bootstrap, TOML, {"events": 1}) as run:
        command = [sys.executable, "-m", "hushstream", "trigger", "-c", str(run.toml), "--wait"]
        command += ["--bootstrap", run.bootstrap, "--at", "2019-03-02"]
        waits = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert waits.stderr is not None
        assert waits.stderr.readline() == "0 of 2 triggers are done\n"  # no worker runs
        assert trigger(run, "--cancel").returncode == 0
        _, said = waits.communicate(timeout=600)
        assert waits.returncode == 4
        assert "the request was cancelled for p: 0 of 2 triggers are done" in said


def test_what_the_limit_does_not_pay_for_is_told_before_it_is_lost(empty_broker: Broker, tmp_path):
    limited = TOML.replace("delta = 1e-4", "delta = 1e-4, limit_epsilon = 8.0")
    with local(tmp_path, empty_broker.bootstrap, limited, {"events": 1}) as run:
        told = "2 triggers; 1 epoch is charged: epsilon 8, delta 0.0001 for a unit in all of"
        refused = trigger(run, "--at", "2019-03-03")
        assert told in refused.stdout and "1 epoch is refused for good" in refused.stdout
        assert refused.returncode == 2 and "needs --yes" in refused.stderr
        assert requests(run) == []
        run.start("w")
        run.wait_ready(["w"])
        done = trigger(run, "--at", "2019-03-03", "--yes", "--wait")
        assert done.returncode == 0, done.stderr
        assert "2 triggers fired; 1 epoch is refused for good" in done.stderr
        assert len(run.triggers()) == 2

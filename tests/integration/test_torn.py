"""Requests of transactions that come late or twice, through a proxy before the real broker."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from random import Random
from typing import Any

import pytest
from hushstream.offline.replay import replay

from ..judge.topics import deployment as judgement
from ..servers.torn import proxied
from ..tree import ROOT
from .local import BROKER, local
from .torn_writer import tearing

FAULTS = 40
TOML = """
[deployment]
name = "torn"
[engine]
units_partitions = 1
cells_partitions = 2
session_timeout = "6s"
transaction_timeout = "10s"
[[input]]
name = "events"
topic = "events"
unit = "user"
time = { format = "record" }
[[pipeline]]
name = "p"
input = "events"
key = ["page"]
public_keys = ["x", "y"]
budget = { epsilon = 4.0, delta = 1e-6 }
window = { length = "2s" }
triggers = { every = "1s" }
"""

pytestmark = pytest.mark.broker


def written(*words: object) -> dict[str, Any]:
    """What a writer found, in its own process, since aiokafka leaves open what it gives up."""
    command = [sys.executable, "-m", "tests.integration.torn_writer", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


@pytest.mark.parametrize("version", [2, pytest.param(1, marks=pytest.mark.thorough)])
def test_every_transaction_is_there_in_whole_or_not_at_all(version: int) -> None:
    """Late, repeated and unanswered requests of all kinds; brokers of both versions."""
    found = written("--faults", FAULTS, "--version", version, "--share", 0.08)
    assert [found[kind] for kind in ("lost", "doubled", "half", "changed")] == [[]] * 4, found
    assert found["committed"] > FAULTS // 2
    torn = {told.split()[0] for told in found["torn"]}
    assert torn >= {"EndTxn", "AddPartitionsToTxn", "Produce"}


@pytest.mark.thorough
@pytest.mark.parametrize(("version", "kind"), [(2, "repeat"), (1, "hold")])
def test_without_the_mend_half_of_a_transaction_is_committed(version: int, kind: str) -> None:
    """Without our change, aiokafka does this; so the proxy does tear, and the writer sees it."""
    found = written("--faults", 60, "--version", version, "--ends", kind, "--stock")
    assert found["half"], found


@pytest.mark.thorough
def test_a_deployment_releases_what_the_judge_computes(tmp_path) -> None:
    """All transactions of a worker are torn, those of the clock and of shards."""
    with (
        proxied(BROKER) as (broker, proxy),
        local(tmp_path, proxy.bootstrap, TOML, {"events": 2}) as run,
    ):
        run.start("w")
        run.wait_ready(["w"])
        run.publish("events", [{"user": "early", "page": "x"}])
        proxy.choose = tearing(Random(5), 0.03, repeats=True)
        until = time.monotonic() + 120
        while proxy.count < 60:
            sent = [{"user": f"u{n}", "page": "xyz"[n % 3]} for n in range(20)]
            run.publish("events", sent, partition=proxy.count % 2)
            time.sleep(0.5)
            assert time.monotonic() < until, (proxy.torn, run.tail("w"))
        proxy.choose = lambda _: None
        run.wait_released(run.wait_triggers(len(run.triggers()) + 1))
        assert run.workers["w"].returncode is None, run.errors("w")
        assert run.stop("w") == 0
        assert replay(run.config()).agrees
        (judged,) = judgement(broker.bootstrap, run.toml, run.secret).values()
        assert judged.triggers > 5 and judged.objections == []
        assert "EndTxn hold" in proxy.torn and "EndTxn repeat" in proxy.torn

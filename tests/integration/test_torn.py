"""Requests of transactions that come late or twice, through a proxy before the real broker.

Covers: tests/servers/torn.py
"""

from __future__ import annotations

import time
from random import Random

import pytest
from hushstream.agents.kafka import clients
from hushstream.agents.offline.replay import replay

from ..judge.topics import deployment as judgement
from ..servers.torn import Asked, Torn, proxied
from .local import BROKER, local
from .torn_writer import tearing, written

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


@pytest.mark.parametrize("version", [2, 1])
def test_every_transaction_is_there_in_whole_or_not_at_all(version: int) -> None:
    """Late, repeated and unanswered requests of all kinds; brokers of both versions."""
    with proxied(version=version) as (broker, proxy):
        found = written(broker, proxy, FAULTS, tearing(Random(7), 0.08, repeats=version > 1))
    assert found.good, found
    assert found.committed > FAULTS // 2
    assert {told.split()[0] for told in found.torn} >= {"EndTxn", "AddPartitionsToTxn", "Produce"}


def ends(kind: str, late: float) -> object:
    """Tear each second end of a transaction."""
    random = Random(3)

    def choose(asked: Asked) -> Torn | None:
        if asked.name != "EndTxn" or random.random() < 0.5:
            return None
        return Torn(kind, late + random.random() * 0.06)  # type: ignore[arg-type]

    return choose


@pytest.mark.parametrize(
    ("version", "kind", "late"), [(2, "repeat", 0.0), (1, "hold", 0.1)], ids=["repeat", "hold"]
)
def test_without_the_mend_half_of_a_transaction_is_committed(
    version: int, kind: str, late: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What aiokafka does by itself; so the proxy tears, and the writer sees it."""
    monkeypatch.setattr(clients, "send_once", lambda producer: producer)
    with proxied(version=version) as (broker, proxy):
        found = written(broker, proxy, 60, ends(kind, late))  # type: ignore[arg-type]
    assert found.half, found


def test_a_deployment_releases_what_the_judge_computes(tmp_path) -> None:
    """A worker whose transactions are torn all the time, clock and shards alike."""
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

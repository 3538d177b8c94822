"""A broker that is away for longer than every request's time-out: waited out, or given up aloud."""

from __future__ import annotations

import time

import pytest
from hushstream.deploy.broker import Broker

from .local import BROKER, Local, local

DAY = 86_400_000_000
ORIGIN = 17956 * DAY  # 2019-03-01
AWAY = 60.0  # requests are given up after 40 s

TOML = """
[deployment]
name = "away"
[engine]
units_partitions = 1
cells_partitions = 1
session_timeout = "6s"
transaction_timeout = "10s"
[[input]]
name = "events"
topic = "events"
unit = "user"
partitioner = "none"
time = { field = "t", format = "epoch_us" }
[[pipeline]]
name = "p"
input = "events"
key = ["page"]
window = { length = "1d", origin = "2019-03-01T00:00:00Z" }
triggers = { every = "12h" }
schedule = "external"
budget = { epsilon = 8.0, delta = 1e-4 }
mechanism = { kind = "histogram", budget = 4 }
"""

pytestmark = pytest.mark.broker


def publish(run: Local, begin: int) -> None:
    run.publish(
        "events", [{"user": f"u{n}", "page": "a", "t": ORIGIN} for n in range(begin, begin + 50)]
    )


def beats(run: Local) -> int:
    return run.cluster.ends(run.names.clock, 1)[0]


def test_beats_and_triggers_come_again_after_an_outage_and_a_long_one_is_given_up(tmp_path):
    with (
        Broker(quiet=True, overrides=BROKER) as broker,
        local(tmp_path, broker.bootstrap, TOML, {"events": 1}) as run,
    ):
        publish(run, 0)
        run.start("w")
        run.wait_ready(["w"])
        run.trigger(ORIGIN + DAY // 2)
        run.wait_released(run.wait_triggers(1))
        broker.kill()
        time.sleep(AWAY)
        broker.start()
        before = beats(run)
        publish(run, 50)
        run.trigger(ORIGIN + DAY)
        run.wait_released(run.wait_triggers(2, 120), 120)
        assert beats(run) > before
        assert run.workers["w"].returncode is None
        assert run.stop("w") == 0

        # The same with less patience: it ends, and says why.
        run.toml.write_text('[kafka]\noutage_timeout = "5s"\n' + TOML)
        mark = run.log("w").stat().st_size
        run.start("w")
        until = time.monotonic() + 60
        while "ready:" not in run.log("w").read_text()[mark:]:
            assert time.monotonic() < until, run.tail("w")
            time.sleep(0.2)
        broker.kill()
        child = run.workers["w"]
        assert child.wait(150), run.tail("w")
        assert child.returncode == 4
        assert "no broker for 5 s (kafka.outage_timeout)" in run.log("w").read_text()[mark:]

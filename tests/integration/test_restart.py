"""Workers that crash and come back at once, before the group has missed them."""

from __future__ import annotations

import sys

import pytest
from hushstream.deploy.broker import Broker
from hushstream.deploy.process import Child

from .local import Local, local

HOUR = 3_600_000_000
ORIGIN = 17956 * 24 * HOUR  # 2019-03-01
PARTITIONS = 4
TOML = """
[deployment]
name = "again"
[[input]]
name = "events"
topic = "events"
unit = "user"
partitioner = "none"
time = { field = "t", format = "epoch_us" }
[[pipeline]]
name = "pages"
input = "events"
key = ["page"]
window = { length = "30d", origin = "2019-03-01T00:00:00Z" }
triggers = { every = "1h" }
schedule = "external"
budget = { epsilon = 8.0, delta = 1e-4 }
mechanism = { kind = "histogram" }
"""

pytestmark = pytest.mark.broker


def begin(run: Local, worker: str, place: str) -> None:
    """Start a worker without a static name: after a restart, it is a new member to the group."""
    settings = {
        "engine.data_dir": str(run.folder / "state" / place),
        "engine.public_port": "0",
        "engine.operator_port": "0",
    }
    words = [w for name, value in settings.items() for w in ("--set", f"{name}={value}")]
    command = [sys.executable, "-m", "hushstream", "-v", "worker", "-c", str(run.toml)]
    run.workers[worker] = Child([*command, "--bootstrap", run.bootstrap, *words], run.log(worker))


@pytest.mark.thorough
def test_a_worker_that_comes_back_at_once_stalls_nobody(empty_broker: Broker, tmp_path):
    """The group rebalances twice within a second, and no record comes after that."""
    with local(tmp_path, empty_broker.bootstrap, TOML, {"events": PARTITIONS}) as run:
        workers = {place: f"{place}-0" for place in "abc"}
        for place, worker in workers.items():
            begin(run, worker, place)
        run.wait_ready(list(workers.values()))
        for n, place in enumerate("ab"):
            for p in range(PARTITIONS):
                users = [f"u {n} {p} {one}" for one in range(2000)]
                time = ORIGIN + n * HOUR
                run.publish("events", [{"user": u, "page": "a", "t": time} for u in users], p)
            run.kill(workers[place])
            workers[place] = f"{place}-{n + 1}"
            begin(run, workers[place], place)
            run.trigger(ORIGIN + (n + 1) * HOUR)
            run.wait_released(run.wait_triggers(n + 1), 300)
        others = [p for p in (run.folder / "state").rglob("*") if p.stat().st_mode & 0o077]
        assert others == []  # the log has exact counts, so no other user of the machine may read it
        assert list((run.folder / "state").rglob("*.log"))

"""A real deployment of two loaded processes, a Prometheus that scrapes it, and `hush live`."""

from __future__ import annotations

import json
import math
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hushstream.deploy import alerts
from hushstream.deploy.broker import Broker
from hushstream.deploy.process import Child
from hushstream.deploy.settings import free_port

from ..integration.local import BROKER, Local, local
from ..servers.prometheus import Prometheus

INTERVAL = 5  # seconds between two scrapes
RIDERS = 20_000
ZONES = ("centre", "harbour", "north", "south", "station")
TOML = """
[deployment]
name = "shop"
[engine]
units_partitions = 2
cells_partitions = 2
[[input]]
name = "trips"
topic = "trips"
unit = "rider"
time = { field = "t", format = "epoch_ms" }
[[pipeline]]
name = "zones"
input = "trips"
key = ["zone"]
unit_name = "rider"
window = { length = "2m" }
triggers = { every = "20s" }
lateness = "2s"
budget = { epsilon = 0.5, delta = 1e-6, limit_epsilon = 4.0, limit_delta = 1e-5 }
[[pipeline]]
name = "payments"
input = "trips"
key = ["payment"]
unit_name = "rider"
window = { length = "4m" }
triggers = { every = "1m" }
lateness = "2s"
[pipeline.budget]
epsilon = 0.25
delta = 1e-6
limit_epsilon = 2.0
limit_delta = 1e-5
per_unit = { epsilon = 1.0, delta = 1e-5, period = "1h" }
"""


@contextmanager
def scene(folder: Path) -> Iterator[tuple[Local, Prometheus, str]]:
    """Everything that a dashboard reads, and the live page's address; it ends with the block.

    Args:
        folder: folder for its files.
    """
    public, operator, live = free_port(), free_port(), free_port()
    with (
        Broker(quiet=True, overrides=BROKER) as broker,
        local(folder, broker.bootstrap, TOML, {"trips": 2}) as run,
    ):
        words = [sys.executable, "-m", "hushstream", "worker", "-c", str(run.toml)]
        words += ["--bootstrap", run.bootstrap, "--processes", "2", "--member", "shop"]
        words += ["--set", f"engine.public_port={public}"]
        words += ["--set", f"engine.operator_port={operator}"]
        words += ["--set", f"engine.data_dir={folder / 'state'}"]
        words += ["--set", f"engine.snapshots=file://{folder / 'copies'}"]
        words += ["--set", "engine.snapshot_interval=10s"]
        run.workers["shop"] = Child(words, run.log("shop"))
        rules = alerts.text({"zones": 20.0, "payments": 60.0})
        watch = Prometheus(folder, public, operator, rules, INTERVAL)
        words = [sys.executable, "-m", "hushstream", "live", "--bootstrap", run.bootstrap]
        words += ["--deployment", "shop", "--port", f"{live}", "-c", str(folder / "none.toml")]
        page = Child(words, run.log("live"))
        try:
            yield run, watch, f"http://127.0.0.1:{live}"
        finally:
            page.send(signal.SIGTERM)
            page.wait(30)
            watch.end()
            run.stop("shop")


def load(run: Local, seconds: float) -> None:
    """Send events for some time: two to six hundred a second, some of them bad or late.

    Args:
        run: the deployment.
        seconds: length of the load in seconds.
    """
    dice = random.Random(7)
    producer = run.producer()
    begin = time.monotonic()
    sent = 0.0
    while (passed := time.monotonic() - begin) < seconds:
        due = 400 * passed + 200 * 40 * (1 - math.cos(passed / 40))
        while sent < due:
            sent += 1
            producer.produce("trips", _event(dice), partition=dice.randrange(2))
        producer.poll(0)
        time.sleep(0.05)
    assert producer.flush(60) == 0


def _event(dice: random.Random) -> bytes:
    now = int(time.time() * 1000)
    late = 600_000 if dice.random() < 0.01 else 0
    if dice.random() < 0.004:
        return b'{"rider": '
    event = {
        "rider": f"r{dice.randrange(RIDERS)}",
        "zone": dice.choice(ZONES),
        "payment": dice.choice(("card", "cash")),
        "t": now - late if dice.random() < 0.997 else "soon",
    }
    return json.dumps(event).encode()

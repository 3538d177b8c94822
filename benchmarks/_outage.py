"""An outage while producers buffer: how many records that were in time end up late?

A separate deployment, whose windows follow the wall clock, and a librdkafka producer with default
settings. It continues to produce while the broker is away, and sends its buffer once it has found
the broker again.
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any, Protocol

from _cluster import Local, local
from confluent_kafka import Producer
from hushstream.agents.kafka.logs import read_topic

LENGTH = 4  # seconds of a window
RATE = 100  # records per second
SETTLE = 15  # seconds; librdkafka reconnects to a lost broker every ten

TOML = f"""
[deployment]
name = "held"
[kafka]
outage_timeout = "10m"
[engine]
units_partitions = 1
cells_partitions = 1
session_timeout = "6s"
transaction_timeout = "10s"
settle = "{SETTLE}s"
[[input]]
name = "held"
topic = "held-events"
unit = "user"
partitioner = "none"
time = {{ field = "t", format = "epoch_us" }}
[[pipeline]]
name = "held"
input = "held"
key = ["page"]
public_keys = [["a"], ["b"]]
window = {{ length = "{LENGTH}s", origin = "2019-03-01T00:00:00Z" }}
triggers = {{ every = "{LENGTH}s" }}
lateness = "2s"
budget = {{ epsilon = 8.0, delta = 1e-4 }}
mechanism = {{ kind = "histogram", budget = 4 }}
"""


class Killed(Protocol):
    """A broker that can be killed and started again."""

    @property
    def bootstrap(self) -> str:
        """Its address."""

    def kill(self) -> None:
        """End it at once."""

    def start(self, timeout: float = 120.0) -> Any:
        """Start it again."""


class Feed:
    """A producer in a thread, which sends an event from time to time, as it happens.

    Args:
        run: the deployment.
    """

    def __init__(self, run: Local) -> None:
        self._producer = Producer({"bootstrap.servers": run.bootstrap, "log_level": 0})
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.sent = 0
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(1 / RATE):
            number = self.sent
            row = {"user": f"u{number % 50}", "page": "ab"[number % 2], "t": int(time.time() * 1e6)}
            self._producer.produce("held-events", json.dumps(row).encode(), partition=0)
            self._producer.poll(0)
            self.sent += 1

    def end(self) -> None:
        """Stop, and send what is left."""
        self._ended.set()
        self._thread.join()
        assert self._producer.flush(120) == 0


def counted(run: Local) -> dict[str, Any]:
    """Records after the last cut of their window, and how late that cut came in seconds."""
    windows = run.deployment.pipelines[0].windows
    fired = [t for t in run.triggers() if t.final]
    last = {t.window: t for t in fired}
    (log,) = read_topic(run.config().kafka, "held-events", 1)
    places = [(windows.window(json.loads(r.value or b"{}")["t"]), r.offset) for r in log.records]
    first, end = min(last), max(last)
    judged = [(w, offset) for w, offset in places if first <= w <= end]
    late = sum(offset >= last[w].offsets["held-events"][0] for w, offset in judged)
    delays = [(t.time - t.scheduled) / 1e6 for t in fired]
    return {"records": len(judged), "late": late, "delay": round(max(delays), 1)}


def buffered(folder: Path, broker: Killed, seconds: float = 40.0, replicas: int = 1) -> Any:
    """Kill the broker while a producer and two workers run, and start it again.

    Args:
        folder: folder of the deployment.
        broker: the broker to kill.
        seconds: length of the outage.
        replicas: number of replicas of each topic.

    Returns:
        Number of records, number of late ones, longest delay of a cut in seconds.
    """
    with local(folder / "held", broker.bootstrap, TOML, {"held-events": 1}, replicas) as run:
        run.loud = False
        for member in ("a", "b"):
            run.start(member)
        run.wait_ready(["a", "b"])
        feed = Feed(run)
        run.wait_triggers(2)
        broker.kill()
        time.sleep(seconds)
        broker.start()
        time.sleep(SETTLE + 3 * LENGTH)
        feed.end()
        ended = int(time.time() * 1e6)
        until = time.monotonic() + 180
        while not any(t.scheduled > ended for t in run.triggers()):
            assert time.monotonic() < until, run.tail("a")
            time.sleep(0.5)
        run.wait_released(run.triggers())
        codes = [run.workers[member].returncode for member in ("a", "b")]
        return {**counted(run), "sent": feed.sent, "ended": [c for c in codes if c is not None]}

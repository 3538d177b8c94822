"""Lateness of releases while three workers are restarted one after the other, under load.

    python benchmarks/rolling.py [--units N] [--rate N] [--quick] [--json]

Three named workers share a deployment with `engine.standbys = 1`, whose tables hold the rows of
many privacy units. Events keep coming, and a trigger fires each second by the clock. Each worker is
sent SIGTERM, started again as soon as it has ended, and left alone for a while after it is ready;
then the next one follows. A release's *lateness* is the time from its scheduled time, which its
records carry, until a reader of committed records sees the manifest of one shard.

- ``late_s``: the worst over all releases due after the first signal; with ``p50_s``, ``p90_s``.
- ``quiet_s``: the worst over those due before it, after all units had come.
- ``stop_s``, ``start_s``: the longest time from a signal to the end of a worker, and from its start
  until it is ready.
- ``releases``: their number, one for each trigger and shard.
- ``exact``: a replay finds all of them identical.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import recovery
from _chaos import BROKER, SLOW
from _cluster import Local, local
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from hushstream.deploy.broker import Broker
from hushstream.formats.events.decode import utc
from hushstream.offline.replay import replay
from rich.console import Console
from rich.table import Table
from standby import shards, wait

UNITS, RATE = 1_000_000, 5_000
MEMBERS = ("a", "b", "c")
PARTITIONS = 3
REST = 8.0  # seconds between one worker's return and the next one's turn
TOML = """
[deployment]
name = "rolling"
[engine]
cells_partitions = 3
standbys = 1
[[input]]
name = "events"
topic = "events"
unit = "user"
time = { field = "t", format = "epoch_us" }
partitioner = "murmur2"
[[pipeline]]
name = "pages"
input = "events"
key = ["page"]
window = { length = "15m", origin = "ORIGIN" }
triggers = { every = "1s" }
budget = { epsilon = 8.0, delta = 1e-9 }
mechanism = { kind = "histogram", budget = 12 }
"""


def toml() -> str:
    """The configuration; windows begin now, else all triggers of a partial one would be due."""
    return TOML.replace("ORIGIN", utc(int(time.time()) * 1_000_000))


class Watch(threading.Thread):
    """Records when each manifest was due and when it came, in seconds since 1970."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(name="watch", daemon=True)
        options = {"group.id": "rolling", "isolation.level": "read_committed", "log_level": 0}
        self._client = Consumer({"bootstrap.servers": bootstrap, "fetch.wait.max.ms": 20} | options)
        self._client.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        self._ended = threading.Event()
        self.seen: list[tuple[float, float]] = []

    def run(self) -> None:
        """Read until the end."""
        while not self._ended.is_set():
            message = self._client.poll(0.2)
            if message is None or message.error() is not None:
                continue
            if b'"hush.manifest/' in (message.value() or b""):
                self.seen.append((message.timestamp()[1] / 1000, time.time()))

    def end(self) -> None:
        """Stop."""
        self._ended.set()
        self.join(60)
        self._client.close()

    def late(self, since: float, until: float = float("inf")) -> list[float]:
        """Sorted seconds of lateness of the releases due in a time range."""
        return sorted(came - due for due, came in list(self.seen) if since <= due < until)


class Load(threading.Thread):
    """Current events at a steady rate until `end`.

    Args:
        units: number of users, who take turns.
        rate: events a second.
    """

    def __init__(self, run: Local, units: int, rate: int) -> None:
        super().__init__(name="load", daemon=True)
        self._producer = run.producer(**{"partitioner": "murmur2_random", "linger.ms": 20})
        self._units, self._rate = units, rate
        self._ended = threading.Event()

    def run(self) -> None:
        """Send events for a twentieth of a second at a time."""
        begun, sent = time.monotonic(), 0
        while not self._ended.wait(0.05):
            for _ in range(int(self._rate * (time.monotonic() - begun)) - sent):
                user, at = sent * 7919 % self._units, int(time.time() * 1e6)
                value = b'{"user":"user %d","page":"p%d","t":%d}' % (user, sent % 97, at)
                self._producer.produce("events", value, f"user {user}")
                sent += 1
            self._producer.poll(0)

    def end(self) -> None:
        """Stop."""
        self._ended.set()
        self.join(60)
        self._producer.flush(60)


def restart(run: Local, member: str) -> tuple[float, float]:
    """Restart a worker cleanly; seconds until it had ended, and until it was ready again."""
    log, began = run.log(member), time.monotonic()
    if run.stop(member, SLOW) != 0:
        raise AssertionError(run.errors(member))
    mark, ended = log.stat().st_size, time.monotonic()
    run.start(member)
    wait(lambda: b"ready:" in log.read_bytes()[mark:], run)
    return ended - began, time.monotonic() - ended


def fill(run: Local, units: int) -> None:
    """Send one current event of each unit."""
    producer = run.producer(**{"partitioner": "murmur2_random", "linger.ms": 50})
    for unit in range(units):
        now = time.time_ns() // 1000
        value = b'{"user":"user %d","page":"p%d","t":%d}' % (unit, unit % 97, now)
        while True:
            try:
                producer.produce("events", value, f"user {unit}")
                break
            except BufferError:
                producer.poll(0.5)
        if unit % recovery.BATCH == 0:
            producer.poll(0)
    producer.flush(SLOW)


def rolling(run: Local, units: int, rate: int, report: Callable[[str], None]) -> dict[str, Any]:
    """All figures of one deployment."""
    total = 2 * PARTITIONS  # shards: of ingest, which bounds as well, and of aggregate
    for member in MEMBERS:
        run.start(member)
    wait(lambda: sum(shards(run, member) for member in MEMBERS) == total, run)
    watch, load = Watch(run.bootstrap, "hush.pages.releases.v1"), Load(run, units, rate)
    watch.start()
    report(f"{units} units come")
    fill(run, units)
    load.start()
    time.sleep(15)
    quiet = time.time()
    time.sleep(10)
    begun, times = time.time(), list[tuple[float, float]]()
    for member in MEMBERS:
        report(f"worker {member} is restarted")
        times.append(restart(run, member))
        time.sleep(REST)
    ended = time.time()
    load.end()
    wait(lambda: bool(watch.late(ended)), run)  # everything due before has come
    time.sleep(2)
    watch.end()
    report("replay")
    outcome = replay(run.config())
    late = watch.late(begun, ended)
    for member in MEMBERS:
        if run.stop(member, SLOW) != 0:
            raise AssertionError(run.errors(member))
    parts = {"p50_s": statistics.median(late), "p90_s": late[int(0.9 * len(late))]}
    return {
        "units": units,
        "late_s": round(late[-1], 2),
        **{name: round(value, 2) for name, value in parts.items()},
        "quiet_s": round(watch.late(quiet, begun)[-1], 2),
        "stop_s": round(max(one for one, _ in times), 2),
        "start_s": round(max(one for _, one in times), 2),
        "releases": len(late),
        "exact": outcome.agrees and outcome.compared > 0,
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, help=f"default {UNITS:,}")
    parser.add_argument("--rate", type=int, default=RATE, help="events a second")
    parser.add_argument("--quick", action="store_true", help="20,000 units")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    units = options.units or (20_000 if options.quick else UNITS)
    console = Console(stderr=True)
    with (
        tempfile.TemporaryDirectory(prefix="hush-rolling-") as name,
        Broker(Path(name) / "broker", quiet=True, overrides=BROKER) as broker,
        local(Path(name), broker.bootstrap, toml(), {"events": PARTITIONS}) as run,
    ):
        found = rolling(run, units, options.rate, lambda what: console.print(what))
    if options.json:
        print(json.dumps(found))
        return
    table = Table("", "", show_header=False)
    for name, value in found.items():
        table.add_row(name, str(value))
    Console().print(table)


if __name__ == "__main__":
    main()

"""Growth over a year of hourly triggers through a real broker, in minutes.

A pipeline with windows of a day, a trigger every hour and sparse data gets requests for a day's
triggers at a time, as fast as it releases them. After a week, and at the end, everything that might
grow is measured: bytes of the internal topics' logs, bytes of the worker's tables, its resident
memory, and the processor time of a start on its folder until it is ready (on a busy machine, wall
time means nothing). ``topics``, ``state``, ``rss`` (MiB) and ``start`` (seconds) are the increases
from the week to the end; each must stay below its constant in `MOST`. Releases and the ledger (a
charge a day) are kept for ever by design; the ledger is reported separately.

Since a year passes in minutes, settings compress hours of a broker's work into seconds: segments of
1 MiB, not 64 MiB, tombstones kept for a minute, not a day, and `keep_clock` of a second.
``offsets`` counts everything written to the internal topics.

    python benchmarks/year.py [--quick] [--json] [--weeks N]

``--quick`` runs two weeks, and waits less for the broker's own work. The last line under
``--json`` is one object.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from _cluster import Local
from _growth import BROKER, SEGMENTS, folder, logs, resize
from confluent_kafka import Consumer, TopicPartition
from hushstream.deploy.broker import Broker
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

HOUR = 3_600_000_000
ORIGIN = 1_577_836_800_000_000  # 2020-01-01
MOST = {"topics": 12.0, "state": 8.0, "rss": 48.0, "start": 2.0}
SETTLE_SECONDS = 25.0  # for what the broker deletes and compacts
BRIEF_SECONDS = 8.0
TOML = """
[deployment]
name = "year"
[engine]
cells_partitions = 1
beat_interval = "20ms"
keep_clock = "1s"
[[input]]
name = "events"
topic = "year-raw"
unit = "user"
partitioner = "murmur2"
time = { field = "t", format = "epoch_us" }
[[pipeline]]
name = "pages"
input = "events"
key = ["page"]
schedule = "external"
window = { length = "1d", origin = "2020-01-01T00:00:00Z" }
triggers = { every = "1h" }
budget = { epsilon = 2.0, delta = 1e-6 }
"""


@dataclass
class Measured:
    """Sizes in bytes, times in seconds."""

    day: int
    topics: int
    clock: int
    state: int
    rss: int
    start: float
    ledger: int
    offsets: int


UNITS = {"topics": 1 << 20, "state": 1 << 20, "rss": 1 << 20, "start": 1}


class Year:
    """A deployment whose days pass as fast as they are released.

    Args:
        path: folder for everything.
        broker: running broker.
        settle: seconds for the broker to settle before a measurement.
    """

    def __init__(self, path: Path, broker: Broker, settle: float) -> None:
        self._broker = broker
        self._settle = settle
        self.run = Local(path, broker.bootstrap, TOML, {"year-raw": 1})
        self.run.begin()
        resize(self.run, SEGMENTS)
        self._topic = self.run.deployment.pipelines[0].release_topic
        self._reader = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": "year", "fetch.wait.max.ms": 20,
             "isolation.level": "read_committed", "auto.offset.reset": "earliest",
             "log_level": 0}
        )  # fmt: skip
        self._reader.assign([TopicPartition(self._topic, 0, 0)])
        self._random = random.Random(5)
        self.released = 0

    def close(self) -> None:
        """End the worker and the reader."""
        self.run.close()
        self._reader.close()

    def start(self) -> float:
        """Start the worker on its folder; seconds of CPU until it is ready."""
        self.run.log("one").unlink(missing_ok=True)
        child = self.run.start("one")
        self.run.wait_ready(["one"], 180)
        taken = psutil.Process(child.pid).cpu_times()
        return float(taken.user + taken.system)

    def day(self, number: int) -> None:
        """A day of sparse records and its 24 triggers, until all are released."""
        values = [
            {"user": f"u{self._random.randrange(300)}", "page": f"p{self._random.randrange(5)}",
             "t": ORIGIN + number * 24 * HOUR + self._random.randrange(24 * HOUR)}
            for _ in range(120)
        ]  # fmt: skip
        producer = self.run.producer(partitioner="murmur2_random")
        for value in values:
            producer.produce("year-raw", json.dumps(value), key=value["user"])
        producer.flush(30)
        time.sleep(0.05)
        self.run.trigger(ORIGIN + (number + 1) * 24 * HOUR)
        until = time.monotonic() + 120
        while self.released < (number + 1) * 24:
            message = self._reader.poll(1.0)
            if message is not None and not message.error():
                self.released += b"|manifest:" in (message.key() or b"")
            if time.monotonic() > until:
                raise AssertionError(f"day {number} is not released\n{self.run.errors('one')}")

    def measure(self, day: int) -> Measured:
        """Measure the current sizes; restarts the worker for it."""
        time.sleep(self._settle)
        pid = self.run.workers["one"].pid
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        assert self.run.stop("one") == 0
        base = self.run.names.base
        state = folder(self.run.data("one"))
        topics = logs(self._broker.data, base)
        ledger = sum(logs(self._broker.data, "year.ledger.v1").values())
        clock = sum(size for name, size in topics.items() if ".clock-" in name)
        first = self.start()
        self.run.stop("one")
        start = min(first, self.start())
        rss = pages * os.sysconf("SC_PAGE_SIZE")
        total = sum(topics.values())
        return Measured(day, total, clock, state, rss, start, ledger, self._offsets())

    def _offsets(self) -> int:
        """Sum of the end offsets of all internal logs, that is, records and markers written."""
        cluster, base = self.run.cluster, self.run.names.base
        found = {t: n for t, n in cluster.topics().items() if t.startswith(base)}
        return sum(sum(cluster.offsets.ends(topic, number)) for topic, number in found.items())


def year(
    path: Path, weeks: int, settle: float, console: Console
) -> tuple[Measured, Measured, Year]:
    """Run the weeks; measurements after the first and after the last."""
    broker = Broker(path / "broker", overrides=BROKER)
    broker.start()
    made = Year(path / "year", broker, settle)
    try:
        made.start()
        with Progress(console=console, disable=not console.is_terminal) as progress:
            task = progress.add_task("days", total=7 * weeks)
            for day in range(7 * weeks):
                made.day(day)
                progress.advance(task)
                if day == 6:
                    week = made.measure(day)
        return week, made.measure(7 * weeks - 1), made
    finally:
        made.close()
        broker.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="two weeks")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--weeks", type=int, default=52)
    options = parser.parse_args()
    console = Console(stderr=True)
    weeks = 2 if options.quick else options.weeks
    settle = BRIEF_SECONDS if options.quick else SETTLE_SECONDS
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hush-year-") as name:
        week, end, made = year(Path(name), weeks, settle, console)
    grown = {n: (getattr(end, n) - getattr(week, n)) / UNITS[n] for n in MOST}
    row = grown | {
        "weeks": weeks, "triggers": made.released, "seconds": time.monotonic() - began,
        "ledger_bytes_a_day": (end.ledger - week.ledger) / (end.day - week.day),
        "week": asdict(week), "end": asdict(end), "ok": all(grown[n] <= MOST[n] for n in MOST),
    }  # fmt: skip
    if options.json:
        print(json.dumps(row))
    else:
        table = Table(title=f"{weeks} weeks of hourly triggers")
        for column in ("MiB, seconds", "after a week", "at the end", "more", "at most"):
            table.add_column(column, justify="right")
        for name, most in MOST.items():
            table.add_row(
                name, f"{getattr(week, name) / UNITS[name]:,.2f}",
                f"{getattr(end, name) / UNITS[name]:,.2f}", f"{grown[name]:.2f}", f"{most:g}",
            )  # fmt: skip
        Console().print(table)
    sys.exit(0 if row["ok"] else 1)


if __name__ == "__main__":
    main()

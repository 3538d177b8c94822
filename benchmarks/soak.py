"""A soak: an hour of steady load, in which nothing may grow unintentionally.

Two workers serve a direct pipeline and a re-partitioned one, with feedback, while 5,000 events come
a second. Every few seconds the workers' processes and everything on disk are measured:

- ``rss``, ``files``, ``threads``: of both workers together; MiB of resident memory, open files;
- ``state``: MiB of their tables; ``topics``: MiB of the logs of internal topics;
- ``behind``: seconds of raw events that the group has yet to use.

Each has a ``slope`` (growth per hour, from a line through the last three quarters) and a ``ratio``
of the means of the last quarter and of the second one, which must stay below its limit in `MOST`.
``--quick`` only judges files and threads, as a minute is all warm-up. The ledger and the releases
are kept for ever by design, so they are left out.

An hour should show the effects of a month, so caches and buffers are small enough to fill up within
minutes (`TOML`), windows last a minute, and segments of topics are small.

    python benchmarks/soak.py [--quick] [--json] [--minutes M] [--rate R]

The last line under ``--json`` is one object.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import psutil
from _cluster import Local, local
from _growth import BROKER, SEGMENTS, folder, growth, logs, resize
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from hushstream.deploy.broker import Broker
from rich.console import Console
from rich.table import Table

PARTITIONS = 2
USERS, PAGES = 20_000, 300
MIB = 1 << 20
MOST = {"rss": 1.1, "files": 1.1, "threads": 1.05, "state": 1.3, "topics": 1.3}
BRIEF = ("files", "threads")  # judged after a minute
BEHIND = 20.0  # seconds: a mean above it says that this machine cannot hold the rate
RAW = {"retention.ms": "600000", "segment.bytes": str(16 * MIB), "segment.ms": "60000"}
TOML = """
[deployment]
name = "soak"
[engine]
units_partitions = 2
cells_partitions = 2
keep_clock = "1m"
block_cache_mb = 4
unit_cache_mb = 4
write_buffer_mb = 1

[[input]]
name = "visits"
topic = "soak-visits"
unit = "user"
partitioner = "murmur2"
time = { field = "t", format = "epoch_us" }

[[input]]
name = "orders"
topic = "soak-orders"
unit = "user"
time = { field = "t", format = "epoch_us" }

[[pipeline]]
name = "soak-direct"
input = "visits"
key = ["page"]
window = { length = "1m" }
triggers = { every = "10s" }
budget = { epsilon = 8.0, delta = 1e-6 }

[[pipeline]]
name = "soak-routed"
input = "orders"
key = ["page"]
window = { length = "1m" }
triggers = { every = "10s" }
budget = { epsilon = 8.0, delta = 1e-6 }
mechanism = { kind = "histogram", budget = 12, adaptive_weight = 0.3 }
"""


@dataclass
class Sample:
    """One measurement: seconds since the load began, and the figures in `MOST`, in their units."""

    at: float
    rss: float
    files: float
    threads: float
    state: float
    topics: float
    behind: float


class Load(threading.Thread):
    """Events at a steady rate, half to each topic, until `end`.

    Args:
        run: the deployment.
        rate: events per second.
    """

    def __init__(self, run: Local, rate: int) -> None:
        super().__init__(name="load", daemon=True)
        options = {"partitioner": "murmur2_random", "linger.ms": 20}
        self._producer: Producer = run.producer(**options)
        self._rate = rate
        self._random = random.Random(7)
        self._ended = threading.Event()
        self.sent = 0

    def run(self) -> None:
        """Send due events; after a pause, at most a second's worth of missed ones."""
        before, due = time.monotonic(), 0.0
        while not self._ended.wait(0.05):
            now = time.monotonic()
            due = min(due + (now - before) * self._rate, float(self._rate))
            before = now
            while due >= 1:
                self._send(int(time.time() * 1e6))
                due -= 1
        self._producer.flush(30)

    def _send(self, now: int) -> None:
        user, page = self._random.randrange(USERS), int(self._random.paretovariate(0.5)) % PAGES
        value = b'{"user":"u%d","page":"p%d","t":%d}' % (user, page, now)
        topic = "soak-visits" if self.sent % 2 else "soak-orders"
        try:
            self._producer.produce(topic, value, f"u{user}")
            self.sent += 1
        except BufferError:
            pass
        self._producer.poll(0)

    def end(self) -> None:
        """Send the rest."""
        self._ended.set()
        self.join(60)


class Gauge:
    """Measures a deployment.

    Args:
        run: the deployment.
        broker: the broker whose folder holds the logs.
        rate: events per second.
    """

    def __init__(self, run: Local, broker: Broker, rate: int) -> None:
        self._run, self._broker, self._rate = run, broker, rate
        self._base = run.names.base
        self._asker = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": run.names.group,
             "enable.auto.commit": False, "log_level": 0}
        )  # fmt: skip
        self._began = time.monotonic()
        self.parts: dict[str, dict[str, int]] = {}

    def look(self, keep: str | None = None) -> Sample:
        """Measure now; with ``keep``, remember the sizes of single topics under that name."""
        workers = [psutil.Process(child.pid) for child in self._run.workers.values()]
        topics = logs(self._broker.data, self._base)
        if keep is not None:
            self.parts[keep] = {n.removeprefix(self._base + "."): s for n, s in topics.items()}
        return Sample(
            at=time.monotonic() - self._began,
            rss=sum(w.memory_info().rss for w in workers) / MIB,
            files=sum(w.num_fds() for w in workers),
            threads=sum(w.num_threads() for w in workers),
            state=folder(self._run.folder / "state") / MIB,
            topics=sum(topics.values()) / MIB,
            behind=self._behind() / self._rate,
        )

    def close(self) -> None:
        """Disconnect from the broker."""
        self._asker.close()

    def _behind(self) -> int:
        places = [TopicPartition(t, n) for t, count in self._run.raw.items() for n in range(count)]
        total = 0
        try:
            for place in self._asker.committed(places, 5):
                end = self._asker.get_watermark_offsets(place, 5)[1]
                total += end - max(place.offset, 0)
        except KafkaException:
            return 0
        return total


def soak(path: Path, minutes: float, rate: int, every: float, console: Console) -> dict[str, Any]:
    """Run it; return the figures."""
    with (
        Broker(path / "broker", quiet=True, overrides=BROKER) as broker,
        local(path, broker.bootstrap, TOML, dict.fromkeys(RAWS, PARTITIONS)) as run,
    ):
        resize(run, SEGMENTS)
        resize(run, RAW, "soak-")
        for member in ("one", "two"):
            run.start(member)
        run.wait_ready(["one", "two"], 120)
        load, gauge = Load(run, rate), Gauge(run, broker, rate)
        load.start()
        samples, until = [gauge.look("begin")], time.monotonic() + 60 * minutes
        while time.monotonic() < until:
            time.sleep(every)
            samples.append(gauge.look())
            if console.is_terminal or len(samples) % 12 == 0:
                console.print(" ".join(f"{n} {v:,.1f}" for n, v in asdict(samples[-1]).items()))
        sent, took = load.sent, samples[-1].at
        samples.append(gauge.look("end"))
        gauge.close()
        load.end()
        alive = all(child.returncode is None for child in run.workers.values())
        triggers, released = len(run.triggers()), len(run.manifests()) // 2
    return {
        "minutes": round(took / 60, 2), "rate": round(sent / took), "events": sent,
        "triggers_kept": triggers, "released": released, "alive": alive,
        **judged(samples), "parts": gauge.parts, "samples": [asdict(s) for s in samples[::6]],
    }  # fmt: skip


RAWS = ("soak-visits", "soak-orders")


def judged(samples: list[Sample]) -> dict[str, Any]:
    """Slope per hour, ratio, and means of the second and the last quarter, for each figure."""
    names = [f.name for f in fields(Sample) if f.name != "at"]
    seen = {name: [getattr(s, name) for s in samples] for name in names}
    return growth([s.at for s in samples], seen)


def flat(found: dict[str, Any], names: tuple[str, ...]) -> bool:
    """Whether none of these has grown, and the load was sustained."""
    steady = all((found[name]["ratio"] or 1.0) <= MOST[name] for name in names)
    return steady and found["alive"] and found["behind"]["last"] <= BEHIND


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="40 seconds of load")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--minutes", type=float, default=None, help="default 60")
    parser.add_argument("--rate", type=int, default=5_000, help="events per second")
    options = parser.parse_args()
    minutes = options.minutes or (2 / 3 if options.quick else 60.0)
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="hush-soak-") as name:
        every = 1.0 if minutes < 2 else 5.0
        found = soak(Path(name), minutes, options.rate, every, console)
    found["ok"] = flat(found, BRIEF if options.quick else tuple(MOST))
    if options.json:
        print(json.dumps(found))
    else:
        show(found)
    sys.exit(0 if found["ok"] else 1)


def show(found: dict[str, Any]) -> None:
    """Print the result for people."""
    title = f"{found['minutes']} minutes at {found['rate']:,} events a second"
    table = Table("", "second quarter", "last quarter", "ratio", "at most", "per hour", title=title)
    for name in [f.name for f in fields(Sample) if f.name != "at"]:
        row = found[name]
        limit = f"{MOST[name]:g}" if name in MOST else ""
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.3f}"
        table.add_row(
            name, f"{row['second']:,.1f}", f"{row['last']:,.1f}", ratio, limit,
            f"{row['slope']:+,.1f}",
        )  # fmt: skip
    Console().print(table)


if __name__ == "__main__":
    main()

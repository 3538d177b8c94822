"""Time from a trigger to its release on a local broker, for small and large micro-batches.

One worker serves one pipeline with one partition per stage. Before a trigger, its events are
produced and the worker bounds them, so that only the release remains. The time runs from the
trigger in the clock log until a reader of committed records sees the manifest. *Small* touches 20
keys, *large* 10,000, of which 20 are released.

Absolute figures depend on the machine's disk and load, so each is also given in transactions: the
median time of a transaction of one record, from its begin until a reader sees it.

    python benchmarks/latency.py [--quick] [--json] [--out DIR]
    python benchmarks/latency.py --load 50000 [--triggers N] [--quick] [--json]

With ``--load`` that many events a second of 200,000 uniform users keep coming, and triggers follow
each other without a pause, each timed from its place in the clock log to its manifest: bounding the
events sent before a trigger is part of its time. The line then has ``load``, the events actually
sent per second, ``triggers``, ``p50_ms``, ``p90_ms``, ``p99_ms``, ``worst_ms`` and
``transaction_ms``, the median of a transaction before the load. Of 300 triggers, three are above
the p99.

The last line under ``--json``: ``small_ms, large_ms, transaction_ms`` (medians),
``small_transactions, large_transactions`` (the same as ratios) and ``small_p90_ms``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from _chaos import BROKER
from _cluster import Local, local
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from hushstream.deploy.broker import Broker
from hushstream.topics.records import Trigger
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

DAY = 86_400_000_000
ORIGIN = 17956 * DAY  # 2019-03-01
TRIGGERS = 48  # of a window
SMALL, LARGE = 300, 10_000
USERS, PAGES, WARM = 200_000, 1_000, 5  # under load; WARM triggers are left out
MINUTE = 60_000_000
SETTLED = 1.0  # seconds without a new record from the bound stage

TOML = """
[deployment]
name = "latency"
[engine]
cells_partitions = 1
units_partitions = 1
[[input]]
name = "events"
topic = "events"
unit = "user"
partitioner = "murmur2"
time = { field = "t", format = "epoch_us" }
[[pipeline]]
name = "pages"
input = "events"
key = ["page"]
window = { length = "1d", origin = "2019-03-01T00:00:00Z" }
triggers = { every = "30m" }
schedule = "external"
budget = { epsilon = 8.0, delta = 1e-4 }
mechanism = { kind = "histogram", budget = 4, adaptive_weight = 0 }
"""


class Reader:
    """A reader of committed records of one topic.

    Args:
        bootstrap: address of the broker.
        topic: topic with one partition.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        settings = {"group.id": "latency", "isolation.level": "read_committed"}
        self._client = Consumer(
            {"bootstrap.servers": bootstrap, "fetch.wait.max.ms": 5, "log_level": 0} | settings
        )
        self._client.assign([TopicPartition(topic, 0, 0)])

    def until(self, wanted: bytes, timeout: float = 120) -> float:
        """Time, in seconds, at which the next record whose value contains ``wanted`` is seen."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            message = self._client.poll(0.5)
            if message is not None and message.error() is None and wanted in message.value():
                return time.time()
        raise SystemExit(f"nothing with {wanted!r} came within {timeout:.0f} s")

    def close(self) -> None:
        """Leave."""
        self._client.close()


def transactions(bootstrap: str, count: int) -> float:
    """Median seconds of a transaction of one record until a reader sees it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic("plain", 1, 1)]).values():
        future.result()
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "plain"})
    producer.init_transactions(60)
    reader, took = Reader(bootstrap, "plain"), []
    for number in range(count + 3):
        began, value = time.time(), b"record %d." % number
        producer.begin_transaction()
        producer.produce("plain", value, partition=0)
        producer.commit_transaction(60)
        took.append(reader.until(value) - began)
    reader.close()
    return statistics.median(took[3:])


def batch(index: int, hidden: int) -> list[dict[str, Any]]:
    """Events of one micro-batch: 20 pages of 15 users, and hidden pages of one user each."""
    found = [(f"{index} {n}", f"page {n % 20}") for n in range(SMALL)]
    found += [(f"{index} h{n}", f"hidden {index} {n}") for n in range(hidden)]
    return [{"user": user, "page": page, "t": ORIGIN + DAY // 2} for user, page in found]


def settled(run: Local) -> None:
    """Wait until the bound stage sends nothing more."""
    cluster, topic = run.cluster, run.names.cells("pages")
    end, since = -1, time.monotonic()
    while time.monotonic() < since + SETTLED:
        now = cluster.offsets.ends(topic, 1)[0]
        if now != end:
            end, since = now, time.monotonic()
        time.sleep(0.1)


def fired(run: Local, ordinal: int) -> Trigger:
    """Wait for the trigger with an ordinal in the clock log."""
    return run.wait_triggers(ordinal)[ordinal - 1]


def released(run: Local, hidden: list[int], progress: Progress) -> list[float]:
    """Seconds from each trigger to its manifest; the first one is left out."""
    reader, took = Reader(run.bootstrap, "hush.pages.releases.v1"), []
    for index in progress.track(range(1, len(hidden) + 1), description="triggers"):
        run.publish("events", batch(index, hidden[index - 1]))
        settled(run)
        run.trigger(ORIGIN + index * DAY // TRIGGERS)
        seen = reader.until(b"hush.manifest/")
        took.append(seen - fired(run, index).time / 1e6)
    reader.close()
    return took[1:]


class Load(threading.Thread):
    """Events at a steady rate until `end`.

    Args:
        run: the deployment.
        rate: events a second.
    """

    def __init__(self, run: Local, rate: int) -> None:
        super().__init__(name="load", daemon=True)
        self._producer = run.producer(**{"linger.ms": 20, "compression.type": "lz4"})
        self._rate = rate
        self._ended = threading.Event()
        self.sent = 0
        self.seconds = 0.0

    def run(self) -> None:
        """Send events for a twentieth of a second at a time; late ones are sent at once."""
        begun, at = time.monotonic(), ORIGIN + MINUTE // 2
        while not self._ended.wait(0.05):
            self.seconds = time.monotonic() - begun
            for _ in range(min(int(self._rate * self.seconds) - self.sent, self._rate)):
                user, page = self.sent * 7919 % USERS, self.sent * 104_729 % PAGES
                value = b'{"user":"u%d","page":"p%d","t":%d}' % (user, page, at)
                self._producer.produce("events", value, partition=0)
                self.sent += 1
            self._producer.poll(0)

    def end(self) -> None:
        """Stop."""
        self._ended.set()
        self.join(60)
        self._producer.flush(60)


def under_load(run: Local, count: int, rate: int, progress: Progress) -> dict[str, float]:
    """Seconds from triggers to their manifests while events come; the first few are left out."""
    reader, load = Reader(run.bootstrap, "hush.pages.releases.v1"), Load(run, rate)
    seen = []
    load.start()
    for index in progress.track(range(1, count + WARM + 1), description="triggers"):
        run.trigger(ORIGIN + index * MINUTE)
        seen.append(reader.until(b"hush.manifest/"))
    load.end()
    reader.close()
    fired_at = [one.time / 1e6 for one in run.wait_triggers(count + WARM)]
    took = sorted(s - f for s, f in list(zip(seen, fired_at, strict=True))[WARM:])
    parts = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99}
    found = {name: round(1000 * took[int(part * count)], 1) for name, part in parts.items()}
    sent = round(load.sent / max(load.seconds, 0.001))
    return {"load": sent, "triggers": count, **found, "worst_ms": round(1000 * took[-1], 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="a third of the triggers")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", default="out", help="taken for the sake of the other benchmarks")
    parser.add_argument("--load", type=int, default=0, help="events a second; 0: none")
    parser.add_argument("--triggers", type=int, help="under load; 300, or 40 under --quick")
    options = parser.parse_args()
    console = Console(stderr=True)
    small, large = (9, 3) if options.quick else (TRIGGERS - 11, 10)
    hidden = [0] * (small + 1) + [LARGE] * large
    count = options.triggers or (40 if options.quick else 300)
    toml = TOML
    if options.load:  # one window with a minute for each trigger
        toml = TOML.replace('every = "30m"', 'every = "1m"')
        toml = toml.replace('length = "1d"', f'length = "{count + WARM}m"')
    with (
        tempfile.TemporaryDirectory() as folder,
        Broker(quiet=True, overrides=BROKER) as broker,
        local(Path(folder), broker.bootstrap, toml, {"events": 1}) as run,
        Progress(console=console, disable=not console.is_terminal) as progress,
    ):
        plain = transactions(broker.bootstrap, small)
        run.start("w")
        run.wait_ready(["w"])
        if options.load:
            found = under_load(run, count, options.load, progress)
            print(json.dumps(found | {"transaction_ms": round(1000 * plain, 1)}))
            return
        took = released(run, hidden, progress)
    row = {
        "small_ms": 1000 * statistics.median(took[:small]),
        "large_ms": 1000 * statistics.median(took[small:]),
        "transaction_ms": 1000 * plain,
        "small_transactions": statistics.median(took[:small]) / plain,
        "large_transactions": statistics.median(took[small:]) / plain,
        "small_p90_ms": 1000 * sorted(took[:small])[int(0.9 * small)],
    }
    if options.json:
        print(json.dumps(row))
        return
    table = Table(title="From a trigger to its release, one worker, local broker")
    for column in ("micro-batch", "median, ms", "in transactions"):
        table.add_column(column, justify="right")
    table.add_row("20 keys", f"{row['small_ms']:.0f}", f"{row['small_transactions']:.1f}")
    table.add_row("10,020 keys", f"{row['large_ms']:.0f}", f"{row['large_transactions']:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()

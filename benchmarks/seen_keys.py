"""Keys that were seen once: a fill, triggers that touch few of them, state, and restarts.

    python benchmarks/seen_keys.py [--keys 1000000,10000000] [--changed N] [--public N]
                                   [--processes N] [--quick] [--json]

Each deployment sees a number of keys once each, from users with eight keys; in addition,
``--public`` keys have 400 users each and become public. The first trigger handles all of them. Two
more triggers follow with ``--changed`` new records each, for keys seen before: the cost of a
trigger should depend only on the keys that it touches, that are due and that are public, however
many were seen. Before such a trigger the worker has consumed its records, as it would in a stream
that fills a window over hours. The worker is then stopped and started with its tables, without
them, and once more without them but with copies of them in an object store, which is a folder.
Everything runs on a real broker with one worker, of one process unless ``--processes`` says more,
and two cells partitions; other load on the machine affects the seconds.

- ``keys``, ``records``: their numbers at the first trigger.
- ``fill_seconds``, ``fill_cpu_us``: of the first trigger, from the cut to the last manifest; CPU of
  the worker until then, for a record.
- ``before_cpu``: of the worker, to consume the records of each of the later triggers.
- ``trigger_cpu``, ``trigger_seconds``: of the worker, for each of the later triggers, from the
  request to the last manifest.
- ``released``: keys of the last release.
- ``key_bytes``: of tables of aggregate for each key seen; ``state_mb``: all tables;
  ``changelog_mb``: their topics at the broker.
- ``resident_mb``: the most memory that the worker had.
- ``warm_seconds``, ``wiped_seconds``, ``copied_seconds``: from the command to ``ready``, with
  tables, without, and with copies; ``copies_mb``: of the copies.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import engine
import psutil
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewTopic
from hushstream.agents.clock.genesis import read_ledger
from hushstream.agents.kafka.cluster import Cluster
from hushstream.deploy.broker import Broker
from hushstream.topics.config.model import Kafka
from hushstream.topics.names import Names
from hushstream.topics.records import TriggerRequest, encode
from rich.console import Console
from rich.table import Table

EACH = 8  # keys of a user
CROWD = 400  # users of a public key
NEW = 10**9  # number of the first user of later records
HOUR = 3_600_000  # milliseconds
LATER = 2  # triggers after the first
COPIED = b"a snapshot of it is in"  # a line of a worker's log
QUIET_SECONDS = 3.0  # a worker without work for so long has consumed everything
QUIET = 0.15  # most CPU of such a worker: seconds in a second
PATIENCE = 3 * 3600.0  # seconds allowed for a request to a worker
console = Console(stderr=True)
Event = tuple[int, bytes]


def first(keys: int, public: int) -> Iterator[Event]:
    """User and key of each record before the first trigger."""
    for key in range(keys):
        yield key // EACH, b"seen-%d" % key
    for user in range(public * CROWD):
        yield user, b"public-%d" % (user % public)


def later(keys: int, changed: int, number: int) -> Iterator[Event]:
    """Records of new users, spread over the seen keys."""
    for n in range(changed):
        yield NEW + number * changed + n, b"seen-%d" % ((n * keys // changed + number) % keys)


class Deployment:
    """One deployment, its topic, and its worker.

    Args:
        folder: folder of configuration, state and log.
        broker: running broker.
        keys: number of keys, for the topic's name.
        processes: processes of the worker.
    """

    def __init__(self, folder: Path, broker: Broker, keys: int, processes: int) -> None:
        self._processes = processes
        self._folder, self._broker, self._topic = folder, broker, f"seen-{keys}"
        self._cluster = Cluster(Kafka(bootstrap=broker.bootstrap))
        self._cluster.wait()
        made = self._cluster._admin.create_topics([NewTopic(self._topic, engine.PARTITIONS, 1)])
        made[self._topic].result()
        time.sleep(0.5)
        self._path, config, self._pipeline = engine.deployment(
            self._cluster, folder, self._topic, "murmur2", ""
        )
        self.store = folder / "store"
        self._with_store = (
            "--set", f"engine.snapshots=file://{self.store}",
            "--set", "engine.snapshot_interval=10s",
        )  # fmt: skip
        self.name = config.deployment.name
        self._names = Names(self.name, read_ledger(self._cluster, self.name).genesis["genesis"])
        self.state = folder / self.name
        self._log = folder / "worker.log"
        self._worker: subprocess.Popen[bytes] | None = None
        self._consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": self.name,
             "isolation.level": "read_committed", "fetch.wait.max.ms": 20, "log_level": 0}
        )  # fmt: skip
        self._consumer.assign([TopicPartition(self._pipeline.release_topic, 0, 0)])
        self.released = 0
        self.resident = 0.0

    def produce(self, events: Iterator[Event], hour: int) -> int:
        """Send records of an hour of event time; return their number."""
        producer = self._cluster.producer(
            **{"partitioner": "murmur2_random", "linger.ms": 50, "compression.type": "lz4",
               "queue.buffering.max.messages": 1_000_000}
        )  # fmt: skip
        moment, sent = engine.START + hour * HOUR + HOUR // 2, 0
        for user, key in events:
            name = b"u%d" % user
            body = b'{"user":"%b","page":"%b","t":%d}' % (name, key, moment)
            while True:
                try:
                    producer.produce(self._topic, body, key=name)
                    break
                except BufferError:
                    producer.poll(0.1)
            sent += 1
        producer.flush(600)
        return sent

    def start(self, copies: bool = False) -> float:
        """Start the worker, perhaps with an object store; seconds until it says `ready`."""
        mark, begun = self._log.stat().st_size if self._log.exists() else 0, time.monotonic()
        with open(self._log, "ab") as log:
            self._worker = subprocess.Popen(
                [sys.executable, "-m", "hushstream", "worker", "-c", str(self._path),
                 "--bootstrap", self._cluster.bootstrap,
                 "--set", f"engine.data_dir={self.state}", "--processes", str(self._processes),
                 *(self._with_store if copies else ())],
                stdout=log, stderr=log,
            )  # fmt: skip
        while self._tail(mark).count(b"ready:") < self._processes:
            if self._worker.poll() is not None or time.monotonic() - begun > PATIENCE:
                raise SystemExit(f"the worker is not ready: {self._tail(mark)[-500:]!r}")
            time.sleep(0.05)
        return time.monotonic() - begun

    def _tail(self, mark: int) -> bytes:
        with open(self._log, "rb") as log:
            log.seek(mark)
            return log.read()

    def copy(self, number: int, keys: int) -> None:
        """Start the worker with an object store, and stop it once the store has all tables.

        A copy is made after a step of its shard, so a few records come until then.
        """
        mark, tables = self._log.stat().st_size, len([*self.state.rglob("CURRENT")])
        self.start(copies=True)
        while len(self._copied(mark)) < tables:
            self.produce(later(keys, 100, number), number)
            self.trigger(number)
            number += 1
            time.sleep(10)
        self.stop()

    def _copied(self, mark: int) -> set[bytes]:
        """Names of tables of which the log says that there is a copy."""
        lines = [line for line in self._tail(mark).splitlines() if COPIED in line]
        return {line.partition(b": ")[0].split()[-1] for line in lines}

    def stop(self) -> None:
        """Stop the worker cleanly."""
        if self._worker is not None:
            self._worker.terminate()
            self._worker.wait(300)
            self._worker = None

    def family(self) -> list[psutil.Process]:
        """The processes of the worker."""
        assert self._worker is not None
        process = psutil.Process(self._worker.pid)
        return [process, *process.children(recursive=True)]

    def cpu(self) -> float:
        """Seconds of CPU that the worker has used."""
        return float(sum(sum(one.cpu_times()[:2]) for one in self.family()))

    def settle(self) -> float:
        """Wait until the worker has consumed everything; seconds of CPU until then."""
        used = begun = self.cpu()
        while True:
            time.sleep(QUIET_SECONDS)
            before, used = used, self.cpu()
            if used - before < QUIET * QUIET_SECONDS:
                return used - begun

    def trigger(self, number: int) -> tuple[float, float]:
        """Request a trigger, and wait for its release; seconds, and seconds of CPU."""
        assert self._worker is not None
        midnight = engine.START * 1000 - engine.START * 1000 % 86_400_000_000
        begun, used = time.monotonic(), self.cpu()
        producer = self._cluster.producer()
        asked = TriggerRequest(f"go-{number}", midnight + number * HOUR * 1000)
        producer.produce(self._names.requests, encode(asked), partition=0)
        producer.flush()
        shards, self.released = 0, 0
        while shards < self._pipeline.cells_partitions:
            if self._worker.poll() is not None or time.monotonic() - begun > PATIENCE:
                raise SystemExit(f"no release: {self._tail(0)[-500:]!r}")
            message = self._consumer.poll(0.05)
            if message is None:  # a look at all processes takes longer than a message
                resident = sum(process.memory_info().rss for process in self.family())
                self.resident = max(self.resident, resident)
            elif not message.error():
                manifest = b"hush.manifest/2" in message.value()
                shards, self.released = shards + manifest, self.released + (not manifest)
        return time.monotonic() - begun, self.cpu() - used

    def bytes_of(self, folder: Path, part: str = "") -> int:
        """Size of files below a folder, in subfolders whose names contain ``part``."""
        files = (one for one in folder.rglob("*") if one.is_file() and part in str(one))
        return sum(one.stat().st_size for one in files)

    def changelogs(self) -> int:
        """Bytes of the changelogs at the broker."""
        logs = self._broker.data.rglob("*-changelog-*/*.log")
        return sum(one.stat().st_size for one in logs)


def measure(run: Deployment, keys: int, changed: int, public: int) -> dict[str, Any]:
    """All figures for one number of keys."""
    say = f"{keys:,} keys: "
    with console.status(say + "producing"):
        records = run.produce(first(keys, public), 0)
    with console.status(say + "the first trigger"):
        run.start()
        seconds, cpu = run.trigger(1)
    after: list[tuple[float, float]] = []
    before: list[float] = []
    for number in range(LATER):
        with console.status(f"{say}trigger {number + 2}"):
            run.produce(later(keys, changed, number), number + 1)
            before.append(run.settle())
            after.append(run.trigger(number + 2))
    with console.status(say + "restarts"):
        run.stop()
        aggregate, everything = run.bytes_of(run.state, ".aggregate."), run.bytes_of(run.state)
        warm = run.start()
        run.stop()
        shutil.rmtree(run.state)
        wiped = run.start()
        run.stop()
        run.copy(LATER + 2, keys)
        shutil.rmtree(run.state)
        copied = run.start(copies=True)
        run.stop()
    return {
        "keys": keys,
        "records": records,
        "fill_seconds": round(seconds, 1),
        "fill_cpu_us": round(1e6 * cpu / records, 2),
        "before_cpu": [round(spent, 2) for spent in before],
        "trigger_seconds": [round(wall, 2) for wall, _ in after],
        "trigger_cpu": [round(spent, 2) for _, spent in after],
        "released": run.released,
        "key_bytes": round(aggregate / keys, 1),
        "state_mb": round(everything / 1e6, 1),
        "changelog_mb": round(run.changelogs() / 1e6, 1),
        "resident_mb": round(run.resident / 1e6),
        "warm_seconds": round(warm, 1),
        "wiped_seconds": round(wiped, 1),
        "copied_seconds": round(copied, 1),
        "copies_mb": round(run.bytes_of(run.store) / 1e6, 1),
    }


def main() -> None:
    """Run them one after the other and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--keys", help="numbers with commas between; default 1000000,10000000")
    parser.add_argument("--changed", type=int, default=10_000, help="records of later triggers")
    parser.add_argument("--public", type=int, default=2_000, help="keys that become public")
    parser.add_argument("--quick", action="store_true", help="100,000 keys, 500 of them public")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--processes", type=int, default=1, help="processes of the worker")
    args = parser.parse_args()
    numbers = args.keys or ("100000" if args.quick else "1000000,10000000")
    public = 500 if args.quick else args.public
    found = []
    for keys in (int(number) for number in numbers.split(",")):
        with tempfile.TemporaryDirectory(prefix="hush-seen-") as folder, Broker(quiet=True) as one:
            run = Deployment(Path(folder), one, keys, args.processes)
            try:
                found.append(measure(run, keys, args.changed, public))
            finally:
                run.stop()
        console.print(found[-1])
    table = Table("", *(f"{one['keys']:,}" for one in found), title="keys that were seen")
    for name in found[0]:
        table.add_row(name, *(str(one[name]) for one in found))
    console.print(table)
    if args.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()

"""The published workload through a broker, one worker, and its release compared byte for byte.

    python benchmarks/published.py [--scale S] [--quick] [--json] [--partitions N]
                                  [--unit-cache-mb MIB]

Ten million users, 59 million records and a million keys (`_workload.py`; ``--scale`` takes a part
of each), as JSON on a local broker, keyed by user. All records are produced first. The clock then
cuts at the end of the log, and the time runs from that cut until every shard has released. Then
``hush replay`` recomputes the release in memory, from the raw log, and compares every byte; that is
not part of the time. At scale 1 the broker takes some 4 GB of disk, and 4 GB of memory should be
free: worker and replay take up to 2.5 GB, one after the other.

- ``seconds``: from the cut to the last manifest; ``rate``: records in a second of it.
- ``cpu_us``: processor time of the worker's process for a record, from its start to the release.
- ``resident_mb``: the most memory that the worker had; ``state_mb``: its tables on disk at the end.
- ``compared``: released records that the replay found identical.
- ``replay_seconds``, ``replay_mb``: of the replay, and the most memory that it had.
- ``exact``: the worker bounded every record, and the replay agrees.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import engine
import numpy as np
import psutil
from _workload import published
from confluent_kafka.admin import NewTopic
from hushstream.agents.clock.genesis import read_ledger
from hushstream.agents.kafka.cluster import Cluster
from hushstream.deploy.broker import Broker
from hushstream.topics.config.model import Kafka
from hushstream.topics.names import Names
from hushstream.topics.records import TriggerRequest, encode
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

TOPIC = "published"
CHUNK = 200_000  # records between two updates of progress
PATIENCE = 3 * 3600.0  # seconds allowed for a release
SPREAD = 3_000_000  # milliseconds of event time, before the trigger
console = Console(stderr=True)


def produce(cluster: Cluster, unit: NDArray[np.int32], key: NDArray[np.int32]) -> None:
    """Produce all records in order, partitioned by user as by Kafka's Java clients."""
    producer = cluster.producer(
        **{
            "partitioner": "murmur2_random",
            "linger.ms": 50,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    with Progress(console=console, disable=not console.is_terminal) as progress:
        for begun in progress.track(range(0, len(unit), CHUNK), description="producing"):
            end = min(begun + CHUNK, len(unit))
            moments = engine.START + np.arange(begun, end) * SPREAD // len(unit)
            rows = zip(unit[begun:end].tolist(), key[begun:end].tolist(), moments.tolist(),
                       strict=True)  # fmt: skip
            for user, page, moment in rows:
                body = b'{"user":"u%d","page":"p%d","t":%d}' % (user, page, moment)
                _send(producer, body, b"u%d" % user)
    producer.flush(600)


def _send(producer: Any, value: bytes, key: bytes) -> None:
    while True:
        try:
            producer.produce(TOPIC, value, key=key)
            return
        except BufferError:
            producer.poll(0.1)


class Watch:
    """CPU and memory of a process while it runs.

    Args:
        pid: id of the process.
    """

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self.cpu = self.resident = 0.0

    def look(self) -> None:
        """Take its figures, which are not available after it has ended."""
        times = self._process.cpu_times()
        self.cpu = times.user + times.system
        self.resident = max(self.resident, self._process.memory_info().rss / 1e6)


def released(
    cluster: Cluster, folder: Path, records: int, cache: int
) -> tuple[Path, dict[str, Any]]:
    """Run one worker from the first record to the release; return configuration and figures."""
    path, config, pipeline = engine.deployment(
        cluster, folder, TOPIC, "murmur2", ", adaptive_weight = 0"
    )
    name, port = config.deployment.name, engine.free_port()
    names = Names(name, read_ledger(cluster, name).genesis["genesis"])
    at = engine.START * 1000 - engine.START * 1000 % 86_400_000_000 + 3_600_000_000
    with open(folder / "worker.log", "ab") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "hushstream", "worker", "-c", str(path),
             "--bootstrap", cluster.bootstrap, "--set", f"engine.data_dir={folder / name}",
             "--set", f"engine.operator_port={port}", "--set", f"engine.unit_cache_mb={cache}"],
            stdout=log, stderr=log,
        )  # fmt: skip
        watch = Watch(worker.pid)
        try:
            producer = cluster.producer()
            producer.produce(names.requests, encode(TriggerRequest("go", at)), partition=0)
            producer.flush()
            seconds = engine.wait(cluster, worker, pipeline, names, PATIENCE, watch.look)
            watch.look()
            seen = engine.seen(port, pipeline.name)
        finally:
            worker.terminate()
            worker.wait(120)
    size = sum(one.stat().st_size for one in (folder / name).rglob("*") if one.is_file())
    return path, {
        "seconds": round(seconds, 1),
        "rate": round(records / seconds),
        "cpu_us": round(1e6 * watch.cpu / records, 2),
        "resident_mb": round(watch.resident),
        "state_mb": round(size / 1e6, 1),
        "seen": seen,
    }


def replayed(bootstrap: str, path: Path, data: Path) -> dict[str, Any]:
    """The verdict of ``hush replay`` on the release."""
    begun = time.monotonic()
    replay = subprocess.Popen(
        [sys.executable, "-m", "hushstream", "replay", "-c", str(path), "--json",
         "--bootstrap", bootstrap, "--set", f"engine.data_dir={data}"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert replay.stdout is not None
    lines = replay.stdout.read().strip().splitlines()
    _, status, usage = os.wait4(replay.pid, 0)
    replay.returncode = os.waitstatus_to_exitcode(status)
    found = json.loads(lines[-1]) if lines else {}
    agrees = replay.returncode == 0 and found.get("compared", 0) > 0
    return {
        "compared": found.get("compared", 0),
        "replay_seconds": round(time.monotonic() - begun, 1),
        "replay_mb": round(usage.ru_maxrss / 1e3),  # Linux counts in kB
        "agrees": agrees,
    }


def measure(
    scale: float, partitions: int, cache: int, folder: Path, bootstrap: str
) -> dict[str, Any]:
    """All figures.

    Args:
        scale: part of the workload.
        partitions: number of partitions of the raw topic.
        cache: memory of rows of users, MiB.
        folder: folder of configuration, state and log.
        bootstrap: address of a broker.
    """
    cluster = Cluster(Kafka(bootstrap=bootstrap))
    cluster.wait()
    engine.PARTITIONS = partitions
    cluster._admin.create_topics([NewTopic(TOPIC, partitions, 1)])[TOPIC].result()
    time.sleep(0.5)
    with console.status("drawing the workload"):
        work = published(scale, 1)
    records = len(work.unit)
    produce(cluster, work.unit, work.key)
    facts = {"scale": scale, "records": records, "users": work.users, "keys": work.keys,
             "unit_cache_mb": cache}  # fmt: skip
    del work
    with console.status("one worker"):
        path, found = released(cluster, folder, records, cache)
    told = ", ".join(f"{name} {value}" for name, value in found.items() if name != "seen")
    console.print(f"released, and yet to be compared: {told}", highlight=False)
    with console.status("replaying in memory"):
        found |= replayed(bootstrap, path, folder / "replay")
    exact = found.pop("seen") == records and found.pop("agrees")
    return facts | found | {"exact": exact}


def main() -> None:
    """Run it and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--scale", type=float, default=1.0, help="part of the workload")
    parser.add_argument("--partitions", type=int, default=engine.PARTITIONS)
    parser.add_argument("--unit-cache-mb", type=int, default=512, help="as of a worker")
    parser.add_argument("--quick", action="store_true", help="a hundredth of the workload")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    scale = 0.01 if args.quick else args.scale
    if not 0 < scale <= 1:
        parser.error("--scale must lie above 0 and be at most 1")
    with tempfile.TemporaryDirectory(prefix="hush-published-") as folder, Broker(quiet=True) as one:
        found = measure(scale, args.partitions, args.unit_cache_mb, Path(folder), one.bootstrap)
    table = Table("", "", title="the published workload through a broker")
    for name, value in found.items():
        table.add_row(name, str(value))
    console.print(table)
    if args.json:
        print(json.dumps(found))
    sys.exit(0 if found["exact"] else 1)


if __name__ == "__main__":
    main()

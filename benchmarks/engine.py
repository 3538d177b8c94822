"""Throughput of one worker on a local broker, raw JSON events to closed aggregates.

    python benchmarks/engine.py [--quick] [--json] [--out DIR]

Events are produced first; the clock then cuts at the end of the log, and the time runs from that
cut until every aggregate shard has released. For comparison, stock Faust counts the same keys in
its RocksDB table, without any privacy. Ratios are within one run; absolute figures depend on the
machine.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka.admin import NewTopic
from hushstream.agents.clock.genesis import Beginning, read_ledger
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.kafka.cluster import Cluster
from hushstream.deploy.broker import Broker
from hushstream.topics.config.access.secret import noise_key
from hushstream.topics.config.load import load
from hushstream.topics.config.model import Kafka
from hushstream.topics.names import Names
from hushstream.topics.records import TriggerRequest, encode
from rich.console import Console
from rich.table import Table

USERS, KEYS, PARTITIONS = 200_000, 100_000, 4
MANY = 10_000_000  # users
START = 1_700_006_400_000  # a midnight, in milliseconds
console = Console(stderr=True)

CONFIG = """
[engine]
units_partitions = 2
cells_partitions = 2
public_port = 0
operator_port = 0
[[input]]
name = "events"
topic = "{topic}"
unit = "user"
partitioner = "{partitioner}"
time = {{ field = "t", format = "epoch_ms" }}
[[pipeline]]
name = "{name}"
input = "events"
key = ["page"]
unit_name = "user"
window = {{ length = "1d", origin = "2023-11-15T00:00:00Z" }}
triggers = {{ every = "1h" }}
schedule = "external"
budget = {{ epsilon = 2.0, delta = 1e-9 }}
mechanism = {{ kind = "histogram"{mechanism} }}
"""


def users(law: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """User of each event: uniform, uniform among many, or Zipf with exponent 1.1."""
    if law in ("uniform", "many"):
        return rng.integers(0, USERS if law == "uniform" else MANY, n)
    weight = 1.0 / np.arange(1, USERS + 1) ** 1.1
    return np.searchsorted(np.cumsum(weight) / weight.sum(), rng.random(n))


def produce(cluster: Cluster, topic: str, who: np.ndarray, rng: np.random.Generator) -> None:
    """JSON events in an hour of event time, keyed by user."""
    pages = rng.integers(0, KEYS, len(who))
    producer = cluster.producer(
        **{
            "partitioner": "murmur2_random",
            "linger.ms": 50,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    for i, (user, page) in enumerate(zip(who.tolist(), pages.tolist(), strict=True)):
        moment = START + i * 3_000_000 // len(who)
        value = b'{"user":"u%d","page":"p%d","t":%d,"price":12.5}' % (user, page, moment)
        producer.produce(topic, value, key=b"u%d" % user)
        if i % 50_000 == 0:
            producer.poll(0)
    producer.flush(120)


def deployment(cluster: Cluster, folder: Path, topic: str, partitioner: str, mechanism: str) -> Any:
    """A fresh deployment with one pipeline over ``topic``."""
    name = f"p{secrets.token_hex(3)}"
    path = folder / f"{name}.toml"
    text = CONFIG.format(topic=topic, partitioner=partitioner, name=name, mechanism=mechanism)
    path.write_text(f'[deployment]\nname = "{name}"\n{text}')
    (folder / "hush.key").write_text(secrets.token_hex(32))
    os.chmod(folder / "hush.key", 0o600)
    config = load(path, flags={"kafka.bootstrap": cluster.bootstrap,
                               "engine.data_dir": str(folder / name)})  # fmt: skip
    compiled = compile_config(config, {topic: PARTITIONS})
    now, secret = int(time.time() * 1e6), noise_key(config, {})
    Beginning(cluster, compiled, 1, now, secret).begin()
    return path, config, compiled.pipelines[0]


def measure(cluster: Cluster, folder: Path, topic: str, partitioner: str, mechanism: str) -> Any:
    """Seconds from the cut to the last manifest, and the total that the shards accepted."""
    path, config, pipeline = deployment(cluster, folder, topic, partitioner, mechanism)
    names = Names(
        config.deployment.name,
        read_ledger(cluster, config.deployment.name).genesis["genesis"],
    )
    producer = cluster.producer()
    at = START * 1000 - START * 1000 % 86_400_000_000 + 3_600_000_000
    port = free_port()
    log = open(folder / "worker.log", "ab")  # noqa: SIM115
    worker = subprocess.Popen(
        [
            sys.executable, "-m", "hushstream", "-v", "worker", "-c", str(path),
            "--bootstrap", cluster.bootstrap,
            "--set", f"engine.data_dir={folder / config.deployment.name}",
            "--set", f"engine.operator_port={port}",
        ],
        stdout=log, stderr=log,
    )  # fmt: skip
    try:
        producer.produce(names.requests, encode(TriggerRequest("go", at)), partition=0)
        producer.flush()
        return wait(cluster, worker, pipeline, names), seen(port, pipeline.name)
    finally:
        worker.terminate()
        worker.wait(30)
        log.close()


def wait(
    cluster: Cluster,
    worker: Any,
    pipeline: Any,
    names: Names,
    patience: float = 300,
    look: Callable[[], object] = lambda: None,
) -> float:
    """Follow the release topic until every shard's manifest is there.

    Args:
        cluster: the broker.
        worker: process of the worker.
        pipeline: pipeline whose releases to follow.
        names: names of the deployment.
        patience: time limit in seconds.
        look: called from time to time.

    Returns:
        Seconds from the cut.
    """
    from confluent_kafka import Consumer, TopicPartition

    client = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": secrets.token_hex(4),
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 20,
            "log_level": 0,
        }
    )
    client.assign([TopicPartition(pipeline.release_topic, 0, 0)])
    shards, until = 0, time.monotonic() + patience
    while shards < pipeline.cells_partitions:
        if worker.poll() is not None or time.monotonic() > until:
            raise SystemExit("the worker did not release; see worker.log")
        message = client.poll(0.05)
        look()
        if message is not None and not message.error():
            shards += b"hush.manifest/2" in message.value()
    end = time.time()
    client.close()
    triggers = [json.loads(m.value()) for m in cluster.read(names.clock)]
    cut = next(t["time"] / 1e6 for t in triggers if t["type"] == "trigger")
    return end - cut


def seen(port: int, pipeline: str) -> int:
    """Number of events that reached the bound, from the worker's operator metrics."""
    page = urllib.request.urlopen(f"http://127.0.0.1:{port}/internal/metrics").read().decode()
    wanted = f'hush_events_total{{outcome="seen",pipeline="{pipeline}"}}'
    return round(sum(float(x.split()[-1]) for x in page.splitlines() if x.startswith(wanted)))


def free_port() -> int:
    """A free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def stock(bootstrap: str, topic: str, events: int, folder: Path) -> float:
    """Events per second of stock Faust on the same topic."""
    script = Path(__file__).with_name("_stock.py")
    done = subprocess.run(
        [sys.executable, str(script), bootstrap, topic, str(events), tempfile.mkdtemp(dir=folder)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.replace(".", "").isdigit()]
    if not lines:
        raise SystemExit(f"stock Faust did not finish: {done.stderr[-500:]}")
    return float(lines[-1])


VARIANTS = {  # topic, declared partitioner, mechanism settings
    "uniform": ("uniform", "murmur2", ", adaptive_weight = 0"),
    "uniform_feedback": ("uniform", "murmur2", ""),
    "zipf": ("zipf", "murmur2", ", adaptive_weight = 0"),
    "rekeyed": ("uniform", "none", ", adaptive_weight = 0"),
}


def main() -> None:
    """Run all variants and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer events, within a minute")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--events", type=int)
    parser.add_argument("--only", choices=[*VARIANTS, "stock"])
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no worker is left behind
    n = args.events or (150_000 if args.quick else 1_000_000)
    stock_events, rounds = (3_000, 1) if args.quick else (20_000, 2)
    figures = run(n, args.only, stock_events, rounds)
    table = Table("variant", "events/s of one worker")
    for name, value in figures.items():
        table.add_row(name, f"{value:,}" if isinstance(value, int | float) else str(value))
    console.print(table)
    if args.json:
        print(json.dumps(figures))


def run(n: int, only: str | None, stock_events: int, rounds: int) -> dict[str, Any]:
    """All figures of one run on one broker."""
    rng = np.random.default_rng(0)
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary, Broker(quiet=True) as broker:
        folder = Path(temporary)
        cluster = Cluster(Kafka(bootstrap=broker.bootstrap))
        cluster.wait()
        with console.status("producing"):
            for law in ("uniform", "zipf"):
                cluster._admin.create_topics([NewTopic(law, PARTITIONS, 1)])[law].result()
                time.sleep(0.5)
                produce(cluster, law, users(law, n, rng), rng)
        exact = True
        for number in range(rounds):
            for name, (topic, partitioner, mechanism) in VARIANTS.items():
                if only in (None, name):
                    with console.status(f"{name}, round {number + 1}"):
                        seconds, total = measure(cluster, folder, topic, partitioner, mechanism)
                    figures[name] = max(figures.get(name, 0), round(n / seconds))
                    exact &= total == n
            if only in (None, "stock"):
                with console.status(f"stock Faust, round {number + 1}"):
                    rate = round(stock(broker.bootstrap, "uniform", stock_events, folder))
                figures["stock"] = max(figures.get("stock", 0), rate)
        if "uniform" in figures and "stock" in figures:
            figures["ratio"] = round(figures["uniform"] / figures["stock"], 1)
        figures["exact"] = exact
    return figures


if __name__ == "__main__":
    main()

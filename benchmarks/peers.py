"""One worker against Kafka Streams, Flink, Quix Streams, stock Faust and a bare fetch, in one run.

    python benchmarks/peers.py [--quick] [--json] [--events N] [--rounds N]

All of them read the same topics of JSON events, produced beforehand. Kafka Streams does a worker's
work without privacy, in two stages (`Streams.java`): at most BOUND records of each user, kept in
RocksDB; a repartition by page; a count per page, also kept in RocksDB; exactly once (v2). Its time
runs from the first record read to the last one counted, a worker's from the cut at the end of the
log to the last manifest. Flink does the same as Kafka Streams (`Flink.java`), with a checkpoint
each second; it repartitions all records by user itself, as a worker does for `rekeyed`. Quix
Streams and Faust only count per page. A peer whose requirements (a JDK, `pip install quixstreams`)
are missing is left out, with a message.

`many` has the same number of events, from 10 million users.

Each figure is the median of the rounds, in events per second; ratios are of medians of one run.
`exact`: the worker bounded every event, and Kafka Streams and Flink counted every event that the
bound allows and none twice.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka.admin import NewTopic
from engine import PARTITIONS, VARIANTS, measure, produce, stock, users
from hushstream.agents.kafka.cluster import Cluster
from hushstream.deploy.broker import Broker
from hushstream.deploy.jars import fetch
from hushstream.deploy.places import cache_dir
from hushstream.topics.config.model import Kafka
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
BOUND = 64
OURS = ("uniform", "rekeyed", "zipf", "many")
PROGRAMS = ("Streams", "Flink")
MADE = VARIANTS | {"many": ("many", "murmur2", ", adaptive_weight = 0")}
console = Console(stderr=True)


class Program:
    """A peer written in Java, compiled against the jars of its lock.

    Args:
        name: name of its class.
        folder: folder of its classes and states.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        place = cache_dir() / f"{name.lower()}-peer"
        self.jars = fetch(place, HERE / f"{name.lower()}.lock")
        source = str(HERE / f"{name}.java")
        subprocess.run(["javac", "-cp", f"{self.jars}/*", "-d", str(folder), source], check=True)

    def seconds(self, bootstrap: str, topic: str, wanted: int, *more: object) -> tuple[float, bool]:
        """Seconds of a run, and whether it counted correctly."""
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
        given = [bootstrap, topic, wanted, BOUND, *more]
        done = subprocess.run(
            ["java", "-Xmx2g", quiet, "-cp", f"{self.folder}:{self.jars}/*", self.name,
             *map(str, given)],
            capture_output=True, text=True, timeout=900, check=True,
        )  # fmt: skip
        seconds, counted = done.stdout.split()[-2:]
        return float(seconds), int(counted) == wanted


def programs(folder: Path) -> dict[str, Program]:
    """Peers in Java by name; without a JDK none, and a line says why."""
    if shutil.which("javac") is None:
        console.print("no javac here: Kafka Streams and Flink are left out", style="yellow")
        return {}
    return {name: Program(name, folder) for name in PROGRAMS}


def allowed(who: np.ndarray) -> int:
    """Number of events that a bound of BOUND per user accepts."""
    return int(np.minimum(np.bincount(who), BOUND).sum())


def fetched(bootstrap: str, topic: str, events: int) -> float:
    """Seconds for aiokafka alone to read the topic to its end."""
    from aiokafka import AIOKafkaConsumer
    from aiokafka.structs import TopicPartition

    async def read() -> float:
        client = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, isolation_level="read_committed",
            enable_auto_commit=False, max_partition_fetch_bytes=1 << 20,
        )  # fmt: skip
        await client.start()
        places = [TopicPartition(topic, n) for n in range(PARTITIONS)]
        client.assign(places)
        await client.seek_to_beginning(*places)
        begun, seen = time.perf_counter(), 0
        while seen < events:
            found = await client.getmany(timeout_ms=1000, max_records=20_000)
            seen += sum(map(len, found.values()))
        seconds = time.perf_counter() - begun
        await client.stop()
        return seconds

    return asyncio.run(read())


def quix(bootstrap: str, topic: str, events: int, folder: Path) -> float | None:
    """Seconds for Quix Streams to count per page; None if it is not installed."""
    if importlib.util.find_spec("quixstreams") is None:
        return None
    done = subprocess.run(
        [sys.executable, str(HERE / "_quix.py"), bootstrap, topic, str(events),
         tempfile.mkdtemp(dir=folder)],
        capture_output=True, text=True, timeout=900, check=True,
    )  # fmt: skip
    return float(done.stdout.split()[-1])


class Run:
    """All rounds on one broker.

    Args:
        events: number of events of each topic.
        rounds: number of rounds of each figure.
        folder: folder of states and programs.
        broker: running broker.
    """

    def __init__(self, events: int, rounds: int, folder: Path, broker: Broker) -> None:
        self.events, self.rounds, self.folder = events, rounds, folder
        self.bootstrap = broker.bootstrap
        self.cluster = Cluster(Kafka(bootstrap=broker.bootstrap))
        self.cluster.wait()
        self.programs = programs(folder)
        self.wanted: dict[str, int] = {}
        self.exact = True
        rng = np.random.default_rng(0)
        for law in ("uniform", "zipf", "many"):
            self.cluster._admin.create_topics([NewTopic(law, PARTITIONS, 1)])[law].result()
            who = users(law, events, rng)
            self.wanted[law] = allowed(who)
            with console.status(f"producing {law}"):
                produce(self.cluster, law, who, rng)

    def figures(self) -> dict[str, Any]:
        """Median rates by name, without peers that were left out."""
        found: dict[str, list[float]] = {}
        for number in range(self.rounds):
            for name, work in self.works().items():
                with console.status(f"{name}, round {number + 1} of {self.rounds}"):
                    seconds = work()
                if seconds is not None:
                    found.setdefault(name, []).append(self.events / seconds)
        few = 3_000 if self.events < 500_000 else 20_000
        with console.status("stock Faust"):
            found["faust"] = [stock(self.bootstrap, "uniform", few, self.folder)]
        return {name: round(statistics.median(rates)) for name, rates in found.items()}

    def works(self) -> dict[str, Callable[[], float | None]]:
        """Timed runs, ordered so that each worker is next to its peers."""
        made: dict[str, Callable[[], float | None]] = {
            "fetch": lambda: fetched(self.bootstrap, "uniform", self.events)
        }
        for name in OURS:
            made[name] = partial(self.ours, name)
            topic, rekey = ("uniform", True) if name == "rekeyed" else (name, False)
            for threads, said in ((1, "one"), (2, "two")):
                if "Streams" in self.programs:
                    peer = f"streams_{name}_{said}"
                    made[peer] = partial(self.streams, topic, threads, rekey)
                if "Flink" in self.programs and not rekey:
                    made[f"flink_{name}_{said}"] = partial(self.flink, topic, threads)
        made["quix"] = lambda: quix(self.bootstrap, "uniform", self.events, self.folder)
        return made

    def ours(self, name: str) -> float:
        """Seconds of one worker."""
        topic, partitioner, mechanism = MADE[name]
        seconds, seen = measure(self.cluster, self.folder, topic, partitioner, mechanism)
        self.exact &= seen == self.events
        return float(seconds)

    def streams(self, topic: str, threads: int, rekey: bool) -> float:
        """Seconds of Kafka Streams."""
        return self._theirs("Streams", topic, threads, self.folder, str(rekey).lower())

    def flink(self, topic: str, parallelism: int) -> float:
        """Seconds of Flink."""
        return self._theirs("Flink", topic, parallelism, self.folder)

    def _theirs(self, name: str, topic: str, *more: object) -> float:
        program, wanted = self.programs[name], self.wanted[topic]
        seconds, exact = program.seconds(self.bootstrap, topic, wanted, *more)
        self.exact &= exact
        return seconds


def ratios(found: dict[str, Any]) -> dict[str, float]:
    """Ratio of each variant to the better of one and two threads, and the share of a fetch.

    ``ratio_…`` is over Kafka Streams, ``ratio_flink_…`` over Flink; with 200,000 uniform users it
    is ``ratio_flink``.
    """
    made = {"fetch_share": round(found["uniform"] / found["fetch"], 2)}
    for name in OURS:
        for peer, stem in (("streams", "ratio"), ("flink", "ratio_flink")):
            same = "uniform" if (peer, name) == ("flink", "rekeyed") else name
            peers = [found[key] for key in found if key.startswith(f"{peer}_{same}_")]
            if peers and name in found:
                short = (stem, name) == ("ratio_flink", "uniform")
                made[stem if short else f"{stem}_{name}"] = round(found[name] / max(peers), 2)
    return made


def main() -> None:
    """Run all and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few events, one round")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--events", type=int)
    parser.add_argument("--rounds", type=int)
    args = parser.parse_args()
    events = args.events or (100_000 if args.quick else 2_000_000)
    rounds = args.rounds or (1 if args.quick else 5)
    with tempfile.TemporaryDirectory() as folder, Broker(quiet=True) as broker:
        run = Run(events, rounds, Path(folder), broker)
        found = run.figures()
    found |= ratios(found) | {"exact": run.exact}
    table = Table("", "events/s, or ratio", title=f"{events:,} events, median of {rounds}")
    for name, value in found.items():
        table.add_row(name, str(value) if isinstance(value, bool) else f"{value:,}")
    console.print(table)
    if "quix" not in found:
        console.print("Quix Streams is not installed, and left out: pip install quixstreams")
    if args.json:
        print(json.dumps(found))
    sys.exit(0 if run.exact else 1)


if __name__ == "__main__":
    main()

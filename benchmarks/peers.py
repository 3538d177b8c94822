"""One worker beside Kafka Streams, Quix Streams, stock Faust and a bare fetch: one broker, one run.

    python benchmarks/peers.py [--quick] [--json] [--events N] [--rounds N]

All of them read the same topics of JSON events that were produced before. Kafka Streams does a
worker's work without privacy, in two stages (`Streams.java`): at most BOUND records of each user,
kept in RocksDB; a repartition by page; a count per page, kept likewise; exactly once (v2). Its time
runs from the first record read to the last one counted, a worker's from the cut at the end of the
log to the last manifest. Quix Streams and Faust count per page alone. What a peer needs and is not
found here (a JDK, `pip install quixstreams`) leaves that peer out, and says so.

Each figure is the median of the rounds, in events per second; ratios are of medians of one run.
`exact`: the worker bounded every event, and Kafka Streams counted every event that its bound allows
and none twice.
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
OURS = ("uniform", "rekeyed", "zipf")
console = Console(stderr=True)


def compiled(folder: Path) -> Path | None:
    """Compile the Kafka Streams program; None, and a line that says why, where there is no JDK."""
    if shutil.which("javac") is None:
        console.print("no javac here: Kafka Streams is left out", style="yellow")
        return None
    jars = fetch(cache_dir() / "streams-peer", HERE / "streams.lock")
    subprocess.run(
        ["javac", "-cp", f"{jars}/*", "-d", str(folder), str(HERE / "Streams.java")], check=True
    )
    return jars


def allowed(who: np.ndarray) -> int:
    """How many events a bound of BOUND per user lets through."""
    return int(np.minimum(np.bincount(who), BOUND).sum())


def streams(
    bootstrap: str, topic: str, wanted: int, threads: int, rekey: bool, place: tuple[Path, Path]
) -> tuple[float, bool]:
    """Seconds of Kafka Streams, and whether it counted what it should."""
    jars, folder = place
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    given = [bootstrap, topic, wanted, BOUND, threads, folder, str(rekey).lower()]
    done = subprocess.run(
        ["java", "-Xmx2g", quiet, "-cp", f"{folder}:{jars}/*", "Streams", *map(str, given)],
        capture_output=True,
        text=True,
        timeout=900,
        check=True,
    )
    seconds, counted = done.stdout.split()[-2:]
    return float(seconds), int(counted) == wanted


def fetched(bootstrap: str, topic: str, events: int) -> float:
    """Seconds in which aiokafka alone reads the topic to its end."""
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
    """Seconds of Quix Streams, counting per page; None where it is not installed."""
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
        events: of each topic.
        rounds: of each figure.
        folder: for states and programs.
        broker: a running one.
    """

    def __init__(self, events: int, rounds: int, folder: Path, broker: Broker) -> None:
        self.events, self.rounds, self.folder = events, rounds, folder
        self.bootstrap = broker.bootstrap
        self.cluster = Cluster(Kafka(bootstrap=broker.bootstrap))
        self.cluster.wait()
        self.jars = compiled(folder)
        self.wanted: dict[str, int] = {}
        self.exact = True
        rng = np.random.default_rng(0)
        for law in ("uniform", "zipf"):
            self.cluster._admin.create_topics([NewTopic(law, PARTITIONS, 1)])[law].result()
            who = users(law, events, rng)
            self.wanted[law] = allowed(who)
            with console.status(f"producing {law}"):
                produce(self.cluster, law, who, rng)

    def figures(self) -> dict[str, Any]:
        """Median rates by name; what was left out is missing."""
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
        """What is timed, in an order in which each worker stands beside its peers."""
        made: dict[str, Callable[[], float | None]] = {
            "fetch": lambda: fetched(self.bootstrap, "uniform", self.events),
            "uniform": lambda: self.ours("uniform"),
        }
        if self.jars is not None:
            made["streams_one"] = lambda: self.theirs("uniform", 1)
            made["streams_two"] = lambda: self.theirs("uniform", 2)
        made["rekeyed"] = lambda: self.ours("rekeyed")
        if self.jars is not None:
            made["streams_rekeyed_one"] = lambda: self.theirs("uniform", 1, rekey=True)
            made["streams_rekeyed_two"] = lambda: self.theirs("uniform", 2, rekey=True)
        made["zipf"] = lambda: self.ours("zipf")
        if self.jars is not None:
            made["streams_zipf_one"] = lambda: self.theirs("zipf", 1)
            made["streams_zipf_two"] = lambda: self.theirs("zipf", 2)
        made["quix"] = lambda: quix(self.bootstrap, "uniform", self.events, self.folder)
        return made

    def ours(self, name: str) -> float:
        """Seconds of one worker."""
        topic, partitioner, mechanism = VARIANTS[name]
        seconds, seen = measure(self.cluster, self.folder, topic, partitioner, mechanism)
        self.exact &= seen == self.events
        return float(seconds)

    def theirs(self, topic: str, threads: int, rekey: bool = False) -> float:
        """Seconds of Kafka Streams."""
        assert self.jars is not None
        place = (self.jars, self.folder)
        wanted = self.wanted[topic]
        seconds, exact = streams(self.bootstrap, topic, wanted, threads, rekey, place)
        self.exact &= exact
        return seconds


def ratios(found: dict[str, Any]) -> dict[str, float]:
    """Of each variant, against the better of one and two threads; and the share of a fetch."""
    made = {"fetch_share": round(found["uniform"] / found["fetch"], 2)}
    for name in OURS:
        stem = "streams" if name == "uniform" else f"streams_{name}"
        peers = [found[peer] for peer in (f"{stem}_one", f"{stem}_two") if peer in found]
        if peers:
            made[f"ratio_{name}"] = round(found[name] / max(peers), 2)
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

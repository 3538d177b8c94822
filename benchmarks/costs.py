"""Costs of an event for worker, broker and log; two processes beside one.

    python benchmarks/costs.py [--quick] [--json] [--events N] [--rounds N]

A worker processes few events, then more, of 200,000 users and 100,000 keys. The difference between
the runs, divided by the difference in events, is the cost of one event: the cost of a start cancels
out. Costs are CPU of the worker's and of the broker's processes, and bytes of the broker's log
files. Rows of many users, state and triggers come from `units.py`, `memory.py` and `trigger.py`.

A second process should cost what the model of `hush size` predicts. Two processes take turns with
one, except with ``--quick``, which leaves them out:

- ``two_cpu``, ``two_cpu_predicted``: microseconds of CPU per event, workers and broker together.
- ``two_rate``, ``two_rate_predicted``: events per second. Only a quiet machine gives this figure.
- ``two_gain``: events per second of two processes over those of one, in the same round.
- ``cpu_error``, ``rate_error``: measured over predicted, less 1.

Other load on the machine distorts times, rates most of all: a negative figure means that it hit the
start of a worker harder than all events.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import engine
import memory
import numpy as np
import psutil
import trigger
import units
from confluent_kafka.admin import NewTopic
from hushstream.agents.clock.genesis import read_ledger
from hushstream.agents.kafka.cluster import Cluster
from hushstream.deploy.broker import Broker
from hushstream.mechanisms.columns import Part
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.histogram.mechanism import Histogram
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.histogram.tumbling import build
from hushstream.mechanisms.keys import Keys
from hushstream.planning.costs import COSTS
from hushstream.topics.config.model import Kafka
from hushstream.topics.frames import decode, encode_cells
from hushstream.topics.names import Names
from hushstream.topics.records import TriggerRequest, encode
from rich.console import Console
from rich.table import Table

Figures = dict[str, float]
console = Console(stderr=True)


class Run(NamedTuple):
    """Cost of one run: seconds of CPU, bytes, seconds, and bytes of resident memory."""

    worker: float
    broker: float
    stored: int
    seconds: float
    resident: int


class Bench:
    """Runs of workers on one broker.

    Args:
        folder: folder of states.
        broker: running broker.
    """

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.folder, self.broker = folder, broker
        self.cluster = Cluster(Kafka(bootstrap=broker.bootstrap))
        self.cluster.wait()
        self.last = ""
        self._random = np.random.default_rng(0)

    def produce(self, topic: str, events: int) -> None:
        """Make a topic with ``events`` events of uniform users."""
        self.cluster._admin.create_topics([NewTopic(topic, engine.PARTITIONS, 1)])[topic].result()
        time.sleep(0.5)
        who = engine.users("uniform", events, self._random)
        engine.produce(self.cluster, topic, who, self._random)

    def run(
        self, topic: str, partitioner: str, processes: int = 1, settings: Sequence[str] = ()
    ) -> Run:
        """Run one deployment from its first record to its release; `last` becomes its name."""
        stored, spent = self._stored(), self._broker()
        path, config, pipeline = engine.deployment(
            self.cluster, self.folder, topic, partitioner, ", adaptive_weight = 0"
        )
        self.pipeline = pipeline
        name = self.last = config.deployment.name
        words = [word for setting in settings for word in ("--set", setting)]
        names = Names(name, read_ledger(self.cluster, name).genesis["genesis"])
        at = engine.START * 1000 - engine.START * 1000 % 86_400_000_000 + 3_600_000_000
        with open(self.folder / "worker.log", "ab") as log:
            worker = subprocess.Popen(
                [sys.executable, "-m", "hushstream", "worker", "-c", str(path),
                 "--bootstrap", self.cluster.bootstrap, "--processes", str(processes),
                 "--set", f"engine.data_dir={self.folder / name}", *words],
                stdout=log, stderr=log,
            )  # fmt: skip
            try:
                producer = self.cluster.producer()
                producer.produce(names.requests, encode(TriggerRequest("go", at)), partition=0)
                producer.flush()
                seconds = engine.wait(self.cluster, worker, pipeline, names)
                family = psutil.Process(worker.pid)
                all_of_it = [family, *family.children(recursive=True)]
                used = sum(sum(p.cpu_times()[:2]) for p in all_of_it)
                resident = max(p.memory_info().rss for p in all_of_it)
            finally:
                worker.terminate()
                worker.wait(60)
        return Run(used, self._broker() - spent, self._stored() - stored, seconds, resident)

    def _broker(self) -> float:
        return float(sum(psutil.Process(self.broker.pid).cpu_times()[:2]))

    def _stored(self) -> int:
        return sum(f.stat().st_size for f in self.broker.data.rglob("*.log"))


def per_event(few: Run, more: Run, events: int) -> tuple[float, float, float]:
    """Microseconds of a worker and of the broker, and bytes, per additional event."""
    return (
        1e6 * (more.worker - few.worker) / events,
        1e6 * (more.broker - few.broker) / events,
        (more.stored - few.stored) / events,
    )


def state(scale: int) -> tuple[float, float, float]:
    """Bytes on disk per user, per pair and per key."""
    nothing = lambda _: None  # noqa: E731
    kind = memory.mechanism()
    few, many = (memory.units(kind, 250_000 // scale, pairs, nothing)[1] for pairs in (1, 9))
    pair = (many - few) / 8
    return few - pair, pair, memory.key_bytes(1_000_000 // scale, nothing)


def triggered(scale: int) -> tuple[float, float]:
    """Seconds of CPU of a trigger without keys, and microseconds per key that it reads."""
    made = build(HistogramParameters(), Setting(Fraction(6), Fraction(1, 10**9), 24))
    assert isinstance(made, Histogram)
    sizes, times = (100_000 // scale, 500_000 // scale), []
    for keys in sizes:
        load = trigger.Load(keys, keys, keys // 20)
        trials = [trigger.seconds(made, load, 24, time.process_time) for _ in range(3)]
        times.append(min(trials))
    slope = (times[1] - times[0]) / (sizes[1] - sizes[0])
    return max(times[0] - slope * sizes[0], 0.0), 1e6 * slope


def framed() -> tuple[float, float]:
    """Microseconds of CPU to write and read a frame of twenty sums, and its overhead in bytes."""
    keys = Keys.of(b'["page-%d"]' % n for n in range(20))
    part = Part(keys, np.zeros(20, np.uint8), np.ones((20, 1), np.int64), np.zeros(1, np.int64))
    begun, turns = time.process_time(), 2_000
    for _ in range(turns):
        (frame,) = encode_cells(1, 0, 1, part)
        decode(frame)
    spent = 1e6 * (time.process_time() - begun) / turns
    return spent, float(len(frame) - len(keys.data) - 20 * (1 + 8))


def measure(
    bench: Bench, events: int, rounds: int, scale: int, two: bool
) -> tuple[dict[str, float], dict[str, float]]:
    """All costs, and the prediction for two processes beside their measurement.

    Args:
        bench: runs on a broker.
        events: number of events of the smaller topic; the larger one has four times as many.
        rounds: number of repetitions of each run; figures are medians.
        scale: divisor of the users and keys of the other benchmarks.
        two: whether to run two processes as well.
    """
    with console.status("producing"):
        bench.produce("few", events)
        bench.produce("more", 4 * events)
        bench.run("few", "none")  # the first start may compile loops
    found: dict[str, list[tuple[float, float, float]]] = {}
    rates: dict[str, list[float]] = {}
    resident = 0
    kinds = {"direct": ("murmur2", 1), "rekeyed": ("none", 1)}
    if two:
        kinds["two"] = ("murmur2", 2)
    for number in range(rounds):
        for name, (partitioner, processes) in kinds.items():
            with console.status(f"{name}, round {number + 1} of {rounds}"):
                few, more = (bench.run(t, partitioner, processes) for t in ("few", "more"))
            found.setdefault(name, []).append(per_event(few, more, 3 * events))
            rates.setdefault(name, []).append(4 * events / more.seconds)
            resident = max(resident, more.resident)
    with console.status("rows, state and triggers"), tempfile.TemporaryDirectory() as folder:
        rows = units.measure(units.MANY // scale, rounds + 1, Path(folder))
        user, pair, key = state(scale)
        begun, each = triggered(scale)
        frame_us, frame_bytes = framed()
    cost = {name: np.median(np.array(runs), axis=0).tolist() for name, runs in found.items()}
    costs = {
        "direct_us": cost["direct"][0], "rekeyed_us": cost["rekeyed"][0],
        "known_us": float(rows["added"]),
        "disk_us": float(rows["many_on_disk"]) - float(rows["few"]),
        "broker_direct_us": cost["direct"][1], "broker_rekeyed_us": cost["rekeyed"][1],
        "direct_bytes": cost["direct"][2], "rekeyed_bytes": cost["rekeyed"][2],
        "process_bytes": float(resident), "known_bytes": float(rows["memory_bytes"]),
        "user_bytes": user, "pair_bytes": pair, "key_bytes": key,
        "trigger_s": begun, "trigger_us": each, "frame_us": frame_us, "frame_bytes": frame_bytes,
    }  # fmt: skip
    return rounded(costs), judged(cost, rates) if two else {}


def rounded(costs: dict[str, float]) -> dict[str, float]:
    """Costs to three digits: runs do not repeat more."""
    return {name: float(f"{value:.3g}") for name, value in costs.items()}


def judged(cost: dict[str, list[float]], rates: dict[str, list[float]]) -> dict[str, float]:
    """The model's prediction for two processes, and their measurement."""
    rate = {name: statistics.median(each) for name, each in rates.items()}
    predicted = COSTS.beside * cost["direct"][0] + cost["direct"][1]
    taken = sum(cost["two"][:2])
    cores = os.cpu_count() or 1
    most = min(2 * rate["direct"], cores * 1e6 / predicted)
    return {
        "two_cpu": round(taken, 2),
        "two_cpu_predicted": round(predicted, 2),
        "cpu_error": round(taken / predicted - 1, 3),
        "two_rate": round(rate["two"]),
        "two_rate_predicted": round(most),
        "rate_error": round(rate["two"] / most - 1, 3),
        "two_gain": round(rate["two"] / rate["direct"], 2),
    }


def main() -> None:
    """Run all and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few events, one round, one process")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--events", type=int)
    parser.add_argument("--rounds", type=int)
    args = parser.parse_args()
    events = args.events or (50_000 if args.quick else 500_000)
    rounds = args.rounds or (1 if args.quick else 5)
    with tempfile.TemporaryDirectory() as folder, Broker(quiet=True) as broker:
        bench = Bench(Path(folder), broker)
        scale = 25 if args.quick else 1
        costs, test = measure(bench, events, rounds, scale, two=not args.quick)
    table = Table("", "µs, bytes, seconds or ratio", title=f"median of {rounds}")
    for name, value in {**costs, **test}.items():
        table.add_row(name, f"{value:,}")
    console.print(table)
    if args.json:
        print(json.dumps({**costs, **test}))


if __name__ == "__main__":
    main()

"""Cost of hot keys, hot units and hot partitions: CPU, memory and lateness over an even load.

    python benchmarks/skew.py [--quick] [--json] [--events N] [--rounds N]

The same number of events comes with four loads: evenly, with half of all records for one *key*,
with a fifth of them from one *unit*, and with 90 % of them in one raw *partition* of four. The
pipeline is re-partitioned, so that each kind of skew reaches the stage that it hurts, and its
worker has two processes. Each load comes in two sizes, so that the cost of a start cancels out, as
in `costs.py`. Medians of the rounds, as ratios to the even load:

- ``cpu``: CPU of the worker for an event.
- ``late``: seconds from the cut to the last manifest, for each further event.
- ``memory``: the peak of one process, with all events.

The last line under ``--json``: ``worst_cpu``, ``worst_late`` and ``worst_memory``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import costs
import engine
import numpy as np
from confluent_kafka.admin import NewTopic
from hushstream.deploy.broker import Broker
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

console = Console(stderr=True)
PROCESSES = 2


class Load(NamedTuple):
    """Shares of all events for one key, from one unit, and in one partition."""

    key: float = 0.0
    unit: float = 0.0
    partition: float = 0.0


LOADS = {
    "even": Load(),
    "half of one key": Load(key=0.5),
    "a fifth of one unit": Load(unit=0.2),
    "90 % in one partition": Load(partition=0.9),
}


def drawn(load: Load, events: int) -> tuple[NDArray[np.int64], ...]:
    """(events,) users, pages and partitions."""
    random = np.random.default_rng(3)
    columns = []
    for number, share in zip(
        (engine.USERS, engine.KEYS, engine.PARTITIONS),
        (load.unit, load.key, load.partition),
        strict=True,
    ):
        column = random.integers(0, number, events)
        column[random.random(events) < share] = 0
        columns.append(column)
    return tuple(columns)


class Bench(costs.Bench):
    """Runs of workers over topics of one load each."""

    def fill(self, topic: str, load: Load, events: int) -> None:
        """Make a topic with events in an hour of event time."""
        self.cluster._admin.create_topics([NewTopic(topic, engine.PARTITIONS, 1)])[topic].result()
        time.sleep(0.5)
        producer = self.cluster.producer(
            **{"linger.ms": 50, "compression.type": "lz4", "queue.buffering.max.messages": 10**6}
        )
        columns = zip(*(column.tolist() for column in drawn(load, events)), strict=True)
        for number, (user, page, place) in enumerate(columns):
            moment = engine.START + number * 3_000_000 // events
            value = b'{"user":"u%d","page":"p%d","t":%d,"price":12.5}' % (user, page, moment)
            producer.produce(topic, value, partition=place)
            if number % 50_000 == 0:
                producer.poll(0)
        producer.flush(120)


class Cost(NamedTuple):
    """CPU of an event in microseconds, seconds for a million of them, and bytes of memory."""

    cpu: float
    late: float
    memory: float


def measure(events: int, rounds: int) -> dict[str, Cost]:
    """Cost of each load, as medians of the rounds."""
    found: dict[str, list[Cost]] = {name: [] for name in LOADS}
    sizes = events // 4, events
    with tempfile.TemporaryDirectory() as folder, Broker(quiet=True) as broker:
        bench = Bench(Path(folder), broker)
        for place, (name, load) in enumerate(LOADS.items()):
            for size in sizes:
                with console.status(f"producing: {name}"):
                    bench.fill(f"load-{place}-{size}", load, size)
        bench.run(f"load-0-{sizes[0]}", "none")  # the first start may compile loops
        for number in range(rounds):
            for place, name in enumerate(LOADS):
                with console.status(f"{name}, round {number + 1} of {rounds}"):
                    few, more = (
                        bench.run(f"load-{place}-{size}", "none", PROCESSES) for size in sizes
                    )
                cpu, _, _ = costs.per_event(few, more, sizes[1] - sizes[0])
                late = 1e6 * (more.seconds - few.seconds) / (sizes[1] - sizes[0])
                found[name].append(Cost(cpu, late, float(more.resident)))
    return {name: median(each) for name, each in found.items()}


def median(each: list[Cost]) -> Cost:
    """The median of each cost separately."""
    return Cost(*(statistics.median(column) for column in zip(*each, strict=True)))


def worst(found: dict[str, Cost]) -> dict[str, float]:
    """The largest ratio to the even load, of each cost."""
    even = found["even"]
    return {
        f"worst_{name}": round(max(one[place] / even[place] for one in found.values()), 2)
        for place, name in enumerate(Cost._fields)
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="200,000 events, one round")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--events", type=int, help="default 2,000,000")
    parser.add_argument("--rounds", type=int, help="default 3")
    args = parser.parse_args()
    events = args.events or (200_000 if args.quick else 2_000_000)
    found = measure(events, args.rounds or (1 if args.quick else 3))
    table = Table("load", "µs of CPU an event", "s for a million events", "MB of a process")
    for name, cost in found.items():
        table.add_row(name, f"{cost.cpu:.2f}", f"{cost.late:.2f}", f"{cost.memory / 1e6:.0f}")
    console.print(table)
    if args.json:
        print(json.dumps(worst(found)))


if __name__ == "__main__":
    main()

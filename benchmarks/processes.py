"""Two processes against one, on the same broker and topic: CPU of an event, and other times.

    python benchmarks/processes.py [--quick] [--json] [--events N] [--rounds N]

Runs take turns. The cost of an event is the difference between a run of few events and one of four
times as many, so the cost of a start cancels out. `hush size` predicts that, with the same
partitions, an event costs `beside` times as much with a second process as with the first alone.

- ``one``, ``two``: microseconds of CPU of an event, of workers and broker, medians of the rounds.
- ``ratio``: two over one, the median of the rounds' ratios; ``predicted``: what `hush size` says.
- ``error``: ``ratio`` over ``predicted``, less 1.
- ``gain``: events per second of two processes over those of one, of the events that the larger run
  has more: what a start costs, and the joining of the second process, cancel out.
- ``whole``: the same of the larger run from the cut to the release, with its joining.
- ``joining``: seconds from the cut to the release that do not grow with the events.
- ``machine``: of its CPU during the larger runs, the shares of workers, broker, others and idle.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import costs
import engine
import psutil
from hushstream.deploy.broker import Broker
from hushstream.planning.costs import COSTS
from hushstream.planning.size import Load, size
from rich.console import Console

console = Console(stderr=True)
PARTITIONER = "murmur2"


class Turn(NamedTuple):
    """A run of few events and one of more, by as many processes."""

    worker: float  # microseconds of an event
    broker: float
    rate: float  # for events beyond those of the smaller run
    whole: float  # of the larger run
    joining: float  # seconds of both runs that do not depend on events
    machine: dict[str, float]


def turn(bench: costs.Bench, processes: int, events: int) -> Turn:
    """Cost of each event beyond the first ``events``, and shares of the machine's CPU."""
    few = bench.run("few", PARTITIONER, processes)
    before = psutil.cpu_times()
    more = bench.run("more", PARTITIONER, processes)
    spent = [after - less for after, less in zip(psutil.cpu_times(), before, strict=True)]
    everything, idle = sum(spent), spent[before._fields.index("idle")]
    shares = {"workers": more.worker, "broker": more.broker, "idle": idle}
    shares["others"] = everything - sum(shares.values())
    worker, broker, _ = costs.per_event(few, more, 3 * events)
    machine = {name: round(value / everything, 3) for name, value in shares.items()}
    rate = 3 * events / max(more.seconds - few.seconds, 1e-3)
    joining = few.seconds - events / rate
    return Turn(worker, broker, rate, 4 * events / more.seconds, joining, machine)


def predicted() -> float:
    """CPU of an event with two processes over that with one, by `hush size`."""
    load = Load(
        engine.USERS, engine.KEYS, 100_000, replicas=1, partitions=engine.PARTITIONS, cells=2
    )
    one, two = (size(load._replace(processes=n), COSTS) for n in (1, 2))
    brokers = 1e6 * one.broker_cores / load.rate, 1e6 * two.broker_cores / load.rate
    return (two.worker_us + brokers[1]) / (one.worker_us + brokers[0])


def measure(bench: costs.Bench, events: int, rounds: int) -> dict[str, Any]:
    """All figures."""
    bench.produce("few", events)
    bench.produce("more", 4 * events)
    bench.run("few", PARTITIONER)  # the first start may compile loops
    ones, twos = list[Turn](), list[Turn]()
    for number in range(rounds):
        console.print(f"round {number + 1} of {rounds}")
        for processes in (1, 2) if number % 2 == 0 else (2, 1):
            (ones if processes == 1 else twos).append(turn(bench, processes, events))
    ratios = [
        (two.worker + two.broker) / (one.worker + one.broker)
        for one, two in zip(ones, twos, strict=True)
    ]
    ratio, said = statistics.median(ratios), predicted()
    return {
        "one": told(ones),
        "two": told(twos),
        "ratio": round(ratio, 3),
        "ratios": [round(one, 3) for one in ratios],
        "predicted": round(said, 3),
        "error": round(ratio / said - 1, 3),
        "gain": round(statistics.median(t.rate for t in twos) / statistics.median(
            o.rate for o in ones), 2),
        "whole": round(
            statistics.median(t.whole / o.whole for o, t in zip(ones, twos, strict=True)), 2
        ),
    }  # fmt: skip


def told(turns: list[Turn]) -> dict[str, Any]:
    """Medians of some turns."""
    shares = {
        name: statistics.median(one.machine[name] for one in turns) for name in turns[0].machine
    }
    worker, broker = (statistics.median(one[place] for one in turns) for place in (0, 1))
    rate, joining = (statistics.median(one[place] for one in turns) for place in (2, 4))
    return {"worker": round(worker, 2), "broker": round(broker, 2), "rate": round(rate),
            "joining": round(joining, 2), "machine": shares}  # fmt: skip


def main() -> None:
    """Run all and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few events, one round")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--events", type=int, help="of the smaller runs; default 500,000")
    parser.add_argument("--rounds", type=int, help="default 5")
    args = parser.parse_args()
    events = args.events or (50_000 if args.quick else 500_000)
    rounds = args.rounds or (1 if args.quick else 5)
    with tempfile.TemporaryDirectory() as folder, Broker(quiet=True) as broker:
        found = measure(costs.Bench(Path(folder), broker), events, rounds)
    if args.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        Console().print(f"{name}: {value}", markup=False)


if __name__ == "__main__":
    main()

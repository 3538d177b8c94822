"""CPU usage of an idle worker, thread by thread.

One worker serves a re-partitioned pipeline with four partitions at every stage, twelve shards, and
owns the clock. No record and no request comes. Some time after it is ready, the kernel's count of
each thread's processor time is read, in nanoseconds: other work on the machine affects it only
through the caches.

    python benchmarks/idle.py [--quick] [--json] [--seconds N]

--quick counts for 30 seconds; the default is 120. The last line under ``--json``: ``percent`` of a
core, ``seconds``, ``switches`` (how often a thread woke up, per second), ``load`` (the machine's,
as a mean over a minute) and ``threads``, percent by name.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from _cluster import Local, local
from hushstream.deploy.broker import Broker
from hushstream.topics.records import TriggerRequest, encode
from rich.console import Console
from rich.table import Table

SECONDS, QUICK_SECONDS = 120.0, 30.0
SETTLE_SECONDS = 15.0
PARTITIONS = 4
REQUESTS, QUICK_REQUESTS = 24, 6
APART_SECONDS = 3.3  # enough for the clock to rest again
HOUR, ORIGIN = 3_600_000_000, 17956 * 86_400_000_000  # 2019-03-01

TOML = f"""
[deployment]
name = "idle"
[engine]
units_partitions = {PARTITIONS}
cells_partitions = {PARTITIONS}
[[input]]
name = "events"
topic = "events"
unit = "user"
time = {{ field = "t", format = "epoch_us" }}
[[pipeline]]
name = "pages"
input = "events"
key = ["page"]
window = {{ length = "1d", origin = "2019-03-01T00:00:00Z" }}
triggers = {{ every = "1h" }}
schedule = "external"
budget = {{ epsilon = 8.0, delta = 1e-4 }}
"""


class Spent(NamedTuple):
    """A thread's name, its nanoseconds of CPU, and its number of wake-ups."""

    name: str
    time: int
    switches: int


def spent(process: int) -> dict[int, Spent]:
    """Usage of every living thread of a process so far, by thread id."""
    found = {}
    for task in Path(f"/proc/{process}/task").iterdir():
        try:
            name = (task / "comm").read_text().strip()
            nanoseconds = int((task / "schedstat").read_text().split()[0])
            lines = (task / "status").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            continue
        switches = sum(int(one.split()[1]) for one in lines if one.startswith("voluntary_ctxt"))
        found[int(task.name)] = Spent(name, nanoseconds, switches)
    return found


def counted(process: int, seconds: float) -> tuple[Counter[str], int, float]:
    """Nanoseconds by thread name, number of wake-ups, and seconds, from now on.

    Python does not tell the kernel its threads' names: all but the main one are counted together.
    """
    before, began = spent(process), time.monotonic()
    time.sleep(seconds)
    after, took = spent(process), time.monotonic() - began
    total, switches = Counter[str](), 0
    for number, now in after.items():
        then = before.get(number, Spent(now.name, 0, 0))
        other = "other Python threads" if now.name == after[process].name else now.name
        name = "main" if number == process else other
        total[name] += now.time - then.time
        switches += now.switches - then.switches
    return total, switches, took


def asked(run: Local, number: int) -> list[float]:
    """Milliseconds from each request to its trigger."""
    producer, sent = run.producer(), list[int]()
    for place in range(1, number + 1):
        request = encode(TriggerRequest(str(place), ORIGIN + place * HOUR, None))
        producer.produce(
            run.names.requests, request, partition=0,
            on_delivery=lambda _, message: sent.append(message.timestamp()[1]),
        )  # fmt: skip
        producer.flush(30)
        time.sleep(APART_SECONDS)
    triggers = run.wait_triggers(number)
    return [t.time / 1000 - then for t, then in zip(triggers, sent, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seconds", type=float)
    options = parser.parse_args()
    seconds = options.seconds or (QUICK_SECONDS if options.quick else SECONDS)
    console = Console(stderr=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        Broker(quiet=True) as broker,
        local(Path(folder), broker.bootstrap, TOML, {"events": PARTITIONS}) as run,
    ):
        run.loud, run.settings = False, {"engine.trim_interval": "5m"}  # as by default
        worker = run.start("w")
        run.wait_ready(["w"], 120)
        time.sleep(SETTLE_SECONDS)
        console.print(f"counting for {seconds:.0f} s")
        total, switches, took = counted(worker.pid, seconds)
        waited = asked(run, QUICK_REQUESTS if options.quick else REQUESTS)
    threads = {name: 100 * time_ / 1e9 / took for name, time_ in total.most_common()}
    row = {
        "percent": round(sum(threads.values()), 3),
        "seconds": round(took, 1),
        "switches": round(switches / took, 1),
        "load": os.getloadavg()[0],
        "request_ms": round(statistics.median(waited), 1),
        "threads": {name: round(share, 3) for name, share in threads.items()},
    }
    if options.json:
        print(json.dumps(row))
        return
    table = Table(title=f"An idle worker with 12 shards: {row['percent']:.2f} % of a core")
    table.add_column("threads")
    table.add_column("% of a core", justify="right")
    for name, share in threads.items():
        table.add_row(name, f"{share:.3f}")
    Console().print(table)


if __name__ == "__main__":
    main()

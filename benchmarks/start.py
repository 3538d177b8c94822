"""Times of the steps of a worker's start, from the command to the line ``ready``.

    python benchmarks/start.py [--units N] [--runs N] [--cold] [--quick] [--json]

A deployment on a real broker holds the rows of many privacy units in four shards of ingest and two
of aggregate. Its only worker is stopped cleanly and started again with its tables. In its process
each step of the start reports when it ended, in seconds and in seconds of CPU:

- ``python``: the interpreter, and the modules of the command.
- ``config``: settings read and checked.
- ``admission``: ledger, topics and clock log checked.
- ``loops``: compiled loops loaded from their cache.
- ``made``: stages, stores and Faust application made.
- ``joined``: the consumer group has assigned partitions. On an empty group the broker waits for
  ``group.initial.rebalance.delay.ms`` (``delay``, 0 for `hush broker`; Kafka's default is 3 s).
- ``logs``: clock and feedback read.
- ``shards``: every shard has its producer and its table.
- ``clock``: the clock is taken over, and the worker is ready.

``--cold`` starts each time with an empty cache of compiled loops, by ``NUMBA_CACHE_DIR``. Figures
are medians; other load on the machine increases seconds, and CPU a little.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MARKS, BORN = "HUSH_BENCHMARK_MARKS", "HUSH_BENCHMARK_BORN"
DELAY = "group.initial.rebalance.delay.ms"
Marks = list[tuple[str, float, float]]


def probe() -> None:
    """Run ``hush`` in this process, and report when each step of a worker's start has ended."""
    words = sys.argv[sys.argv.index("hushstream") + 1 :]
    settings = dict(word.split("=", 1) for word in sys.argv[3 : sys.argv.index("-m") - 1])
    os.environ.update(settings)
    path, born = Path(settings[MARKS]), float(settings[BORN])

    def mark(name: str) -> None:
        with path.open("a") as out:
            out.write(json.dumps([name, time.time() - born, time.process_time()]) + "\n")

    from hushstream.agents.worker import startup
    from hushstream.agents.worker.owned_clock import OwnedClock
    from hushstream.agents.worker.worker import Worker
    from hushstream.cli import group
    from hushstream.cli import worker as command

    mark("python")
    _after(command, "read_config", mark, "config")
    _after(startup, "admitted", mark, "admission")
    _after(startup, "warm", mark, "loops")
    _after(Worker, "__init__", mark, "made")
    _wrap(Worker, "_match", mark, "joined")
    _after_async("hushstream.agents.worker.log_follower", "LogFollower", "open", mark, "logs")
    _wrap(OwnedClock, "_make", mark, "shards")
    _after_async("hushstream.agents.worker.worker", "Worker", "_match", mark, "clock")
    group.main(words)


def _after(owner: Any, name: str, mark: Callable[[str], None], said: str) -> None:
    function = getattr(owner, name)

    @functools.wraps(function)
    def timed(*args: Any, **named: Any) -> Any:
        try:
            return function(*args, **named)
        finally:
            mark(said)

    setattr(owner, name, timed)


def _wrap(owner: Any, name: str, mark: Callable[[str], None], said: str) -> None:
    function = getattr(owner, name)

    @functools.wraps(function)
    def timed(*args: Any, **named: Any) -> Any:
        mark(said)
        return function(*args, **named)

    setattr(owner, name, timed)


def _after_async(
    module: str, owner: str, name: str, mark: Callable[[str], None], said: str
) -> None:
    holder = getattr(sys.modules[module], owner)
    function = getattr(holder, name)

    @functools.wraps(function)
    async def timed(*args: Any, **named: Any) -> Any:
        found = await function(*args, **named)
        mark(said)
        return found

    setattr(holder, name, timed)


def starts(units: int, runs: int, cold: bool, delay: int, report: Callable[[str], None]) -> Any:
    """Marks of each start.

    Args:
        units: number of rows in the tables.
        runs: number of starts.
        cold: whether each start compiles its loops.
        delay: the broker's delay before a group's first assignment, milliseconds.
        report: called with each step in words.
    """
    import recovery
    from _chaos import BROKER
    from _cluster import local
    from hushstream.deploy.broker import Broker

    found: list[Marks] = []
    with (
        tempfile.TemporaryDirectory(prefix="hush-start-") as name,
        Broker(
            Path(name) / "broker", quiet=True, overrides={**BROKER, DELAY: str(delay)}
        ) as broker,
        local(Path(name), broker.bootstrap, recovery.TOML, {"events": 4}) as run,
    ):
        cache = {"NUMBA_CACHE_DIR": str(run.folder / "loops")} if cold else {}
        # Passed by the starter: process ages derive from a boot time in whole seconds.
        run.environ = lambda _: {
            MARKS: str(run.folder / "marks"),
            BORN: repr(time.time()),
            **cache,
        }
        run.prefix = lambda _: [sys.executable, __file__, "--probe"]
        recovery.begin(run)
        report(f"{units} units come")
        recovery.feed(run, 0, units)
        recovery.used(run, 1)
        recovery.stop(run)
        for number in range(runs):
            report(f"start {number + 1} of {runs}")
            (run.folder / "marks").unlink()
            if cold:
                shutil.rmtree(run.folder / "loops", ignore_errors=True)
            recovery.begin(run)
            lines = (run.folder / "marks").read_text().splitlines()
            found.append([tuple(json.loads(line)) for line in lines])
            recovery.stop(run)
    return found


def table_of(found: list[Marks]) -> dict[str, tuple[float, float]]:
    """Median seconds, and seconds of CPU, that each step took; the last line is the whole start."""
    import numpy as np  # here, because the measured worker loads this module

    names = [name for name, *_ in found[0]]
    ends = np.array([[mark[1:] for mark in marks] for marks in found])  # start, step, clock
    took = np.median(np.diff(ends, axis=1, prepend=0.0), axis=0).round(2).tolist()
    steps = {name: (seconds, spent) for name, (seconds, spent) in zip(names, took, strict=True)}
    seconds, spent = np.median(ends[:, -1], axis=0).round(2).tolist()
    return {**steps, "all": (seconds, spent)}


def main() -> None:
    """Command line."""
    from rich.console import Console
    from rich.table import Table

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, help="default 200,000")
    parser.add_argument("--runs", type=int, help="default 5")
    parser.add_argument("--cold", action="store_true", help="compile loops at each start")
    parser.add_argument("--delay", type=int, default=0, help="of the broker, ms; default 0")
    parser.add_argument("--quick", action="store_true", help="20,000 units, two starts")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    units = options.units or (20_000 if options.quick else 200_000)
    runs = options.runs or (2 if options.quick else 5)
    console = Console(stderr=True)
    found = table_of(starts(units, runs, options.cold, options.delay, console.print))
    if options.json:
        print(json.dumps({name: {"seconds": s, "cpu": cpu} for name, (s, cpu) in found.items()}))
        return
    table = Table("step", "seconds", "CPU", title=f"a worker's start, median of {runs}")
    for name, (seconds, spent) in found.items():
        table.add_row(name, f"{seconds:.2f}", f"{spent:.2f}")
    Console().print(table)


if __name__ == "__main__":
    probe() if sys.argv[1:2] == ["--probe"] else main()

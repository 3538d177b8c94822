"""Hostile floods against a worker with little memory: it survives, and releases go on.

A worker serves a direct pipeline, a re-partitioned one and one with windows of a minute on a real
broker, in a container (a cgroup) of 1 GiB; the broker runs outside. A producer then sends one flood
after the other, each followed by a release:

- ``keys``: distinct keys of 906 bytes, each from a unit of its own, to both inputs;
- ``units``: distinct units of 500 bytes;
- ``windows``: records of different windows, one each;
- ``records``: records of 1 MB: one large field, many small fields, or not JSON;
- ``restore``: no flood; the worker's tables are deleted, and it restores what the floods left.

The last line under ``--json``:

- ``peak_mb``: the most resident memory of the worker in any flood, MiB; ``peaks`` by flood;
- ``base_mb``: the most before the floods, after an ordinary release;
- ``budget_mb``: result of the formula in docs/operations.md for these settings;
- ``killed``: number of times that the worker ended, killed by the kernel or by itself;
- ``stuck``: floods after which a release did not come;
- ``limit_mb``: limit of the container; 0: there are no cgroups here, so nothing limits the worker,
  and only its resident memory is measured.

    python benchmarks/floods.py [--quick] [--json] [--only FLOOD …] [--keys N] [--limit-mb M]

``--quick`` sends 120,000 keys instead of 700,000, and scales the other floods down alike.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _cage import Cage, cage
from _chaos import BROKER, SLOW
from _cluster import Local, local
from _flooding import FLOODS, MINUTE, ORIGIN, feed, sent, share
from hushstream.agents.state.folders import discard
from hushstream.deploy.broker import Broker
from hushstream.topics.records import Trigger
from rich.console import Console
from rich.table import Table

LIMIT_MB = 1024
KEYS = 700_000
FEW = 120_000  # of --quick
PARTITIONS = 2
MIB = 1 << 20
PATIENCE = 240.0  # seconds until a release counts as stuck
RESTORE = "restore"
SETTINGS = {
    "engine.step_bytes": "4194304",
    "engine.input_mb": "64",
    "engine.unit_cache_mb": "128",
    "engine.block_cache_mb": "32",
    "engine.write_buffer_mb": "4",
}
SHARDS = {"raw": 4, "units": 2, "cells": 6}  # of this deployment
TOML = """
[deployment]
name = "floods"
[engine]
units_partitions = 2
cells_partitions = 2
session_timeout = "10s"

[[input]]
name = "visits"
topic = "visits"
unit = "user"
partitioner = "murmur2"
time = { field = "t", format = "epoch_us" }

[[input]]
name = "orders"
topic = "orders"
unit = ["shop", "user"]
time = { field = "t", format = "epoch_us" }

[[pipeline]]
name = "direct"
input = "visits"
key = ["page"]
window = { length = "1d", origin = "2019-03-01T00:00:00Z" }
triggers = { every = "1h" }
schedule = "external"
budget = { epsilon = 8.0, delta = 1e-9 }

[[pipeline]]
name = "routed"
input = "orders"
key = ["item", "colour"]
window = { length = "1d", origin = "2019-03-01T00:00:00Z" }
triggers = { every = "1h" }
schedule = "external"
budget = { epsilon = 8.0, delta = 1e-9 }
mechanism = { kind = "histogram", budget = 12, adaptive_weight = 0.3 }

[[pipeline]]
name = "minutes"
input = "visits"
key = ["page"]
window = { length = "1m", origin = "2019-03-01T00:00:00Z" }
triggers = { every = "1m" }
schedule = "external"
budget = { epsilon = 8.0, delta = 1e-9 }
"""


@dataclass
class Watched:
    """The one worker: it is restarted when it ends, and its memory is measured meanwhile.

    Attributes:
        killed: number of times that it ended unexpectedly.
        peak: peak resident memory in bytes, since this was last set to 0.
    """

    run: Local
    killed: int = 0
    peak: int = 0
    ended: list[str] = field(default_factory=list)

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        self.run.start("w")
        self.run.wait_ready(["w"], SLOW)

    def look(self) -> None:
        """Measure its memory; restart it if it has ended."""
        child = self.run.workers["w"]
        self.peak = max(self.peak, resident(child.pid))
        if child.returncode is not None:
            self.killed += 1
            self.ended.append(f"{child.returncode}: {self.run.tail('w', 3)}")
            self.run.start("w")

    def settle(self) -> None:
        """Restart measuring, with a new process for each flood."""
        self.run.stop("w")
        self.run.log("w").unlink()
        self.peak = 0
        self.start()

    def released(self, triggers: Sequence[Trigger], patience: float = PATIENCE) -> bool:
        """Wait until these triggers are released; whether they are."""
        until = time.monotonic() + patience
        while time.monotonic() < until:
            quiet = time.monotonic() + 2
            while time.monotonic() < quiet:
                self.look()
                time.sleep(0.05)
            if self.run.wanted(triggers) <= self.run.manifests():
                return True
        return False


def resident(pid: int) -> int:
    """Peak resident memory of a process in bytes; 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    words = status.partition("VmHWM:")[2].split()
    return int(words[0]) * 1024 if words else 0


def budget() -> int:
    """Most MiB that a worker needs, by the formula in docs/operations.md."""
    mb = {name.removeprefix("engine."): int(value) for name, value in SETTINGS.items()}
    step, shards = mb["step_bytes"] / MIB, sum(SHARDS.values())
    caches = mb["block_cache_mb"] + mb["unit_cache_mb"] + mb["input_mb"]
    tables = 3 * mb["write_buffer_mb"] * shards + 8 * SHARDS["cells"]
    return round(300 + caches + tables + step * (shards + 24))


def flood(run: Local, worker: Watched, name: str, count: int, hour: int) -> bool:
    """One flood and the release after it; whether that came."""
    at = ORIGIN + hour * 60 * MINUTE
    if name == RESTORE:
        run.stop("w")
        discard(run.data("w"))
        run.log("w").unlink()
        worker.peak = 0
        worker.start()
    else:
        worker.settle()
        feed(run, FLOODS[name](share(name, count), at - 30 * MINUTE), PARTITIONS, worker.look)
    return release(run, worker, at)


def release(run: Local, worker: Watched, at: int) -> bool:
    """Request a release, and wait for it."""
    before = len(run.triggers())
    run.trigger(at, ["direct", "routed"])
    until = time.monotonic() + PATIENCE
    while len(found := run.triggers()) < before + 2:
        if time.monotonic() > until:
            return False
        worker.look()
        time.sleep(0.1)
    return worker.released(found[before:])


def floods(
    folder: Path,
    bootstrap: str,
    count: int,
    names: Sequence[str],
    inside: Cage | None,
    report: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """All floods, one after the other, against one worker.

    Args:
        folder: folder of the deployment.
        bootstrap: address of a running broker.
        count: number of keys of the flood of keys; other floods scale with it.
        names: names of floods.
        inside: cgroup of the worker; None: no limit.
        report: called with a line for each flood.
    """
    with local(folder, bootstrap, TOML, {"visits": PARTITIONS, "orders": PARTITIONS}) as run:
        run.loud = False
        run.settings |= SETTINGS
        if inside is not None:
            run.prefix = lambda member: inside.prefix()
        worker = Watched(run)
        worker.start()
        feed(run, (sent(f"u{n}", f"p{n % 10}", ORIGIN) for n in range(4000)), PARTITIONS)
        assert release(run, worker, ORIGIN + 60 * MINUTE), run.tail("w")
        base, peaks, stuck, seconds = worker.peak, dict[str, int](), list[str](), {}
        for hour, name in enumerate(names, 2):
            began = time.monotonic()
            if not flood(run, worker, name, count, hour):
                stuck.append(name)
            peaks[name] = worker.peak // MIB
            seconds[name] = round(time.monotonic() - began, 1)
            report(f"{name}: {peaks[name]} MiB, {seconds[name]} s, ended {worker.killed} times")
            if name in stuck:
                break  # later floods would wait behind it
        return {
            "peak_mb": max(peaks.values()), "base_mb": base // MIB, "killed": worker.killed,
            "stuck": len(stuck), "limit_mb": 0, "budget_mb": budget(), "peaks": peaks,
            "seconds": seconds, "keys": count, "stopped_at": stuck, "ended": worker.ended[:5],
        }  # fmt: skip


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="fewer records")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--keys", type=int, help="keys of the first flood (default 700,000)")
    parser.add_argument("--limit-mb", type=int, default=LIMIT_MB, help="of the container")
    parser.add_argument("--only", nargs="+", choices=[*FLOODS, RESTORE])
    options = parser.parse_args()
    console = Console(stderr=True)
    count = options.keys or (FEW if options.quick else KEYS)
    with (
        tempfile.TemporaryDirectory(prefix="hush-floods-") as folder,
        Broker(Path(folder) / "broker", quiet=True, overrides=BROKER) as broker,
        cage(options.limit_mb * MIB) as inside,
    ):
        names = options.only or [*FLOODS, RESTORE]
        found = floods(Path(folder), broker.bootstrap, count, names, inside, console.print)
        found["limit_mb"] = options.limit_mb if inside is not None else 0
    if options.json:
        print(json.dumps(found))
    else:
        table = Table("", "", show_header=False, title="after the floods")
        for name, value in found.items():
            table.add_row(name, str(value))
        Console().print(table)
    sys.exit(1 if found["killed"] or found["stuck"] else 0)


if __name__ == "__main__":
    main()

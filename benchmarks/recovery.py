"""Time until a restarted worker is ready: with its tables, without them, and after a crash.

A deployment on a real broker holds the state of many privacy units. Its only worker is ended and
started again several times; each start is timed from the command to the line ``ready``, when every
shard has its state:

- ``warm``: it was stopped in order, and its tables are there.
- ``killed``: it was killed, and its tables are there.
- ``wiped``: its folder is gone; everything is restored from changelogs.
- ``half``: its folder is from the time when half of the units had come.

Seconds depend on the machine, so the last line under ``--json`` has ratios to ``warm``; ``said`` is
the number of progress lines in the log while the wiped worker restores.

    python benchmarks/recovery.py [--units N] [--quick] [--json]
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _chaos import BROKER, SLOW
from _cluster import Local, local
from hushstream.agents.state.folders import discard
from hushstream.deploy.broker import Broker
from rich.console import Console
from rich.table import Table

UNITS = 1_000_000
RUNS = 3
PARTITIONS = 2
BATCH = 20_000
ORIGIN = 17956 * 86_400_000_000  # 2019-03-01
TOML = """
[deployment]
name = "recovery"
[engine]
cells_partitions = 2
session_timeout = "6s"
[[input]]
name = "events"
topic = "events"
unit = "user"
time = { field = "t", format = "epoch_us" }
partitioner = "murmur2"
[[pipeline]]
name = "pages"
input = "events"
key = ["page"]
window = { length = "1d", origin = "2019-03-01T00:00:00Z" }
triggers = { every = "6h" }
schedule = "external"
budget = { epsilon = 8.0, delta = 1e-9 }
mechanism = { kind = "histogram", budget = 12 }
"""


def recovery(units: int, folder: Path, report: Callable[[str], None]) -> dict[str, Any]:
    """Seconds until ``ready`` in each case, as ratios to a warm start."""
    with (
        Broker(folder / "broker", quiet=True, overrides=BROKER) as broker,
        local(folder, broker.bootstrap, TOML, {"events": PARTITIONS}) as run,
    ):
        begin(run)
        half = folder / "half"
        for part, share in enumerate((units // 2, units - units // 2)):
            report(f"{share} units come")
            feed(run, part * (units // 2), share)
            used(run, part + 1)
            stop(run)
            if part == 0:
                shutil.copytree(run.data("w"), half)
                begin(run)
        cases: dict[str, Callable[[], Any]] = {
            "warm": lambda: None,
            "killed": lambda: None,
            "wiped": lambda: discard(run.data("w")),
            "half": lambda: (discard(run.data("w")), shutil.copytree(half, run.data("w"))),
        }
        seconds: dict[str, list[float]] = {name: [] for name in cases}
        said: list[str] = []
        for _ in range(RUNS):
            for name, prepare in cases.items():
                report(name)
                if name == "killed":
                    begin(run)
                    run.kill("w")
                prepare()
                mark = run.log("w").stat().st_size
                seconds[name].append(begin(run))
                if name == "wiped":
                    text = run.log("w").read_bytes()[mark:].decode(errors="replace")
                    said = [line for line in text.splitlines() if "restor" in line]
                stop(run)
    found = {name: statistics.median(each) for name, each in seconds.items()}
    ratios = {name: round(each / found["warm"], 2) for name, each in found.items()}
    return {"units": units, **ratios, "warm_seconds": round(found["warm"], 2),
            "lines": len(said), "said": said[:3] + said[-2:]}  # fmt: skip


def begin(run: Local) -> float:
    """Start the worker; seconds until it is ready."""
    log = run.log("w")
    mark = log.stat().st_size if log.exists() else 0
    began = time.monotonic()
    child = run.start("w")
    while b"ready:" not in log.read_bytes()[mark:]:
        if child.returncode is not None or time.monotonic() > began + SLOW:
            raise AssertionError(f"the worker does not serve:\n{run.errors('w')}")
        time.sleep(0.02)
    return time.monotonic() - began


def stop(run: Local) -> None:
    """Stop the worker cleanly."""
    code = run.stop("w", SLOW)
    if code != 0:
        raise AssertionError(f"the worker ended with {code}")


def feed(run: Local, first: int, number: int, topic: str = "events") -> None:
    """Send one event of each of ``number`` units."""
    producer = run.producer(**{"partitioner": "murmur2_random", "linger.ms": 50})
    for i in range(first, first + number):
        value = b'{"user":"user %d","page":"p%d","t":%d}' % (i, i % 97, ORIGIN)
        while True:
            try:
                producer.produce(topic, value, f"user {i}")
                break
            except BufferError:
                producer.poll(0.5)
        if i % BATCH == 0:
            producer.poll(0)
    producer.flush(SLOW)


def used(run: Local, trigger: int) -> None:
    """Wait until everything sent is used: a trigger's release needs all earlier records."""
    time.sleep(1)  # a beat covers it
    run.trigger(ORIGIN + trigger * 6 * 3_600_000_000)
    run.wait_released(run.wait_triggers(trigger, SLOW), SLOW)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, default=None, help=f"default {UNITS}")
    parser.add_argument("--quick", action="store_true", help="20,000 units")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    units = options.units or (20_000 if options.quick else UNITS)
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="hush-recovery-") as folder:
        found = recovery(units, Path(folder), lambda what: console.print(what))
    if options.json:
        print(json.dumps(found))
        return
    table = Table("", "", title="time to serve, as a ratio to a warm start", show_header=False)
    for name, value in found.items():
        if name != "said":
            table.add_row(name, str(value))
    Console().print(table)
    for line in found["said"]:
        console.print(line, markup=False)


if __name__ == "__main__":
    main()

"""Predictions of `hush size` compared with measurements: memory, disk and bytes of topics.

    python benchmarks/size.py [--quick] [--json] [--only NAME]

A worker processes the same number of events in several configurations, from its first record to its
release; `hush size` predicts each of them.

- ``memory``: resident memory of the worker's process after the release, with all of it loaded.
- ``disk``: its tables after merging; `docs/scale.md` gives their size before that.
- ``units``, ``cells``, ``rows``, ``sums``: bytes of the units and cells topics, and of the
  changelogs of bound and of aggregate, for each event, one replica, before trimming and compaction.
- ``bytes``: all four together.
- ``error``: measured over predicted, less 1.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import NamedTuple

import costs
import engine
from hushstream.agents.state.rocks import RocksStore
from hushstream.deploy.broker import Broker
from hushstream.planning.costs import COSTS
from hushstream.planning.size import Load, distinct, size
from rich.console import Console
from rich.table import Table

console = Console(stderr=True)
EVENTS = 400_000
CONFIG = engine.CONFIG


class Case(NamedTuple):
    """A configuration, and the load on it."""

    users: int
    keys: int
    partitioner: str
    step: int = 40_000
    processes: int = 1
    partitions: int = engine.PARTITIONS  # of the raw topic
    units: int = 2  # partitions, like ``cells``
    cells: int = 2


CASES = {
    "re-partitioned": Case(200_000, 100_000, "none"),
    "direct": Case(200_000, 100_000, "murmur2"),
    "few keys": Case(200_000, 1_000, "murmur2"),
    "few users": Case(20_000, 20_000, "none"),
    "small steps": Case(100_000, 50_000, "none", 5_000),
    "two processes": Case(200_000, 100_000, "murmur2", processes=2),
    "64 partitions": Case(200_000, 100_000, "none", partitions=64, units=64, cells=64),
    "256 partitions": Case(200_000, 100_000, "murmur2", partitions=256, cells=16),
}


class Sized(costs.Bench):
    """Runs of workers on one broker, with the sizes of their tables and topics."""

    def sizes(self, name: str, case: Case, events: int) -> dict[str, float]:
        """Bytes for each event by kind of topic, and of tables and memory."""
        engine.USERS, engine.KEYS, engine.PARTITIONS = case.users, case.keys, case.partitions
        engine.CONFIG = CONFIG.replace("units_partitions = 2", f"units_partitions = {case.units}")
        engine.CONFIG = engine.CONFIG.replace(
            "cells_partitions = 2", f"cells_partitions = {case.cells}"
        )
        topic = name.replace(" ", "-")
        self.produce(topic, events)
        before = self._folders()
        found = self.run(
            topic, case.partitioner, case.processes, [f"engine.step_records={case.step}"]
        )
        of = dict.fromkeys(KINDS, 0)
        for path in self._folders() - before:
            kind = next((k for k, mark in KINDS.items() if mark(path.name)), None)
            if kind is not None:
                of[kind] += sum(f.stat().st_size for f in path.glob("*.log"))
        each = {kind: size / events for kind, size in of.items()}
        disk = float(sum(map(merged, tables(self.folder / self.last))))
        return {"memory": float(found.resident), "disk": disk, **each, "bytes": sum(each.values())}

    def _folders(self) -> set[Path]:
        return {path.parent for path in self.broker.data.rglob("*.log")}


KINDS = {
    "units": lambda name: ".units-" in name,
    "cells": lambda name: ".cells-" in name,
    "rows": lambda name: "-changelog" in name and (".bound." in name or ".ingest." in name),
    "sums": lambda name: "-changelog" in name and ".aggregate." in name,
}


def tables(folder: Path) -> list[Path]:
    """Folders of a deployment's tables, of all its workers."""
    return sorted({path.parent for path in folder.rglob("CURRENT")})


def merged(folder: Path) -> int:
    """Bytes of a table once it is merged."""
    table = RocksStore(folder, None, 16 << 20)
    table.compact()
    size = table.size()
    table.close()
    return size


def predicted(case: Case, events: int, bound: int) -> dict[str, float]:
    """The prediction of `hush size` for a case whose events all come at once."""
    active = distinct(events, case.users)
    load = Load(
        users=active,
        keys=distinct(events, case.keys),
        rate=1e6,
        pairs=min(events / active, bound),
        key_text=float(len(b'["p%d"]' % (case.keys // 2))),
        direct=int(case.partitioner != "none"),
        rekeyed=int(case.partitioner == "none"),
        replicas=1,
        every=events / 1e6,
        step=max(min(case.step, events // case.partitions), 1),  # a partition has no more
        waiting=0.0,  # few events wait; they are part of a process's base
        processes=case.processes,
        partitions=case.partitions,
        units=case.units,
        cells=case.cells,
    )
    found = size(load, COSTS)
    topics = {**found.topics._asdict(), "bytes": found.topics.all}
    return {"memory": found.memory / case.processes, "disk": found.disk, **topics}


def compared(bench: Sized, events: int, only: str | None) -> dict[str, dict[str, list[float]]]:
    """Predicted, measured and error of each figure of each case."""
    found = {}
    for name, case in CASES.items():
        if only not in (None, name):
            continue
        with console.status(name):
            measured = bench.sizes(name, case, events)
        bound = bench.pipeline.traits.bound
        said = predicted(case, events, bound)
        found[name] = {
            kind: [round(said[kind], 2), round(value, 2), round(value / said[kind] - 1, 3)]
            for kind, value in measured.items()
            if said[kind]
        }
        console.print(f"{name}: {found[name]}", markup=False)
    return found


def main() -> None:
    """Run all cases and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, help=f"default {EVENTS:,}")
    parser.add_argument("--quick", action="store_true", help="100,000 events")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", choices=list(CASES))
    args = parser.parse_args()
    events = args.events or (100_000 if args.quick else EVENTS)
    with tempfile.TemporaryDirectory() as folder, Broker(quiet=True) as broker:
        found = compared(Sized(Path(folder), broker), events, args.only)
    if args.json:
        print(json.dumps(found))
        return
    table = Table("case", "figure", "predicted", "measured", "error")
    for name, figures in found.items():
        for kind, (said, value, error) in figures.items():
            table.add_row(name, kind, f"{said:,.4g}", f"{value:,.4g}", f"{error:+.0%}")
    Console().print(table)


if __name__ == "__main__":
    main()

"""Seeded schedules of faults against the real code, in virtual time: `tests/schedules`.

Each schedule runs clock, shards, transactions and follower of one to three workers against an
in-memory Kafka, with up to five faults at random moments, and judges the releases. ``python -m
tests.schedules.campaign --seed N`` replays a failing seed with a log of events.

    python benchmarks/schedules.py [--quick] [--json] [--schedules N] [--seed S] [--processes P]
                                   [--only FAULT] [--standbys] [--full] [--guided] [--resume FILE]

--only skips all seeds without a fault of this kind, for example ``rewind``, which one in 16 has;
they are not run, so 100,000 seeds take little longer than the 6,000 that remain.
--standbys adds a billion to the seed: from there on workers keep copies of each other's tables
(`engine.standbys = 1`), and more workers are restarted, mostly one after the other.
--full adds two billion: all seeds also draw one to three of the six faults of guided schedules.
--guided lets the protocol states seen so far choose what is tried next, in one process, with six
further faults, and shrinks failing schedules (`tests/schedules/guided.py`). With --standbys it also
gets deployments with copies, whose states it sees. --resume continues the search in this file up to
N schedules in all; --seed is its number. Its last line: ``schedules``, ``states``, ``corpus``,
``seconds`` and ``found``, each with its ``command``.
--quick runs 1,000 of them, or as many as 40 seconds allow; the default is 10,000. The last line
under ``--json``: ``schedules``; ``lost``, ``doubled``, ``differing`` and ``stuck``, schedules with
such an objection; ``faults``; ``torn``, requests of transactions that came late or twice;
``taken``, copies with which shards opened; ``mechanisms``, how many of the six took part;
``seconds``; ``cpu``, seconds of processors, which tell more on a busy machine; ``seconds_each``, of
processors for a schedule.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.schedules.campaign import KINDS, Result, campaign
from tests.schedules.recipe import FULL, STANDING

SIX = {"histogram", "phdstream", "privhp", "pak", "tops", "topl"}

QUICK, QUICK_SECONDS = 1000, 40.0


def measured(
    schedules: int, seed: int, processes: int, seconds: float, console: Console, only: str
) -> Result:
    """Run a campaign behind a progress bar."""
    columns = TextColumn("schedules"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=schedules)
        return campaign(
            schedules, seed, processes, seconds, only=only,
            told=lambda done: progress.advance(task, done),
        )  # fmt: skip


def guide(args: argparse.Namespace) -> None:
    """Replace this process by a guided search."""
    number = args.schedules or (200 if args.quick else 10_000)
    more = [] if args.resume is None else ["--resume", str(args.resume.resolve())]
    more += ["--standbys"] if args.standbys else []
    command = ["--schedules", str(number), "--number", str(args.seed), *more]
    os.chdir(Path(__file__).resolve().parents[1])
    os.environ["PYTHONHASHSEED"] = "0"
    os.execv(sys.executable, [sys.executable, "-m", "tests.schedules.guided", *command])


def main() -> None:
    """Run and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--schedules", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--standbys", action="store_true")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--guided", action="store_true")
    parser.add_argument("--resume", type=Path)
    args = parser.parse_args()
    if args.guided or args.resume:
        guide(args)
    number = args.schedules or (QUICK if args.quick else 10_000)
    seconds = QUICK_SECONDS if args.quick else 1e9
    console = Console(stderr=True)
    began = time.monotonic()
    seed = args.seed + STANDING * args.standbys + FULL * args.full
    result = measured(number, seed, args.processes, seconds, console, args.only)
    for one in result.found[:20]:
        console.print(f"seed {one.seed}: {'; '.join(one.faults)}", highlight=False)
        for kind, texts in one.kinds.items():
            for text in texts[:3]:
                console.print(f"  {kind}: {text[:300]}", highlight=False, markup=False)
    line = {
        "schedules": result.schedules,
        **{kind: result.count(kind) for kind in KINDS},
        "faults": sum(result.kinds.values()),
        "torn": result.torn,
        "taken": result.taken,
        "mechanisms": len(SIX & {*result.mechanisms}),
        "seconds": round(time.monotonic() - began),
        "cpu": round(result.cpu),
        "seconds_each": round(result.cpu / max(result.schedules, 1), 3),
    }
    print(json.dumps(line) if args.json else "\n".join(f"{k}: {v}" for k, v in line.items()))
    sys.exit(1 if result.found else 0)


if __name__ == "__main__":
    main()

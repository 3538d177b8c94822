"""Faults at random points on a real broker; afterwards replay and judge must agree.

Two or more workers serve four pipelines (direct and re-partitioned, with feedback and without,
epochs of one window and of several, one of them over its budget) while records keep coming, some
of them in aborted transactions, one partition of each topic idle. Meanwhile workers are killed,
their data wiped, stopped past their session and resumed, added and removed, the clock's owner is
taken, and the broker is killed and started again. Afterwards a replay must give the same bytes, and
the judge of the tests, which shares no line with the product, the same rows.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from _chaos import BROKER, PARTITIONS, Load, Monkey, toml
from _cluster import Local, local
from _judge import judge
from hushstream.agents.clock.genesis import read_ledger
from hushstream.agents.kafka.logs import read_topic
from hushstream.agents.offline.replay import replay
from hushstream.deploy.broker import Broker
from hushstream.topics.records import Trigger
from rich.console import Console
from rich.progress import Progress
from rich.table import Table


class Pace(NamedTuple):
    """How long a run lasts, and how fast things happen in it.

    Attributes:
        points: faults; ignored where minutes are given.
        minutes: of faults, or 0.
        rate: records per second, all topics.
        speed: hours of event time per second.
        gap: seconds between two faults, on average.
    """

    points: int
    minutes: float = 0
    rate: int = 600
    speed: float = 2.0
    gap: float = 1.9

    @property
    def seconds(self) -> float:
        """How long it takes, about."""
        return 60 * self.minutes or self.points * self.gap


def chaos(
    pace: Pace,
    seed: int,
    folder: Path,
    broker: Broker,
    report: Callable[[str], None] = lambda kind: None,
) -> dict[str, Any]:
    """Run a deployment through faults, then compare it with its replay.

    Returns the figures of the replay, the faults by kind, and workers that died by themselves.
    """
    topics = {"visits": PARTITIONS, "orders": PARTITIONS}
    with local(folder, broker.bootstrap, toml(pace.seconds), topics) as run:
        monkey = Monkey(run, broker, random.Random(seed), gap=pace.gap)
        load = Load(run, seed, pace.rate, pace.speed)
        load.start()
        monkey.begin(2)
        until, points = time.monotonic() + 60 * pace.minutes, 0
        while points < pace.points if not pace.minutes else time.monotonic() < until:
            report(monkey.point())
            points += 1
        report("settling")
        load.end()
        run.trigger(load.now)
        monkey.settle()
        found = finish(run, load, monkey)
    return {"points": points, **found, "faults": monkey.counts, "died": monkey.died}


def finish(run: Local, load: Load, monkey: Monkey) -> dict[str, Any]:
    """Wait for the releases, end the workers, and let replay and judge compare."""
    triggers = settled(run)
    run.wait_released(triggers, 120)
    for member in list(run.workers):
        run.stop(member)
    outcome = replay(run.config())
    ledger = read_ledger(run.cluster, "chaos")  # raises if its chain is broken or charges twice
    paid = {(t.pipeline, t.epoch): t.charge for t in run.triggers()}
    wrong = [p for p, charge in paid.items() if ledger.charges[p].hash() != charge]
    figures = outcome.figures()
    return {
        name: figures[name]
        for name in ("lost", "doubled", "differing", "compared", "pending", "aborted", "routed",
                     "problems")
    } | {
        "events": load.sent,
        "triggers": len(triggers),
        "charges": len(ledger.charges),
        "refused": len(ledger.refused),
        "wrong_charges": len(wrong),
        "trimmed": trimmed(run),
    } | judge(run)  # fmt: skip


def settled(run: Local, quiet: float = 3.0) -> list[Trigger]:
    """All triggers, once the clock has taken the last request: no more come for a while."""
    found = run.triggers()
    since = time.monotonic()
    while time.monotonic() < since + quiet:
        time.sleep(0.3)
        if len(run.triggers()) > len(found):
            found, since = run.triggers(), time.monotonic()
    return found


def trimmed(run: Local) -> int:
    """Records of cells topics that the workers have deleted meanwhile."""
    kafka = run.config().kafka
    return sum(
        log.begin
        for p in run.deployment.pipelines
        for log in read_topic(kafka, run.names.cells(p.name), p.cells_partitions)
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=None, help="faults (default 40)")
    parser.add_argument("--minutes", type=float, default=0, help="of faults, instead of a number")
    parser.add_argument("--rate", type=int, default=600, help="records per second")
    parser.add_argument("--speed", type=float, default=2.0, help="hours of events per second")
    parser.add_argument("--gap", type=float, default=1.9, help="seconds between two faults")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="a few points, within a minute")
    parser.add_argument("--keep", type=Path, help="keep state, logs and the broker's data here")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    points = options.points or (3 if options.quick else 40)
    pace = Pace(points, options.minutes, options.rate, options.speed, options.gap)
    console = Console(stderr=True)
    with (
        tempfile.TemporaryDirectory(prefix="hush-chaos-") as folder,
        Broker(data(options.keep), quiet=True, overrides=BROKER) as broker,
        Progress(console=console, disable=not console.is_terminal) as bar,
    ):
        task = bar.add_task("faults", total=pace.seconds / pace.gap + 1)

        def report(kind: str) -> None:
            bar.update(task, advance=1, description=kind)
            if not console.is_terminal:
                console.print(time.strftime("%H:%M:%S"), kind)

        found = chaos(pace, options.seed, options.keep or Path(folder), broker, report)
    if options.json:
        print(json.dumps(found))
    else:
        show(found)
    bad = (
        found["lost"]
        or found["doubled"]
        or found["differing"]
        or found["wrong_charges"]
        or found["objected"]
        or found["died"]
    )
    sys.exit(1 if bad else 0)


def data(folder: Path | None) -> Path | None:
    """Where the broker keeps what is to be kept."""
    return folder / "broker" if folder else None


def show(found: dict[str, Any]) -> None:
    """For people."""
    table = Table("", "", title="after the faults", show_header=False)
    for name, value in found.items():
        if name == "faults":
            value = ", ".join(f"{kind} {n}" for kind, n in sorted(value.items()))
        if name not in ("problems", "objections", "died"):
            table.add_row(name, str(value))
    console = Console()
    console.print(table)
    for line in [*found["problems"], *found["objections"], *found["died"]]:
        console.print(line, markup=False)


if __name__ == "__main__":
    main()

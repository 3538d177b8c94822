"""Faults at random points on a real broker; afterwards replay and judge must agree.

Two or more workers serve six pipelines (direct and re-partitioned, with feedback and without,
windows that tumble and hop, epochs of one and of several, one of them over its budget) and two
views while records keep coming, some of them in aborted transactions; one partition of each topic
is idle. Meanwhile workers are killed, wiped, stopped beyond their session and resumed, added and
removed, the clock's owner is attacked, and the broker is killed and started again. Every other
pipeline forgets its keys, which an auditor opens in the end. Afterwards a replay must give the same
bytes, and the tests' judge, which shares no code with the product, the same rows.

With --brokers 3 --network each broker has its own network (Linux, root): networks are cut between a
minority and the others, around the controller or in one direction, and lose or delay packets.

With --harsh there are also an outage while producers buffer (records that were in time must not be
late), a crash loop (retention deletes unused records: nothing may be charged until the loss is
accepted), and the floods of floods.py against a worker with little memory (it survives, and
releases go on).

A long run may be cut into pieces, of which all but the last end with --pause:

    python benchmarks/chaos.py --minutes 60 --keep FOLDER --pause
    python benchmarks/chaos.py --minutes 60 --keep FOLDER --resume --pause
    python benchmarks/chaos.py --minutes 60 --keep FOLDER --resume

Each goes on from what the last one left in FOLDER, with the same options: configuration, keys,
tables, the brokers' data, event time, the figures so far (piece.json). The last one judges all of
them together; with --points 0 it judges only. A piece that was killed is resumed, too, from its
last measurement, if the machine has not gone down meanwhile.

Memory, open files, tables and topics are measured every half a minute; the result has their growth
from the second to the last quarter of all pieces.

It exits with 1 if anything was lost, doubled, differing, left out, stuck, unproved or charged
wrongly, if the judge or the counts object, if a worker died or was restarted since it was not live
(unwell), or if one of the harsh ends went wrong; after --pause, if a worker died or was unwell.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from _cage import cage
from _chaos import BROKER, KINDS, Monkey
from _cluster import Local, local
from _faults import HARSH, LEADERS, Harsh
from _flooding import FLOODS
from _forget import forgetting
from _gone import gone
from _load import Load, Visits, toml
from _loop import loop
from _net import NETWORK, Cut
from _outage import buffered
from _pieces import Gauge, Past, begun, rotate
from _six import Six
from _six import toml as six_toml
from _switch import Network, apart
from _trio import NODES, Trio
from _verdict import failed, finish
from floods import FEW, LIMIT_MB, MIB, RESTORE, floods
from hushstream.deploy.broker import Broker
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

PATIENCE = 240.0  # seconds without progress after which missing releases count as stuck


class Pace(NamedTuple):
    """The length and the speed of a run.

    Attributes:
        points: number of faults; ignored if minutes are given.
        minutes: minutes of faults; 0: count faults instead.
        rate: records per second over all topics.
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
        """The approximate length in seconds."""
        return 60 * self.minutes or self.points * self.gap


class Plan(NamedTuple):
    """The deployment to run, and its faults.

    Attributes:
        six: whether to run all mechanisms instead of six histograms.
        harsh: whether to add faults of machines and operators.
        longest: longest outage of the broker in seconds.
        network: whether to add faults of the network between three brokers.
        patience: seconds without progress until missing releases count as stuck.
    """

    six: bool = False
    harsh: bool = False
    longest: float = 120.0
    network: bool = False
    patience: float = PATIENCE


def chaos(
    pace: Pace,
    seed: int,
    folder: Path,
    broker: Broker | Trio,
    report: Callable[[str], None] = lambda kind: None,
    plan: Plan = Plan(),  # noqa: B008
    past: Past | None = None,
    pause: bool = False,
) -> dict[str, Any]:
    """Run a deployment through faults, then compare it with its replay.

    ``past`` is what earlier pieces of the run left; with ``pause``, workers and brokers are stopped
    for the next piece, and nothing is compared.

    Returns the figures of the replay, the faults by kind, and workers that died unexpectedly.
    """
    kind: type[Load] = Six if plan.six else Visits
    past = past or Past()
    text = configured(plan, pace, folder)
    with local(folder, broker.bootstrap, text, kind.TOPICS, replicas(broker)) as run:
        seed, past.pieces = seed + past.pieces, past.pieces + 1
        past.save(folder)
        monkey = made(plan, run, broker, seed, pace.gap)
        past.give(monkey)
        load = kind(run, seed, pace.rate, pace.speed, past.now, past.sent)
        try:
            load.start()
            if isinstance(monkey, Harsh):
                monkey.now = lambda: load.now
            monkey.begin(2)
            monkey.meanwhile = noting(past, run, broker, monkey, load)
            until, points = time.monotonic() + 60 * pace.minutes, past.points + pace.points
            while past.points < points if not pace.minutes else time.monotonic() < until:
                report(monkey.point())
                past.points += 1
            report("settling")
            monkey.settle()
            load.end()
            monkey.meanwhile = lambda: None
            if pause:
                monkey.leave()
                broker.stop()
                past.take(monkey, load)
                return past.figures()
            run.trigger(now := load.now)
            found = past.judged = finish(run, monkey, now, plan.patience, report)
            past.save(folder)
            if plan.harsh:
                found["gone"] = gone(run, monkey.random)
                monkey.counts["topic"] += 1
        finally:  # a judgement that failed can be repeated, with all figures
            past.take(monkey, load)
            past.save(folder)
            run.close()
            monkey.close()
    if plan.harsh:
        found["outage"] = buffered(folder, broker, min(40.0, plan.longest), replicas(broker))
        found["loop"] = loop(folder, broker.bootstrap, replicas(broker))
        # On a separate broker: same names of topics, other numbers of partitions.
        with served(1, folder / "flooded") as other, cage(LIMIT_MB * MIB) as inside:
            kinds = [*FLOODS, RESTORE]
            found["floods"] = floods(folder / "floods", other.bootstrap, FEW, kinds, inside)
    return past.figures() | found


def configured(plan: Plan, pace: Pace, folder: Path) -> str:
    """The configuration; that of the first piece, if there was one."""
    there = folder / "hush.toml"
    if there.exists():
        return there.read_text()
    return forgetting(six_toml(folder) if plan.six else toml(pace.seconds), folder)


def noting(
    past: Past, run: Local, broker: Broker | Trio, monkey: Monkey, load: Load
) -> Callable[[], None]:
    """Measure, and save how far the run has come each time, in case this piece is killed."""
    nodes = broker.nodes.values() if isinstance(broker, Trio) else [broker]
    gauge = Gauge(run, [node.data / "kafka" for node in nodes], past.samples)

    def note() -> None:
        if gauge.look():
            past.take(monkey, load)
            past.save(run.folder)

    return note


def made(plan: Plan, run: Local, broker: Broker | Trio, seed: int, gap: float) -> Monkey:
    """The injector of the faults."""
    choose = random.Random(seed)
    if not plan.harsh and isinstance(broker, Broker):
        return Monkey(run, broker, choose, KINDS, gap=gap)
    kinds = (HARSH if plan.harsh else KINDS) | (LEADERS if isinstance(broker, Trio) else {})
    for kind, possible in (("full", os.geteuid() == 0), ("jump", bool(shutil.which("cc")))):
        if not possible:
            kinds.pop(kind, None)
    if plan.network:
        return Cut(run, broker, choose, kinds | NETWORK, gap=gap, longest=plan.longest)
    return Harsh(run, broker, choose, kinds, gap=gap, longest=plan.longest)


def replicas(broker: Broker | Trio) -> int:
    """Number of replicas of each topic."""
    return 3 if isinstance(broker, Trio) else 1


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", type=int, default=None, help="faults (default 40)")
    parser.add_argument("--minutes", type=float, default=0, help="of faults, instead of a number")
    parser.add_argument("--rate", type=int, default=600, help="records per second")
    parser.add_argument(
        "--speed",
        type=float,
        default=2.0,
        help="hours of events per second; two cores sustain 0.2 with --six --brokers 3 --harsh",
    )
    parser.add_argument("--gap", type=float, default=1.9, help="seconds between two faults")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="a few points, within a minute")
    parser.add_argument("--six", action="store_true", help="all mechanisms")
    parser.add_argument("--harsh", action="store_true", help="disks, clocks, tables, outages, too")
    parser.add_argument("--longest", type=float, default=120, help="seconds of an outage")
    parser.add_argument("--patience", type=float, default=PATIENCE,
                        help="seconds without progress until it is stuck")  # fmt: skip
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1)
    parser.add_argument("--network", action="store_true",
                        help="cuts, loss and delay between three brokers; needs root")  # fmt: skip
    parser.add_argument("--keep", type=Path, help="keep state, logs and the broker's data here")
    parser.add_argument("--pause", action="store_true",
                        help="stop without judging; --resume goes on")  # fmt: skip
    parser.add_argument("--resume", action="store_true",
                        help="go on from what the last piece left in --keep")  # fmt: skip
    parser.add_argument("--json", action="store_true")
    return parser


def main() -> None:
    """Run as the command line says."""
    parser = arguments()
    options = parser.parse_args()
    past = begun(parser, options)
    few = 3 if options.quick else 40
    points = few if options.points is None else options.points
    pace = Pace(points, options.minutes, options.rate, options.speed, options.gap)
    plan = Plan(options.six, options.harsh, options.longest, options.network, options.patience)
    if plan.network and options.brokers != 3:
        parser.error("--network needs --brokers 3")
    if plan.network:
        apart()
    if options.resume:
        rotate(options.keep)
    console = Console(stderr=True)
    with (
        tempfile.TemporaryDirectory(prefix="hush-chaos-") as folder,
        Network(NODES) if plan.network else contextlib.nullcontext() as network,
        served(options.brokers, options.keep or Path(folder), network) as broker,
        Progress(console=console, disable=not console.is_terminal) as bar,
    ):
        keep = options.keep or Path(folder)
        task = bar.add_task("faults", total=pace.seconds / pace.gap + 1)

        def report(kind: str) -> None:
            bar.update(task, advance=1, description=kind)
            if not console.is_terminal:
                console.print(time.strftime("%H:%M:%S"), kind)

        found = chaos(pace, options.seed, keep, broker, report, plan, past, options.pause)
    if options.json:
        print(json.dumps(found))
    else:
        show(found)
    sys.exit(1 if failed(found, options.pause, options.harsh) else 0)


def served(brokers: int, folder: Path, network: Network | None = None) -> Broker | Trio:
    """The cluster, with its data in ``folder``."""
    if brokers == 3:
        return Trio(folder / "brokers", BROKER, network)
    return Broker(folder / "broker", quiet=True, overrides=BROKER)


def show(found: dict[str, Any]) -> None:
    """Print the result for people."""
    table = Table("", "", title="after the faults", show_header=False)
    for name, value in found.items():
        if name == "growth":
            value = {
                kind: f"{one['second']:,.1f} → {one['last']:,.1f}" for kind, one in value.items()
            }
        if isinstance(value, dict):
            value = ", ".join(f"{kind} {n}" for kind, n in sorted(value.items()))
        if not isinstance(value, list):
            table.add_row(name, str(value))
    console = Console()
    console.print(table)
    for line in [x for value in found.values() if isinstance(value, list) for x in value]:
        console.print(line, markup=False)


if __name__ == "__main__":
    main()

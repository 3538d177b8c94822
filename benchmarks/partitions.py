"""Cost of partitions: the same events and beats over 4, 64 and 256 partitions.

    python benchmarks/partitions.py [--quick] [--json] [--only SHAPE] [--partitions P,P]
        [--processes N] [--events N] [--seconds S] [--beat B] [--spy FILE]

Workers are ready before the first event. Events come at a steady rate, keyed by one of 50,000
users and re-partitioned by user; a trigger follows the last one. CPU is that of all workers from
the first event to the last manifest of that trigger, including idle work. There are two shapes:

- ``raw``: only the raw topic has that many partitions; topics between the stages have a
  deployment's default number, at most four.
- ``square``: the topics of units and of cells have that many, too. Each shard sends to each
  partition.

The last line of ``--json``, where P is a number of partitions:

- ``raw_P``, ``square_P``: ``cpu`` and ``broker``, microseconds of CPU for an event; ``idle``, cores
  of all workers while nothing comes; ``sending``, seconds for which events came: more than were
  asked for where the machine was busy; ``late``, seconds from the request of the trigger to its
  last manifest; ``frames``, ``barriers``, ``transactions`` and ``bytes`` (of frames and barriers)
  of the topics between the stages, for each event, with the ends of transactions there alone;
  ``memory``, resident bytes of all workers after the release.
- ``predicted``: what `hush size` says of ``cpu``, ``frames`` and ``memory``; ``error``: measured
  over predicted, less 1.
- ``overhead_256_raw``, ``overhead_256``: ``cpu`` at 256 partitions over that at 4, less 1, in these
  two shapes; ``overhead_64_raw``, ``overhead_64`` likewise.
- ``growth_256``: frames at 256 partitions over those at 64 in the shape ``square``: 4 if they
  grow as partitions do.
- ``assigned_N``: seconds for which Faust assigns N partitions of each of four topics to three
  workers, the second time, when two of them have partitions already.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import faust
import numpy as np
import psutil
from _cluster import Local, local
from _load import HOUR, ORIGIN
from confluent_kafka import Consumer, TopicPartition
from faust.assignor.partition_assignor import PartitionAssignor
from hushstream.agents.stages.ingest.unit_digests import hashed
from hushstream.deploy.broker import Broker
from hushstream.deploy.settings import BrokerNode
from hushstream.mechanisms.keys import Keys
from hushstream.planning.costs import COSTS
from hushstream.planning.size import Load, size
from hushstream.topics.config.model import Engine
from hushstream.topics.frames import Barrier, decode
from rich.console import Console
from rich.table import Table

USERS, PAGES = 50_000, 5_000
MEMBERS = "abcd"
DEFAULT, BOUND = 4, 12  # partitions between the stages by default; keys of a unit
IDLE_SECONDS = 5.0
PATIENCE = 900.0
SHAPES = ("raw", "square")
console = Console(stderr=True)

TOML = """
[deployment]
name = "partitions"
[secret]
signing_key_file = "hush-signing.key"
[engine]
beat_interval = "{beat}s"
{spread}
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
triggers = {{ every = "6h" }}
schedule = "external"
budget = {{ epsilon = 8.0, delta = 1e-4 }}
mechanism = {{ kind = "histogram", adaptive_weight = 0 }}
"""


class Plan(NamedTuple):
    """A load: events, their seconds, and the interval of beats."""

    events: int
    seconds: float
    beat: float
    processes: int
    spy: Path | None = None


class Flow(NamedTuple):
    """The content of the topics between the stages."""

    frames: int
    barriers: int
    transactions: int  # ends of transactions, one per partition written
    bytes: int


def spread(shape: str, partitions: int) -> str:
    """Settings of the topics between the stages."""
    if shape == "raw":
        return ""
    return f"units_partitions = {partitions}\ncells_partitions = {partitions}"


def send(run: Local, partitions: int, plan: Plan) -> None:
    """Produce all events of a plan at its rate, in order of their times."""
    rng, begun = np.random.default_rng(0), time.monotonic()
    users = [b"u%d" % n for n in range(USERS)]
    home = (hashed(Keys.of(users), "murmur2") % partitions).tolist()
    producer = run.producer(**{"linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    who = rng.integers(0, USERS, plan.events).tolist()
    pages = rng.integers(0, PAGES, plan.events).tolist()
    for n, (user, page) in enumerate(zip(who, pages, strict=True)):
        if n % 500 == 0:
            producer.poll(0)
            time.sleep(max(begun + n * plan.seconds / plan.events - time.monotonic(), 0))
        value = b'{"user":"u%d","page":"p%d","t":%d}' % (user, page, ORIGIN + n)
        producer.produce("events", value, users[user], partition=home[user])
    if producer.flush(60):
        raise SystemExit("the broker did not take all events")


def family(processes: Iterable[int]) -> list[psutil.Process]:
    """Processes and their children."""
    found = [psutil.Process(pid) for pid in processes]
    return found + [child for one in found for child in one.children(recursive=True)]


def cpu(processes: Iterable[int]) -> float:
    """Seconds of CPU that processes and their children have used."""
    return float(sum(sum(p.cpu_times()[:2]) for p in family(processes)))


def measured(folder: Path, broker: Broker, shape: str, partitions: int, plan: Plan) -> dict:
    """Figures of one deployment."""
    toml = TOML.format(beat=plan.beat, spread=spread(shape, partitions))
    with local(folder, broker.bootstrap, toml, {"events": partitions}) as run:
        run.loud, run.settings = False, {"engine.trim_interval": "5m"}  # as by default
        members = MEMBERS[: plan.processes]
        workers = []
        for member in members:  # started together, one would fence shards that the other keeps
            workers.append(run.start(member).pid)
            run.wait_ready([member], PATIENCE)
        settle(run, members)
        begun, rest = time.monotonic(), cpu(workers)
        time.sleep(IDLE_SECONDS)
        idle = (cpu(workers) - rest) / (time.monotonic() - begun)
        assert broker.pid is not None
        used, others = cpu(workers), cpu([broker.pid])
        spying = spied(workers[0], f"{shape}-{partitions}", plan)
        sent = time.monotonic()
        send(run, partitions, plan)
        asked = time.monotonic()
        run.trigger(ORIGIN + 6 * HOUR)
        run.wait_released(run.wait_triggers(1, PATIENCE), PATIENCE)
        late, used = time.monotonic() - asked, cpu(workers) - used
        memory = resident(workers)
        others = cpu([broker.pid]) - others
        if spying is not None:
            spying.wait(60)
        flow = between(run)
    per = {name: round(value / plan.events, 4) for name, value in flow._asdict().items()}
    spent = {"cpu": round(1e6 * used / plan.events, 2)}
    spent["broker"] = round(1e6 * others / plan.events, 2)
    waited = {"sending": round(asked - sent, 1), "late": round(late, 2)}
    found = {**spent, "idle": round(idle, 3), **waited, **per, "memory": memory}
    said = predicted(plan, shape, partitions, (asked - sent))
    error = {name: round(found[name] / value - 1, 3) for name, value in said.items()}
    return {**found, "predicted": said, "error": error}


def resident(processes: Iterable[int]) -> int:
    """Resident bytes of processes and their children."""
    return sum(p.memory_info().rss for p in family(processes))


def predicted(plan: Plan, shape: str, partitions: int, seconds: float) -> dict[str, float]:
    """What `hush size` says of a plan whose events came for ``seconds``."""
    between = min(partitions, DEFAULT) if shape == "raw" else partitions
    rate = plan.events / seconds
    load = Load(
        users=USERS, keys=PAGES, rate=rate, pairs=min(plan.events / USERS, BOUND), key_text=9.0,
        raw_bytes=60.0, direct=0, rekeyed=1, replicas=1, every=seconds, beat=plan.beat,
        waiting=0.0, processes=plan.processes, partitions=partitions, units=between, cells=between,
    )  # fmt: skip
    found = size(load, COSTS)
    frames = found.frames / rate
    return {
        "cpu": round(found.worker_us, 2), "frames": round(frames, 4),
        "memory": round(found.memory),
    }  # fmt: skip


def settle(run: Local, members: str) -> None:
    """Wait until the group is stable: members join one after another."""
    said = list[int]()
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        now = [run.log(m).read_text(errors="replace").count("ready:") for m in members]
        if now == said:
            return
        said = now
        time.sleep(8)


def spied(worker: int, name: str, plan: Plan) -> subprocess.Popen[bytes] | None:
    """A profiler of the first worker, if a file for its samples is given."""
    if plan.spy is None:
        return None
    command = ["py-spy", "record", "-p", str(worker), "-d", str(round(plan.seconds)), "-r", "100",
               "-f", "raw", "-o", f"{plan.spy}-{name}"]  # fmt: skip
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def between(run: Local) -> Flow:
    """Count frames, barriers, transactions and bytes in the topics between the stages."""
    names, pipeline = run.names, run.deployment.pipelines[0]
    topics = {names.units("pages"): pipeline.units_partitions,
              names.cells("pages"): pipeline.cells_partitions}  # fmt: skip
    return sum_of(counted(run.bootstrap, topics))


def counted(bootstrap: str, topics: Mapping[str, int]) -> list[Flow]:
    """The same for each of several topics."""
    client = Consumer({"bootstrap.servers": bootstrap, "group.id": "count", "log_level": 0,
                       "isolation.level": "read_committed", "fetch.wait.max.ms": 20})  # fmt: skip
    found = []
    for topic, number in topics.items():
        places = [TopicPartition(topic, n, 0) for n in range(number)]
        ends = sum(client.get_watermark_offsets(place)[1] for place in places)
        client.assign(places)
        frames = barriers = size = 0
        quiet = 0
        while quiet < 8:
            values = [m.value() for m in client.consume(5_000, 0.25) if not m.error()]
            quiet = 0 if values else quiet + 1
            ended = sum(isinstance(decode(value), Barrier) for value in values)
            barriers += ended
            frames += len(values) - ended
            size += sum(map(len, values))
        found.append(Flow(frames, barriers, ends - frames - barriers, size))
    client.close()
    return found


def sum_of(flows: Sequence[Flow]) -> Flow:
    """The sum over topics."""
    return Flow(*(sum(one) for one in zip(*flows, strict=True)))


def assigned(partitions: int, workers: int = 3) -> float:
    """Seconds of an assignment of four topics when one of the workers is new."""
    app = faust.App("assigned", broker="kafka://localhost:1", web_enabled=False)
    topics = [f"t{n}" for n in range(4)]
    cluster: Any = SimpleNamespace(partitions_for_topic=lambda topic: set(range(partitions)))
    assignors = {f"w{n}": PartitionAssignor(app) for n in range(workers)}

    def take(members: Iterable[str]) -> float:
        told = {name: assignors[name].metadata(set(topics)) for name in members}
        begun = time.perf_counter()
        made = assignors["w0"].assign(cluster, told)
        spent = time.perf_counter() - begun
        for name, one in made.items():
            assignors[name].on_assignment(one)
        return spent

    take(list(assignors)[:-1])
    return take(assignors)


def compared(figures: Mapping[str, Any]) -> dict[str, float]:
    """Ratios of the available figures."""
    found = {}
    for shape, tail in (("raw", "_raw"), ("square", "")):
        for many in (64, 256):
            one, other = figures.get(f"{shape}_4"), figures.get(f"{shape}_{many}")
            if one and other:
                found[f"overhead_{many}{tail}"] = round(other["cpu"] / one["cpu"] - 1, 3)
    if (one := figures.get("square_64")) and (other := figures.get("square_256")):
        found["growth_256"] = round(other["frames"] / one["frames"], 2)
    return found


def measure(plan: Plan, shapes: Sequence[str], sizes: Sequence[int], up_to: int) -> dict[str, Any]:
    """All figures, each deployment on its own broker."""
    figures: dict[str, Any] = {}
    for shape in shapes:
        for partitions in sizes:
            if shape == "square" and partitions == 4 and "raw_4" in figures:
                figures["square_4"] = figures["raw_4"]  # the shapes coincide
                continue
            name = f"{shape}_{partitions}"
            with (
                tempfile.TemporaryDirectory() as folder,
                Broker(quiet=True, node=BrokerNode(heap_mb=768)) as broker,
                console.status(name),
            ):
                figures[name] = measured(Path(folder) / "run", broker, shape, partitions, plan)
            console.print(f"{name}: {figures[name]}", markup=False)
    for partitions in (4, 256, 1000, 2000):
        if partitions <= up_to:
            figures[f"assigned_{partitions}"] = round(assigned(partitions), 3)
    return {**figures, **compared(figures)}


def main() -> None:
    """Run all and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="4 and 256 partitions, few events")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", choices=SHAPES)
    parser.add_argument("--partitions", default="")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--events", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--beat", type=float, default=Engine().beat_interval / 1e6)
    parser.add_argument("--spy", type=Path, help="samples of py-spy of the first worker")
    args = parser.parse_args()
    plan = Plan(
        args.events or (200_000 if args.quick else 1_200_000),
        args.seconds or (10 if args.quick else 60),
        args.beat, args.processes, args.spy,
    )  # fmt: skip
    sizes = [int(n) for n in args.partitions.split(",") if n]
    sizes = sizes or ([4, 256] if args.quick else [4, 64, 256])
    shapes = [args.only] if args.only else SHAPES
    found = measure(plan, shapes, sizes, 256 if args.quick else 2000)
    if args.json:
        print(json.dumps(found))
        return
    table = Table("figure", "value")
    for name, value in found.items():
        table.add_row(name, str(value))
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())

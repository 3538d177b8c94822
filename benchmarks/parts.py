"""CPU of a worker per event, part by part.

    python benchmarks/parts.py [--quick] [--json] [--events N] [--only VARIANT]

A worker processes a topic as in `engine.py`. In its process the functions of each part are timed by
their thread's clock, and a part's time excludes the parts inside it; times of threads are the
system's. Counting begins when all loops are compiled and ends after the last manifest, so it
includes a release. Other load on the machine increases all figures.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import engine
import numpy as np
import psutil
from confluent_kafka.admin import NewTopic
from hushstream.agents.clock.genesis import read_ledger
from hushstream.agents.kafka.cluster import Cluster
from hushstream.deploy.broker import Broker
from hushstream.topics.config.model import Kafka
from hushstream.topics.names import Names
from hushstream.topics.records import TriggerRequest, encode
from rich.console import Console
from rich.table import Table

console = Console(stderr=True)
STAGES, STATE = "agents.stages", "agents.state"
FETCH = "agents.kafka.private.of_aiokafka:_interval"
PARTS = {  # of threads that compute; functions by module
    "json": ["formats.events.columns:ColumnDecoder.decode"],
    "digests": [f"{STAGES}.ingest.unit_digests:UnitDigests.look"],
    "slices": [f"{STAGES}.ingest.stage:IngestStage.step"],
    "rows_read": [f"{STAGES}.step:ChangedUnits.read"],
    "rows_coded": [f"{STAGES}.bound.codec:UnitCodec.{name}" for name in ("encode", "decode")]
    + [f"{STAGES}.bound.bounder:distinct"],
    "bound": ["mechanisms.histogram.mechanism:Histogram.absorb"],
    "frames_written": [f"{STAGES}.bound.bounder:Bounder._send"],
    "frames_read": [f"{STAGES}.aggregate.stage:AggregateStage.{name}" for name in ("_take", "step")]
    + [f"{STAGES}.aggregate.stage:decode"],
    "sums_merged": [f"{STAGES}.aggregate.partial_sums:merge"],
    "release": [f"{STAGES}.aggregate.stage:AggregateStage.{name}"
                for name in ("_close", "_compute_chunk", "_publish")],
    "rows_kept": ["agents.worker.tables.local_state:LocalState.write"],
    "rows_to_disk": [f"{STATE}.rocks:RocksStore._put"],
}  # fmt: skip


class Timers:
    """Seconds of CPU by part, in a worker's process.

    Args:
        out: file that is rewritten twice a second.
    """

    def __init__(self, out: Path) -> None:
        self._out = out
        self._spent: dict[str, float] = defaultdict(float)
        self._inside = threading.local()
        self._before: dict[int, float] = {}
        self._fetching = 0

    def install(self) -> None:
        """Time the functions of all parts from now on."""
        for part, places in PARTS.items():
            for place in places:
                self._replace(place, functools.partial(self._timed, part))
        self._replace(FETCH, self._seen)
        self._replace("agents.worker.startup:warm", self._begun)
        threading.Thread(target=self._tell, daemon=True).start()

    def _replace(self, place: str, made: Callable[[Any], Any]) -> None:
        module, path = place.split(":")
        owner: Any = importlib.import_module(f"hushstream.{module}")
        *outer, name = path.split(".")
        for one in outer:
            owner = getattr(owner, one)
        setattr(owner, name, made(getattr(owner, name)))

    def _timed(self, part: str, function: Any) -> Any:
        @functools.wraps(function)
        def timed(*args: Any, **named: Any) -> Any:
            inside = self._inside.__dict__.setdefault("stack", [])
            inside.append(0.0)
            begun = time.thread_time()
            try:
                return function(*args, **named)
            finally:
                spent = time.thread_time() - begun
                self._spent[part] += spent - inside.pop()
                if inside:
                    inside[-1] += spent

        return timed

    def _seen(self, function: Any) -> Any:
        @functools.wraps(function)
        def seen(*args: Any) -> Any:
            self._fetching = threading.get_native_id()
            return function(*args)

        return seen

    def _begun(self, function: Any) -> Any:
        @functools.wraps(function)
        def begun(*args: Any) -> Any:
            function(*args)
            self._spent.clear()
            self._before.update(_threads())

        return begun

    def _tell(self) -> None:
        while True:
            time.sleep(0.5)
            spent: dict[str, float] = defaultdict(float)
            names = {one.native_id: one.name for one in threading.enumerate()}
            for number, seconds in _threads().items():
                spent[self._role(number, names)] += seconds - self._before.get(number, 0.0)
            made = json.dumps({"threads": spent, "parts": dict(self._spent)})
            self._out.with_suffix(".new").write_text(made)
            self._out.with_suffix(".new").replace(self._out)

    def _role(self, number: int, names: dict[int | None, str]) -> str:
        if number == os.getpid():
            return "event_loop"
        if number == self._fetching:
            return "fetch"
        return "compute" if names.get(number, "").startswith("shard") else "others"


def _threads() -> dict[int, float]:
    return {one.id: one.user_time + one.system_time for one in psutil.Process().threads()}


def measure(cluster: Cluster, folder: Path, variant: str) -> dict[str, dict[str, float]]:
    """Seconds of CPU of one worker by thread and by part."""
    path, config, pipeline = engine.deployment(cluster, folder, *engine.VARIANTS[variant])
    name, out = config.deployment.name, folder / "spent.json"
    names = Names(name, read_ledger(cluster, name).genesis["genesis"])
    at = engine.START * 1000 - engine.START * 1000 % 86_400_000_000 + 3_600_000_000
    with open(folder / "worker.log", "ab") as log:
        worker = subprocess.Popen(
            [sys.executable, __file__, "--inside", str(out), "worker", "-c", str(path),
             "--bootstrap", cluster.bootstrap, "--set", f"engine.data_dir={folder / name}"],
            stdout=log, stderr=log,
        )  # fmt: skip
        try:
            producer = cluster.producer()
            producer.produce(names.requests, encode(TriggerRequest("go", at)), partition=0)
            producer.flush()
            engine.wait(cluster, worker, pipeline, names)
            time.sleep(1.2)  # until everything is written
        finally:
            worker.terminate()
            worker.wait(60)
    found: dict[str, dict[str, float]] = json.loads(out.read_text())
    return found


def per_event(found: dict[str, dict[str, float]], events: int) -> dict[str, float]:
    """Microseconds per event: of threads, and of the parts of computing threads."""
    threads, parts = found["threads"], found["parts"]
    made = {name: threads.get(name, 0.0) for name in ("event_loop", "fetch", "others")}
    made |= {name: parts.get(name, 0.0) for name in PARTS}
    made["compute_rest"] = threads.get("compute", 0.0) - sum(parts.values())
    made["all"] = sum(threads.values())
    return {name: round(1e6 * seconds / events, 2) for name, seconds in made.items()}


def main() -> None:
    """Run one variant and print its parts; ``--inside`` is the worker's process."""
    if sys.argv[1:2] == ["--inside"]:
        Timers(Path(sys.argv[2])).install()
        from hushstream.cli.group import main as hush

        sys.argv = ["hush", *sys.argv[3:]]
        hush()
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer events")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--events", type=int)
    parser.add_argument("--only", choices=list(engine.VARIANTS), default="uniform")
    args = parser.parse_args()
    events, rng = args.events or (300_000 if args.quick else 2_000_000), np.random.default_rng(0)
    topic = engine.VARIANTS[args.only][0]
    with tempfile.TemporaryDirectory() as folder, Broker(quiet=True) as broker:
        cluster = Cluster(Kafka(bootstrap=broker.bootstrap))
        cluster.wait()
        cluster._admin.create_topics([NewTopic(topic, engine.PARTITIONS, 1)])[topic].result()
        time.sleep(0.5)
        with console.status("producing"):
            engine.produce(cluster, topic, engine.users(topic, events, rng), rng)
        with console.status(args.only):
            figures = per_event(measure(cluster, Path(folder), args.only), events)
    table = Table("part", "µs of CPU per event", title=f"{args.only}, {events:,} events")
    for name, value in figures.items():
        table.add_row(name, f"{value:.2f}")
    console.print(table)
    if args.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()

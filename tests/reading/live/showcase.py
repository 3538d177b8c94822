"""A deployment with releases of every mechanism: its ledger and its release topics.

The data of `examples/data` are moved to the last days, so that schedules are on time. Run
``python -m tests.reading.live.showcase HOST:PORT NAME`` to write it to a broker.
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from hushstream.agents.clock.ledger import Ledger
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.deployment.published.statement import charge_body
from hushstream.agents.stages.step import Out
from hushstream.formats.events.decode import utc
from hushstream.offline.simulate import simulate
from hushstream.topics.config.load import loads
from hushstream.topics.names import ledger_topic

ROOT = Path(__file__).parents[3]
SECRET = bytes(range(32))
HOUR = 3_600_000_000
DAY = 24 * HOUR

HEAD = """
[deployment]
name = "{deployment}"
[engine]
cells_partitions = 2
[[input]]
name = "trips"
topic = "trips"
unit = "user"
time = {{ field = "t", format = "epoch_us" }}
[[pipeline]]
name = "{name}"
input = "trips"
window = {{ length = "1d", origin = "{origin}" }}
"""
RIDES = """
unit_name = "rider"
key = ["zone"]
triggers = { every = "2h" }
budget = { epsilon = 2.0, delta = 1e-6, limit_epsilon = 10.0 }
aggregate = [
  { kind = "count" }, { kind = "sum", field = "fare", low = 0, high = 60, grid = "0.01" },
  { kind = "mean", field = "fare", low = 0, high = 60, grid = "0.01" },
]
mechanism = { kind = "histogram", budget = 2 }
"""
PLACES = """
unit_name = "place"
inputs = {{ longitude = "lon", latitude = "lat" }}
triggers = {{ every = "6h" }}
budget = {{ epsilon = 1.0, delta = 1e-9 }}
[pipeline.mechanism]
kind = "{kind}"
{more}
[pipeline.mechanism.domain]
depth = {depth}
split = "{split}"
axes = [
  {{ name = "longitude", low = -125, high = -66 }}, {{ name = "latitude", low = 24, high = 50 }},
]
"""
DISTANCES = """
unit_name = "rider"
inputs = { distance = "miles" }
triggers = { every = "6h" }
budget = { epsilon = 1.0, delta = 1e-9 }
[pipeline.mechanism]
kind = "privhp"
k = 8
[pipeline.mechanism.domain]
depth = 7
axes = [{ name = "distance", low = 0, high = 16 }]
"""
FARES = """
unit_name = "rider"
inputs = {{ value = "fare" }}
triggers = {{ every = "2h" }}
budget = {{ epsilon = 2.0, delta = 1e-9 }}
aggregate = [{{ kind = "sum", field = "fare", low = 0, high = 100 }}]
mechanism = {{ kind = "{kind}", slots_per_trigger = 2, expected = 300 }}
"""
SURVEY = """
[deployment]
name = "{deployment}"
[[input]]
name = "trips"
topic = "trips"
unit = "user"
time = {{ field = "slot", format = "epoch_s" }}
[[pipeline]]
name = "{name}"
input = "trips"
unit_name = "user"
window = {{ length = "1d", origin = "2019-03-01T00:00:00Z" }}
triggers = {{ every = "6h" }}
epoch = "2d"
budget = {{ epsilon = 8.0 }}
aggregate = [{{ kind = "mean", field = "minutes", low = 0, high = 60, grid = 0.01 }}]
[pipeline.mechanism]
kind = "topl"
reports = 2
period = 172800
share = "1/4"
buckets = 32
rounds = 1
"""
CASES = {
    "histogram": RIDES,
    "privhp": PLACES.format(kind="privhp", depth=13, split="binary", more="k = 128"),
    "phdstream": PLACES.format(kind="phdstream", depth=5, split="all", more=""),
    "distances": DISTANCES,
    "pak": FARES.format(kind="pak"),
    "tops": FARES.format(kind="tops"),
}
SURVEYED = "topl"


@dataclass
class Made:
    """Records of a deployment.

    Attributes:
        deployment: name of the deployment.
        ledger: values of the ledger's records.
        releases: records of releases by topic.
        topics: release topic by case.
        pipelines: name of the pipeline by case.
    """

    deployment: str
    ledger: list[bytes] = field(default_factory=list)
    releases: dict[str, list[Out]] = field(default_factory=dict)
    topics: dict[str, str] = field(default_factory=dict)
    pipelines: dict[str, str] = field(default_factory=dict)


def recently(step: int) -> int:
    """Begin of four days, most of them past: microseconds, a multiple of ``step``."""
    return (time.time_ns() // 1000 - 20 * HOUR) // step * step - 3 * DAY


def trips(begin: int, scale: int, seed: int = 1) -> list[dict[str, Any]]:
    """Rides of four days, ``scale`` times as many as in the file, each at its time of day."""
    draw = np.random.default_rng(seed)
    with (ROOT / "examples/data/taxis.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["pickup_zone"]]
    found = []
    for n, row in enumerate(rows * scale):
        clock = np.datetime64(row["pickup"].replace(" ", "T"), "us").astype(np.int64) % DAY
        found.append({
            "user": f"r{n}", "zone": row["pickup_zone"], "fare": float(row["fare"]),
            "miles": float(row["distance"]),
            "t": int(begin + draw.integers(4) * DAY + (clock - begin) % DAY),
        })  # fmt: skip
    return found


def places(begin: int, scale: int, seed: int = 2) -> list[dict[str, Any]]:
    """Postal codes over four days, ``scale`` fifths of those in the file."""
    draw = np.random.default_rng(seed)
    with (ROOT / "examples/data/zipcodes.csv").open(encoding="utf-8") as file:
        rows = [row for n, row in enumerate(csv.DictReader(file)) if n % 5 < scale]
    times = begin + draw.integers(0, 4 * DAY, len(rows))
    return [
        {"user": row["zip_code"], "lon": float(row["longitude"]), "lat": float(row["latitude"]),
         "t": int(t)}
        for row, t in zip(rows, times.tolist(), strict=True)
    ]  # fmt: skip


def answers(begin: int, scale: int, seed: int = 3) -> list[dict[str, Any]]:
    """Waiting times in minutes, one value per user."""
    draw = np.random.default_rng(seed)
    slot = begin // 1_000_000 + draw.integers(0, 4 * 86_400, 2_400 * scale)
    minutes = draw.gamma(3, 4, len(slot)).clip(0, 60).round(2)
    return [
        {"user": f"u{i}", "slot": s, "minutes": m}
        for i, (s, m) in enumerate(zip(slot.tolist(), minutes.tolist(), strict=True))
    ]


def showcase(deployment: str, cases: tuple[str, ...] = (*CASES, SURVEYED), scale: int = 5) -> Made:
    """Releases of the last days, up to now."""
    made, ledger, begin = Made(deployment), Ledger(), recently(HOUR)
    now = time.time_ns() // 1000
    made.ledger.append(_said(ledger, "genesis", begin, {"genesis": "shown", "format": 2}))
    for number, case in enumerate(cases):
        name = f"{deployment}-{case}"
        text = (
            SURVEY if case == SURVEYED else HEAD + CASES[case].replace("{", "{{").replace("}", "}}")
        )
        text = text.format(deployment=deployment, name=name, origin=utc(begin))
        config = loads(text, environ={})
        of = {"privhp": places, "phdstream": places, SURVEYED: answers}.get(case, trips)
        data = of(recently(DAY) if case == SURVEYED else begin, scale)
        (pipeline,) = compile_config(config).pipelines
        _, engine = simulate(config, data, "trips", SECRET)
        body = {"pipeline": name, "number": number, "config": pipeline.config}
        made.ledger.append(_said(ledger, "pipeline", begin, body))
        made.topics[case], made.pipelines[case] = pipeline.release_topic, name
        outs = [o for o in engine.outs[pipeline.release_topic] if (o.timestamp or 0) * 1000 <= now]
        made.releases[pipeline.release_topic] = outs
        for epoch in sorted({_epoch(pipeline, out) for out in outs}):
            charge = charge_body(pipeline, epoch, "showcase", "showcase")
            at = pipeline.windows.start(epoch * pipeline.windows.per_epoch)
            made.ledger.append(_said(ledger, "charge", at, charge))
    return made


def _epoch(pipeline: Any, out: Out) -> int:
    start = np.datetime64((out.key or b"").split(b"|")[1].decode().removesuffix("Z"), "us")
    return int(pipeline.windows.epoch(pipeline.windows.window(int(start.astype(np.int64)))))


def _said(ledger: Ledger, kind: str, at: int, body: dict[str, Any]) -> bytes:
    record = ledger.next(kind, at, body).encode()
    ledger.take(record)
    return record


def create(bootstrap: str, made: Made) -> None:
    """Create the topics of a deployment."""
    config = {"message.timestamp.after.max.ms": str((1 << 63) - 1), "retention.ms": "-1"}
    wanted = [NewTopic(ledger_topic(made.deployment), 1, 1, config=config)]
    wanted += [NewTopic(name, 2, 1, config=config) for name in made.releases]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics(wanted).values():
        future.result(120)


def send(bootstrap: str, records: Iterator[tuple[str, Out]]) -> None:
    """Write records to their topics, over two partitions."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for n, (topic, out) in enumerate(records):
        producer.produce(topic, out.value, out.key, n % 2, timestamp=out.timestamp or 0,
                         headers=list(out.headers))  # fmt: skip
        producer.poll(0)
    producer.flush(120)


def write(bootstrap: str, made: Made) -> None:
    """Create the topics of a deployment and write all its records."""
    create(bootstrap, made)
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in made.ledger:
        producer.produce(ledger_topic(made.deployment), value, partition=0)
    producer.flush(120)
    send(bootstrap, ((topic, out) for topic, outs in made.releases.items() for out in outs))


if __name__ == "__main__":
    write(sys.argv[1], showcase(sys.argv[2]))

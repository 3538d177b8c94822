"""Deployments, logs and clock records in memory, for tests of the stages; and words of tests."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.deployment.model import Deployment, Pipeline
from hushstream.formats.events.decode import RawRecord
from hushstream.offline.engine import OfflineEngine
from hushstream.topics.config.load import loads
from hushstream.topics.names import Names
from hushstream.topics.records import Beat, ClockRecord, Start, Trigger

DAY = 86_400_000_000
PRODUCT = "hushstream"
HOUR = DAY // 24
ORIGIN = 17956 * DAY  # 2019-03-01
SECRET = bytes(range(32))
NAMES = Names("test", "abcdef")

INPUT = """
[deployment]
name = "test"
[engine]
units_partitions = {units}
cells_partitions = {cells}
[[input]]
name = "events"
topic = "events"
unit = "user"
partitioner = "{partitioner}"
format = "{format}"
late = "topic"
time = {{ field = "t", format = "epoch_us" }}
"""

PIPELINE = """
[[pipeline]]
name = "{name}"
input = "events"
key = ["page"]
unit_name = "user"
window = {{ length = "1d", origin = "2019-03-01T00:00:00Z" }}
triggers = {{ every = "6h" }}
schedule = "external"
budget = {{ epsilon = 8.0, delta = 1e-4 }}
mechanism = {{ kind = "histogram", budget = 4{mechanism} }}
{more}
"""


def messages(records: Sequence[logging.LogRecord], level: int = logging.NOTSET) -> list[str]:
    """The product's log messages from a level on.

    A library may at any time log messages about clients of an earlier test.
    """
    ours = [r for r in records if r.name.partition(".")[0] == PRODUCT and r.levelno >= level]
    return [record.getMessage() for record in ours]


def written(text: str) -> str:
    """Printed text without the lines of librdkafka, whose threads print at any time."""
    return "".join(line for line in text.splitlines(True) if line[:1] != "%")


def deployment(
    partitions: int = 1,
    units: int = 1,
    cells: int = 1,
    partitioner: str = "none",
    format: str = "json",
    pipelines: Sequence[str] = ("p",),
    mechanism: str = "",
    more: str = "",
    swap: Mapping[str, str] = MappingProxyType({}),
) -> Deployment:
    """A compiled deployment with histogram pipelines over one input; ``swap`` changes its text."""
    text = INPUT.format(units=units, cells=cells, partitioner=partitioner, format=format)
    for name in pipelines:
        text += PIPELINE.format(name=name, mechanism=mechanism, more=more)
    for old, new in swap.items():
        assert old in text
        text = text.replace(old, new)
    return compile_config(loads(text, environ={}), {"events": partitions})


def event(offset: int, user: str, page: str, time: int = ORIGIN, **fields: Any) -> RawRecord:
    """One event in JSON."""
    body = {"user": user, "page": page, "t": time, **fields}
    return RawRecord(offset, 0, user.encode(), json.dumps(body).encode())


def trigger(
    p: Pipeline, ordinal: int, cut: Sequence[int], window: int = 0, **other: Any
) -> Trigger:
    """A pipeline's trigger with this ordinal, with four triggers to a window."""
    index = other.pop("index", (ordinal - 1) % p.traits.horizon + 1)
    return Trigger(
        time=other.pop("time", ORIGIN + 400 * DAY),
        offsets={"events": list(cut)},
        pipeline=p.name,
        ordinal=ordinal,
        window=window,
        index=index,
        final=index == p.traits.horizon,
        scheduled=p.windows.times(window)[index - 1],
        epoch=p.windows.epoch(window),
        charge_seq=1,
        charge=other.pop("charge", "ab" * 32),
        config_hash=p.config_hash,
        code_version="test",
        epochs=other.pop("epochs", 1),
        limit_epsilon="" if p.limit_epsilon is None else str(p.limit_epsilon),
        limit_delta="" if p.limit_delta is None else str(p.limit_delta),
    )


def beat(offsets: Sequence[int], time: int = ORIGIN + 400 * DAY) -> Beat:
    """A beat of the only input."""
    return Beat(time, {"events": list(offsets)})


def start(p: Pipeline, window: int = 0) -> Start:
    """The start of a pipeline."""
    return Start(p.name, window, ORIGIN)


def engine(
    made: Deployment, logs: Sequence[Sequence[RawRecord]], records: Sequence[ClockRecord]
) -> OfflineEngine:
    """Run all stages on raw logs (one for each partition) and a clock log."""
    raw = {("events", n): list(log) for n, log in enumerate(logs)}
    run = OfflineEngine(made, NAMES, SECRET, raw, list(enumerate(records)))
    run.run()
    return run


def released(run: OfflineEngine, topic: str = "hush.p.releases.v1") -> list[tuple[bytes, bytes]]:
    """Rows (not manifests) of a release topic, sorted."""
    outs = [(o.key or b"", o.value or b"") for o in run.outs[topic]]
    return sorted(o for o in outs if b"hush.release/2" in o[1])


def counts(run: OfflineEngine, index: int, topic: str = "hush.p.releases.v1") -> dict[str, int]:
    """The released count of each page at one trigger."""
    bodies = [json.loads(value) for _, value in released(run, topic)]
    return {
        b["key"]["page"]: b["values"]["count"]["value"] for b in bodies if b["trigger"] == index
    }

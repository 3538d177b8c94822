"""Random raw logs and clock logs for deployments in memory."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from hushstream.agents.deployment.model import Deployment, Input
from hushstream.agents.deployment.model import Pipeline as Compiled
from hushstream.formats.events.decode import RawRecord
from hushstream.topics.records import Beat, ClockRecord, Skipped, Trigger

from ..support import DAY, ORIGIN, start, trigger
from .places import home

HERE = Path(__file__).parent


INPUT = """
[deployment]
name = "test"
[engine]
units_partitions = {units}
cells_partitions = {cells}
max_future_skew = "1h"
[[input]]
name = "events"
topic = "events"
unit = {unit}
partitioner = "{partitioner}"
time = {{ field = "t", format = "epoch_us" }}
"""
PIPELINE = """
[[pipeline]]
name = "{name}"
input = "events"
key = {key}
unit_name = "user"
schedule = "external"
budget = {{ epsilon = {epsilon}, delta = {delta} }}
{window}
{more}
mechanism = {{ kind = "histogram"{mechanism} }}
"""
HORIZONS = {
    1: 'window = { length = "1d", origin = "2019-03-01T00:00:00Z" }\ntriggers = { every = "1d" }',
    4: 'window = { length = "1d", origin = "2019-03-01T00:00:00Z" }\ntriggers = { every = "6h" }',
    6: 'window = { length = "1d", origin = "2019-03-01T00:00:00Z" }\ntriggers = { every = "4h" }',
    3: 'window = { horizon = 3, origin = "2019-03-01T00:00:00Z" }\ntriggers = { every = "8h" }',
}

SHARED = """
[[budget]]
name = "together"
members = {{ {members} }}
epsilon = {epsilon}
delta = {delta}
{cap}
"""


def sharing(name: str, key: str, horizon: int, more: str, mechanism: str) -> str:
    """A pipeline with a shared budget instead of its own."""
    text = PIPELINE.format(name=name, key=key, window=HORIZONS[horizon], more=more, epsilon=0,
                           delta=0, mechanism=mechanism)  # fmt: skip
    return "".join(one for one in text.splitlines(True) if not one.startswith("budget ="))


Logs = list[list[RawRecord]]
WRONG: list[dict[str, Any]] = [
    {"user": None}, {"user": True}, {"page": ""}, {"page": 1.0}, {"t": "x"}, {"t": -1},
    {"spent": 1e400}, {"gone": 2},
]  # fmt: skip


@dataclass(frozen=True)
class World:
    """Random raw logs and a random clock log for a compiled deployment."""

    made: Deployment
    logs: Logs
    clock: list[ClockRecord]
    beside: Logs = field(default_factory=list)  # logs of the topic that states attributes


def world(
    made: Deployment, random: Random, events: int, windows: int = 3, users: int = 10
) -> World:
    """Events in and out of order, broken events, and beats and triggers of every pipeline."""
    (source,) = made.streams
    logs: Logs = [[] for _ in range(source.partitions)]
    beside: Logs = [[] for _ in range(source.partitions if source.attributes else 0)]
    others: dict[str, list[int]] = {}
    clock: list[ClockRecord] = [start(p) for p in made.pipelines]
    states = {p.name: _State(p) for p in made.pipelines}
    ends = [0] * source.partitions
    for step in range(events):
        now = ORIGIN + windows * DAY * step // events
        for log in logs:  # offsets have gaps, as after transactions
            _append(source, logs, log, now, random, users)
        for log in beside:
            _state(source, beside, log, now, random, users)
        if beside and random.random() < 0.2:
            known = others.get("users", [0] * len(beside))
            pairs = zip(known, beside, strict=True)
            others = {"users": [random.randint(e, _end(log)) for e, log in pairs]}
        if random.random() < 0.3:
            ends = [random.randint(e, _end(log)) for e, log in zip(ends, logs, strict=True)]
            clock.append(Beat(now, {"events": list(ends), **others}))
        for p in made.pipelines:
            while record := states[p.name].due(now, ends, random):
                if isinstance(record, Trigger):
                    ends = record.offsets["events"]
                    record = msgspec.structs.replace(record, offsets={"events": ends, **others})
                clock.append(record)
    clock.append(Beat(now, {"events": [_end(log) for log in logs], **others}))
    return World(made, logs, clock, beside)


class _State:
    """The next trigger of one pipeline; some epochs are refused."""

    def __init__(self, pipeline: Compiled) -> None:
        self._pipeline = pipeline
        self._window, self._index, self._ordinal = 0, 0, 0

    def due(self, now: int, ends: list[int], random: Random) -> ClockRecord | None:
        p, windows = self._pipeline, self._pipeline.windows
        if windows.times(self._window)[self._index] > now:
            return None
        epoch = windows.epoch(self._window)
        if self._index == 0 and windows.ordinal(self._window) == 0 and random.random() < 0.1:
            first, self._window = self._window, (epoch + 1) * windows.per_epoch
            return Skipped(p.name, epoch, first, now, self._window)
        self._ordinal += 1
        self._index += 1
        made = trigger(p, self._ordinal, ends, self._window, index=self._index, time=now,
                       charge=f"{epoch:064x}")  # fmt: skip
        if made.final:
            self._window, self._index = self._window + 1, 0
        return made


def _end(log: list[RawRecord]) -> int:
    return log[-1].offset + 1 if log else 0


def _append(
    source: Input,
    logs: list[list[RawRecord]],
    log: list[RawRecord],
    now: int,
    random: Random,
    users: int,
) -> None:
    """Append a record, or none: units keep to a partition, keys are few, some values are wrong."""
    user = f"u{min(int(random.expovariate(3 / users)), users - 1)}"
    partition = home((user,), source.partitioner, len(logs)) if source.partitioner != "none" else 0
    if source.partitioner == "none":
        partition = int(user[1:]) % len(logs)
    if log is not logs[partition] and random.random() < 0.9:
        return  # a stray record, if partitions matter
    if log is not logs[partition] and source.partitioner == "none":
        return
    time = now + random.choice([0, 0, 0, -DAY // 10, -DAY, DAY // 48, DAY // 10])
    page = f"p{min(int(random.expovariate(1)), 5)}"
    body: dict[str, Any] = {
        "user": user, "shop": random.choice(["a", 7]), "page": page,
        "t": time, "spent": random.choice([round(random.uniform(-9, 70), 3), 12, -3]),
        "gone": random.choice([None, False, True, 1, -1, "insert"]),
    }  # fmt: skip
    value = json.dumps(body).encode()
    if random.random() < 0.08:
        wrong: Any = random.choice(WRONG)
        value = json.dumps(body | wrong).encode()
    if random.random() < 0.02:
        value = random.choice([b"{", b"null", b"[1]", b"\xff", b""])
    offset = _end(log) + random.choice([0, 0, 0, 1])
    log.append(RawRecord(offset, now // 1000, user.encode(), value))


def _state(
    source: Input, logs: Logs, log: list[RawRecord], now: int, random: Random, users: int
) -> None:
    """Append what one unit states, or its deletion; some of it is wrong or in a wrong partition."""
    unit: Any = f"u{random.randrange(users)}"
    partition = home((unit,), source.partitioner, len(logs))
    if log is not logs[partition] and random.random() < 0.9:
        return
    country = random.choice(["DE", "FR", 7, True, None, ""])
    told: dict[str, Any] = {"id": unit, "country": country, "more": random.choice([1.5, "x"])}
    if random.random() < 0.1:
        told |= random.choice([{"id": None}, {"id": 1.5}, {"country": 1.5}, {"country": [1]}])
    value: bytes | None = json.dumps(told).encode()
    if random.random() < 0.1:
        value = random.choice([None, None, b"{", b"null", b"[1]", b"\xff", b""])
    offset = _end(log) + random.choice([0, 0, 1])
    log.append(RawRecord(offset, now // 1000, unit.encode(), value))


def first_twice(real: Any) -> Any:
    """A mistake that duplicates: the first record of a slice counts twice."""

    def absorb(self: Any, units: Any, batch: Any) -> Any:
        units, part = real(self, units, batch)
        sums = part.sums.copy()
        sums[:1] *= 2
        return units, part._replace(sums=sums)

    return absorb

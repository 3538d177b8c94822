"""A clock that has begun, its owner without a broker, and what both have written."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import hushstream.agents.clock.owner as owner_module
from aiokafka.errors import KafkaError
from hushstream.agents.clock.clock import Clock
from hushstream.agents.clock.ledger import Ledger
from hushstream.agents.clock.owner import ClockOwner
from hushstream.agents.clock.snapshots import Snapshots
from hushstream.agents.clock.wall_time import ClockLead, Pace, WallClock
from hushstream.agents.deployment.model import Deployment
from hushstream.agents.kafka.progress import Progress
from hushstream.errors import RewoundError
from hushstream.topics.config.model import Kafka
from hushstream.topics.records import Skipped, encode

from ...support import HOUR, NAMES, ORIGIN, beat, deployment, start

MADE = deployment()
P = MADE.pipelines[0]


def with_pipeline(**changes) -> Deployment:
    source = MADE.inputs[0]
    return replace(MADE, inputs=(replace(source, pipelines=(replace(P, **changes),)),))


def begun(made: Deployment = MADE, epochs: int = 0) -> tuple[Clock, Ledger]:
    ledger = Ledger()
    ledger.take(ledger.next("genesis", 1, {"genesis": "abcdef"}).encode())
    clock = Clock(made, ledger, "1.0", "key")
    clock.apply(start(made.pipelines[0]))
    clock.apply(beat([5], ORIGIN))
    return clock, ledger


def retire(ledger: Ledger, epoch: int, made: Deployment = MADE) -> None:
    """Write what ends the pipeline before an epoch."""
    (p,) = made.pipelines
    if p.name not in ledger.pipelines:
        ledger.take(ledger.next("pipeline", 1, {"pipeline": p.name, "number": 0}).encode())
    body = {"pipeline": p.name, "until": p.windows.begin(epoch), "epoch": epoch}
    ledger.take(ledger.next("retired", 1, body).encode())


def fire_all(clock: Clock, ledger: Ledger, now: int) -> list:
    """What the owner would commit at this time, in order."""
    written = []
    while found := clock.due(now):
        for pipeline, due in found:
            charges, record = clock.fire(pipeline, due, now)
            for charge in charges:
                ledger.take(charge.encode())
            clock.apply(record)
            written += [*charges, record]
            if isinstance(record, Skipped):
                break
    return written


class Recorder:
    """A producer that notes what is done, and may fail at its commit."""

    def __init__(self, fails: bool = False, broker: int = ORIGIN + 6 * HOUR, kind: int = 1) -> None:
        self.done: list[str] = []
        self.stamps: list[object] = []
        self._fails = fails
        self._answer = SimpleNamespace(timestamp=broker // 1000, timestamp_type=kind, offset=7)

    async def begin_transaction(self) -> None:
        self.done.append("begin")

    async def send(self, topic: str, value: bytes, **how: object) -> asyncio.Future[object]:
        self.stamps.append(how.get("timestamp_ms"))
        self.done.append(topic.rsplit(".", 2)[-1] if "clock" in topic else "ledger")
        answer = asyncio.get_running_loop().create_future()
        answer.set_result(self._answer)
        return answer

    async def abort_transaction(self) -> None:
        self.done.append("abort")

    async def commit_transaction(self) -> None:
        if self._fails:
            raise KafkaError("the broker went away")
        self.done.append("commit")


def owner(clock: Clock, ledger: Ledger, producer: Recorder) -> ClockOwner:
    made = ClockOwner.__new__(ClockOwner)
    made._names, made._deployment, made._kafka = NAMES, MADE, Kafka()
    made.progress = Progress("the clock")
    made._clock, made._ledger, made._producer = clock, ledger, producer
    made._on_record = lambda *_: None
    made._wall, made._pace = WallClock(), Pace(0.25)
    made._lead, made._witness, made._known_end = ClockLead(NAMES.clock, 5_000_000), None, 0
    made._timeout = 60_000
    made._keep, made._snapshots, made._trim, made._markers = 0, Snapshots(0), None, None
    return made


def fired(clock, pipeline, due, now):
    charges, record = clock.fire(pipeline, due, now)
    return charges, [record]


def reading(monkeypatch, logs: dict[str, list[bytes]]) -> ClockOwner:
    """An owner that reads these logs."""

    async def read(kafka: object, topic: str, partition: int, start: int | None = None):
        values = logs[topic.rpartition(".")[2]]
        yield [SimpleNamespace(offset=n, value=v) for n, v in enumerate(values)], len(values), 0

    async def enough(kafka: object, topic: str, partition: int, position: int) -> None:
        if len(logs[topic.rpartition(".")[2]]) < position:
            raise RewoundError(topic)

    async def first(*_: object) -> int:
        return 0

    monkeypatch.setattr(owner_module, "read_to_end", read)
    monkeypatch.setattr(owner_module, "check_reached", enough)
    monkeypatch.setattr(owner_module, "beginning", first)
    made = owner(Clock(MADE, Ledger(), "1.0", "key"), Ledger(), Recorder())
    made._kafka, made._version, made._fingerprint = None, "1.0", "key"
    return made


def logs_of(clock: Clock, ledger: Ledger) -> dict[str, list[bytes]]:
    """Ledger and clock log after one trigger."""
    ((pipeline, due),) = clock.due(ORIGIN + 6 * HOUR)
    (charge,), record = clock.fire(pipeline, due, ORIGIN + 6 * HOUR)
    ledger.take(charge.encode())
    records = [start(P), beat([5], ORIGIN), record]
    return {
        "v1": [r.encode() for r in ledger.records],
        "clock": [encode(one) for one in records],
    }


async def acquired(made: ClockOwner) -> None:
    await made._read_logs()

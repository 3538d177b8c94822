"""A clock that has begun, its owner without a broker, and the records that both write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

from aiokafka.errors import KafkaError
from hushstream.agents.clock.clock import Clock
from hushstream.agents.clock.known import AskedTriggers, ClockSetup, KnownLogs
from hushstream.agents.clock.ledger import Ledger
from hushstream.agents.clock.owner import ClockOwner
from hushstream.agents.clock.wall_time import ClockLead, Pace, Settling, WallClock
from hushstream.agents.deployment.model import Deployment
from hushstream.agents.kafka.progress import Progress
from hushstream.topics.config.model import Engine, Kafka
from hushstream.topics.records import Skipped

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
    """Retire the pipeline in the ledger, before an epoch."""
    (p,) = made.pipelines
    if p.name not in ledger.pipelines:
        ledger.take(ledger.next("pipeline", 1, {"pipeline": p.name, "number": 0}).encode())
    body = {"pipeline": p.name, "until": p.windows.begin(epoch), "epoch": epoch}
    ledger.take(ledger.next("retired", 1, body).encode())


def fire_all(clock: Clock, ledger: Ledger, now: int) -> list:
    """The charges and triggers that the owner would commit at this time, in order."""
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


FIRST = 7  # offset of every record sent to a `Recorder`, and the end of the owner's reading


class Recorder:
    """A producer that notes its calls and may fail to commit."""

    def __init__(self, fails: bool = False, broker: int = ORIGIN + 6 * HOUR, kind: int = 1) -> None:
        self.done: list[str] = []
        self.stamps: list[object] = []
        self._fails = fails
        self._answer = SimpleNamespace(timestamp=broker // 1000, timestamp_type=kind, offset=FIRST)

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


def known_logs(ledger: Ledger, clock: Clock | None = None) -> KnownLogs:
    """What an owner knows; without a clock, it has read nothing yet."""
    setup = ClockSetup(Kafka(), NAMES, MADE, Engine(), "1.0", "key")
    made = KnownLogs(setup, Progress("the clock"))
    made.ledger = ledger
    if clock is not None:
        made.clock = clock
    return made


def asking(clock: Clock, came: Callable[[], None] = lambda: None) -> AskedTriggers:
    """The requests for a clock; none has been sent yet."""
    made = AskedTriggers(Kafka(), NAMES.requests, came)
    made._clock, made._wall = clock, WallClock()
    return made


def owner(clock: Clock, ledger: Ledger, producer: Recorder) -> ClockOwner:
    made = ClockOwner.__new__(ClockOwner)
    made._names, made._deployment, made._kafka = NAMES, MADE, Kafka()
    made.progress = Progress("the clock")
    made._known, made._producer = known_logs(ledger, clock), producer
    made._known.end = made._known.ledger_end = FIRST
    made._unsure = {NAMES.clock, NAMES.ledger}
    made._on_record = lambda *_: None
    made._wall, made._pace = WallClock(), Pace(1.0)
    made._settling, made._owned = Settling(0), True
    made._requests = asking(clock, lambda: made._pace.hurry())
    made._lead, made._witness = ClockLead(NAMES.clock, 5_000_000), None
    made._timeout, made._trim, made._markers = 60_000, None, None
    return made


def fired(clock, pipeline, due, now):
    charges, record = clock.fire(pipeline, due, now)
    return charges, [record]

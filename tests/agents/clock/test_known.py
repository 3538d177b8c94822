"""What the clock's owner reads: rewound logs, and requests that anyone can send."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import hushstream.agents.clock.known as module
import pytest
from aiokafka.structs import TopicPartition
from hushstream.agents.clock.clock import Clock
from hushstream.agents.clock.known import KnownLogs, check_grown
from hushstream.agents.clock.ledger import Ledger
from hushstream.errors import EngineError, LedgerError, RewoundError
from hushstream.topics.records import Snapshot, TriggerRequest, encode

from ...support import DAY, HOUR, ORIGIN, beat, deployment, start
from .bench import P, asking, begun, known_logs, with_pipeline


def reading(monkeypatch, logs: dict[str, list[bytes]]) -> KnownLogs:
    """The knowledge of an owner that reads these logs."""

    async def read(kafka: object, topic: str, partition: int, start: int | None = None):
        values = logs[topic.rpartition(".")[2]]
        yield [SimpleNamespace(offset=n, value=v) for n, v in enumerate(values)], len(values), 0

    async def enough(kafka: object, topic: str, partition: int, position: int) -> None:
        if len(logs[topic.rpartition(".")[2]]) < position:
            raise RewoundError(topic)

    async def first(*_: object) -> int:
        return 0

    monkeypatch.setattr(module, "read_to_end", read)
    monkeypatch.setattr(module, "check_reached", enough)
    monkeypatch.setattr(module, "beginning", first)
    return known_logs(Ledger())


async def not_ending() -> bool:
    return False


def logs_of(clock: Clock, ledger: Ledger) -> dict[str, list[bytes]]:
    """The ledger and the clock log after one trigger."""
    ((pipeline, due),) = clock.due(ORIGIN + 6 * HOUR)
    (charge,), record = clock.fire(pipeline, due, ORIGIN + 6 * HOUR)
    ledger.take(charge.encode())
    records = [start(P), beat([5], ORIGIN), record]
    return {
        "v1": [r.encode() for r in ledger.records],
        "clock": [encode(one) for one in records],
    }


def test_every_opening_of_a_clock_has_a_salt_of_its_own(monkeypatch):
    logs = logs_of(*begun(with_pipeline(external=False)))
    owners = [reading(monkeypatch, logs) for _ in range(2)]
    for one in owners:
        asyncio.run(one.read())
    salts = {one.clock._salt for one in owners}
    assert len(salts) == 2 and all(len(salt) == 32 for salt in salts)


def test_an_owner_refuses_a_ledger_that_has_not_paid_for_a_trigger(monkeypatch):
    logs = logs_of(*begun(with_pipeline(external=False)))
    asyncio.run(reading(monkeypatch, logs).read())
    logs["v1"] = logs["v1"][:1]
    made = reading(monkeypatch, logs)
    monkeypatch.setattr(made, "_ending", not_ending)
    with pytest.raises(LedgerError, match="never charged by this ledger"):
        asyncio.run(made.read())


def test_an_owner_that_slept_between_the_logs_reads_what_was_charged_meanwhile(monkeypatch):
    logs = logs_of(*begun(with_pipeline(external=False)))
    made, charge = reading(monkeypatch, logs), logs["v1"].pop()

    async def sleep(*_: object) -> int:
        if charge not in logs["v1"]:
            logs["v1"].append(charge)
        return 0

    monkeypatch.setattr(module, "beginning", sleep)
    monkeypatch.setattr(made, "_ending", not_ending)
    asyncio.run(made.read())
    assert [r.encode() for r in made.ledger.records] == logs["v1"]
    assert made.clock.due(ORIGIN + 6 * HOUR) == []  # the trigger is fired and paid for


@pytest.mark.parametrize("ends", [True, False])
def test_a_charge_is_not_missing_while_its_transaction_ends_in_the_ledger(
    monkeypatch, caplog, ends
):
    """Brokers end a transaction in one log before the other."""
    logs = logs_of(*begun(with_pipeline(external=False)))
    charge, end, asked = logs["v1"].pop(), len(logs["v1"]) + 1, list[bool]()

    @asynccontextmanager
    async def reader(kafka: object, committed: bool):
        yield committed

    async def reached(committed: bool, known: dict[TopicPartition, int]):
        asked.append(committed)
        if ends and len(asked) == 8:  # the fourth look finds it ended
            logs["v1"].append(charge)
        return dict.fromkeys(known, len(logs["v1"]) if committed else end)

    made = reading(monkeypatch, logs)
    monkeypatch.setattr(module, "reader", reader)
    monkeypatch.setattr(module, "reached", reached)
    monkeypatch.setattr(module, "AGAIN_SECONDS", 0.01)
    if ends:
        asyncio.run(made.read())
        assert [r.encode() for r in made.ledger.records] == logs["v1"]
        assert caplog.text.count("has charged meanwhile") == 1
        return
    made._kafka = SimpleNamespace(outage_timeout=200_000)
    with pytest.raises(LedgerError, match="never charged by this ledger"):
        asyncio.run(made.read())
    assert len(asked) > 4


@pytest.mark.parametrize("log", ["v1", "clock"])
def test_an_owner_that_reads_again_misses_what_it_has_known(monkeypatch, log):
    """The broker was away and came back with an older disk."""
    logs = logs_of(*begun(with_pipeline(external=False)))
    made = reading(monkeypatch, logs)
    asyncio.run(made.read())
    asyncio.run(made.read())
    logs[log].pop()
    with pytest.raises(RewoundError):
        asyncio.run(made.read())


def test_a_request_too_far_ahead_is_ignored_whoever_sent_it(caplog):
    clock, _ = begun()
    made = asking(clock)
    now = made._wall.now()

    class Requests:
        async def getmany(self, timeout_ms: int) -> dict[object, list[object]]:
            def record(stamp: int, at: int) -> object:
                return SimpleNamespace(
                    timestamp=stamp // 1000, value=encode(TriggerRequest("x", at))
                )

            later = now + 500 * DAY
            return {0: [record(now, later), record(later, later), record(now, now + HOUR)]}

    made._consumer = Requests()
    assert asyncio.run(made.read())
    assert clock.requested == {"p": now + HOUR}
    assert caplog.text.count("more than a day ahead") == 2


@pytest.mark.parametrize("end", [3, 2])
def test_requests_that_were_read_before_and_are_gone_end_the_owner(monkeypatch, end: int):
    """The topic alone lost its end: a reader there would be refused again and again."""

    class Requests:
        place = -1

        async def start(self) -> None: ...

        def assign(self, places: object) -> None: ...

        async def beginning_offsets(self, places: list[TopicPartition]) -> dict[object, int]:
            return dict.fromkeys(places, 1)

        async def end_offsets(self, places: list[TopicPartition]) -> dict[object, int]:
            return dict.fromkeys(places, end)

        def seek(self, place: TopicPartition, offset: int) -> None:
            self.place = offset

        async def position(self, place: TopicPartition) -> int:
            return self.place

    requests, clients = Requests(), module.reached.__globals__
    monkeypatch.setattr(module, "consumer", lambda kafka: requests)
    monkeypatch.setattr(module, "wait_patiently", lambda *_: None)
    monkeypatch.setitem(clients, "SETTLE_SECONDS", 0.0)
    clock, _ = begun()
    made, last = asking(clock), Snapshot(1, {}, {}, 1, "", requests=3)
    if end == 3:
        asyncio.run(made.open(clock, made._wall, last))
        assert requests.place == 3
    else:
        with pytest.raises(RewoundError, match="requests-0 ends before"):
            asyncio.run(made.open(clock, made._wall, last))


def test_an_owner_that_counts_fewer_partitions_than_the_ledger_writes_nothing(monkeypatch):
    made = deployment(partitions=2)
    check_grown(made, Ledger())
    check_grown(made, Ledger(grown=[{"topic": "other", "to": 3}, {"topic": "events", "to": 2}]))
    with pytest.raises(EngineError, match=r"3 partitions of topic events count by now.*start it"):
        check_grown(made, Ledger(grown=[{"topic": "events", "to": 3}]))
    logs = logs_of(*begun(with_pipeline(external=False)))
    known = reading(monkeypatch, logs)
    monkeypatch.setattr(module, "check_grown", refuse_all)
    with pytest.raises(EngineError, match="none may"):
        asyncio.run(known.read())


def refuse_all(*_: object) -> None:
    raise EngineError("none may")

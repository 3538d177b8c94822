"""Asking a registry: outages are waited for, one id stops no work, and patience ends with an error.

Covers: agents/registry/refusals.py
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from hushstream.agents.registry import asking
from hushstream.agents.registry.asking import MOST_ID, Asking
from hushstream.agents.registry.refusals import IdRefused
from hushstream.agents.stages.ingest.schemas import KnownSchemas
from hushstream.agents.state.memory import MemoryStore
from hushstream.errors import EngineError
from hushstream.formats.events.decode import RawRecord
from hushstream.formats.schemas.schema import Schema, Verdict

SCHEMA = Schema("AVRO", "{}")
Answer = Schema | Verdict | Exception


class Client:
    """A registry with a list of answers and with answers for single ids; the last one repeats."""

    def __init__(self, *answers: Answer, **by_id: Answer) -> None:
        self.answers = list(answers)
        self.by_id = {int(name[1:]): answer for name, answer in by_id.items()}
        self.asked: list[int] = []
        self.probed: list[int] = []
        self.takes = 0.0
        self.held: set[int] = set()  # ids that get no answer before `let_go`
        self.let_go = threading.Event()
        self.running = self.most = 0
        self._lock = threading.Lock()

    def fetch(self, number: int) -> Schema | Verdict:
        with self._lock:
            self.asked.append(number)
            self.running += 1
            self.most = max(self.most, self.running)
            answer = self.by_id.get(number)
            if answer is None:
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if number in self.held:
            self.let_go.wait(60)
        time.sleep(self.takes)
        with self._lock:
            self.running -= 1
        if isinstance(answer, Exception):
            raise answer
        return answer

    def probe(self, number: int) -> None:
        with self._lock:
            self.probed.append(number)
        answer = self.by_id.get(number, self.answers[0])
        if isinstance(answer, Exception):
            raise answer


class Down(Exception):
    """An error with a status that says nothing about an id."""

    def __init__(self, status: int) -> None:
        super().__init__("a secret of the answer")
        self.http_status_code = status


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(asking, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(asking, "ALONE_SECONDS", 0.2)
    monkeypatch.setattr(asking, "WAKE_SECONDS", 0.001)


def play(made: Asking, until: Callable[[], bool]) -> None:
    async def run() -> None:
        task = asyncio.create_task(made.run())
        for _ in range(2_000):
            if until() or task.done():
                break
            await asyncio.sleep(0.005)
        if task.done():
            task.result()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())


def make(client: Client, patience: int = 60_000_000) -> tuple[Asking, list[int]]:
    woken: list[int] = []
    return Asking(client, patience, lambda: woken.append(1)), woken


def asked(made: Asking, number: int, partition: int = 0) -> Schema | Verdict:
    return made.ask("events", partition, number)


def test_an_answer_is_fetched_once_and_wakes_who_asked() -> None:
    client = Client(SCHEMA)
    made, woken = make(client)
    assert asked(made, 7) is Verdict.PENDING
    play(made, lambda: asked(made, 7) is SCHEMA and bool(woken))
    assert asked(made, 7) is SCHEMA and client.asked == [7] and woken
    assert not made.progress.away and made.pinned("t", 0) == {}


def test_an_unknown_id_is_asked_for_twice_and_again_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Client(Verdict.UNKNOWN)
    made, _ = make(client)
    asked(made, 7)
    play(made, lambda: asked(made, 7) is Verdict.UNKNOWN)
    assert asked(made, 7) is Verdict.UNKNOWN and client.asked == [7, 7]
    monkeypatch.setattr(asking.time, "monotonic", lambda now=asking.time.monotonic: now() + 60)
    assert asked(made, 7) is Verdict.PENDING


def test_a_replica_that_lags_behind_makes_no_id_unknown() -> None:
    made, _ = make(Client(Verdict.UNKNOWN, SCHEMA))
    asked(made, 7)
    play(made, lambda: asked(made, 7) is not Verdict.PENDING)
    assert asked(made, 7) is SCHEMA


def test_an_outage_is_waited_for_and_is_never_an_unknown_id(caplog: Any) -> None:
    client = Client(*[Down(503)] * 4, SCHEMA)
    made, _ = make(client)
    asked(made, 7)
    seen = set()

    def answered() -> bool:
        seen.add(asked(made, 7))
        return asked(made, 7) is SCHEMA

    with caplog.at_level("WARNING"):
        play(made, answered)
    assert seen == {Verdict.PENDING, SCHEMA}
    assert "records wait for the schema registry (Down 503)" in caplog.text
    assert "secret" not in caplog.text


def test_patience_ends_with_an_error_that_says_why() -> None:
    made, _ = make(Client(ConnectionError("http://user:password@host")), patience=30_000)
    asked(made, 7)
    with pytest.raises(EngineError, match=r"no clear answer .* 0\.03 s") as raised:
        play(made, lambda: False)
    assert made.progress.away and "password" not in str(raised.value)


def test_memory_of_unknown_ids_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "MOST_UNKNOWN", 3)
    made, _ = make(Client(Verdict.UNKNOWN))
    for number in range(8):
        asked(made, number)
        play(made, lambda number=number: asked(made, number) is Verdict.UNKNOWN)
    assert len(made._unknown) <= 3


# -- one id, while the registry answers others -----------------------------------------------------


@pytest.mark.parametrize("status", [200, 400, 404, 409, 410, 422])
def test_a_clear_refusal_of_one_id_makes_it_unknown(status: int) -> None:
    client = Client(Verdict.UNKNOWN, n7=IdRefused(status))
    made, _ = make(client)
    asked(made, 7)
    play(made, lambda: asked(made, 7) is Verdict.UNKNOWN)
    assert asked(made, 7) is Verdict.UNKNOWN
    assert client.asked == [7, 7] and MOST_ID in client.probed


def test_a_refusal_in_all_cases_is_an_outage() -> None:
    """A wrong address may return a proxy's page for every id, so no record is bad because of it."""
    made, _ = make(Client(IdRefused(404)), patience=50_000)
    asked(made, 7)
    with pytest.raises(EngineError, match=r"no clear answer .*IdRefused 404"):
        play(made, lambda: asked(made, 7) is Verdict.UNKNOWN)
    assert asked(made, 7) is Verdict.PENDING


def test_a_client_without_rights_is_no_matter_of_one_id() -> None:
    """A registry may tell any client, even one without rights, that an id does not exist."""
    client = Client(IdRefused(403), **{f"n{MOST_ID}": Verdict.UNKNOWN})
    made, _ = make(client, patience=50_000)
    asked(made, 7)
    with pytest.raises(EngineError, match="IdRefused 403"):
        play(made, lambda: asked(made, 7) is Verdict.UNKNOWN)
    assert client.probed == []


def test_one_schema_without_rights_is_unknown_where_another_is_given() -> None:
    client = Client(IdRefused(403), n5=SCHEMA)
    made, _ = make(client)
    made.seen(5)
    asked(made, 7)
    play(made, lambda: asked(made, 7) is Verdict.UNKNOWN)
    assert asked(made, 7) is Verdict.UNKNOWN and set(client.probed) == {5}


@pytest.mark.parametrize("status", [401, 408, 429])
def test_what_is_said_of_the_client_is_never_of_an_id(status: int) -> None:
    made, _ = make(Client(Verdict.UNKNOWN, n7=Down(status)), patience=50_000)
    asked(made, 7)
    with pytest.raises(EngineError, match=f"Down {status}"):
        play(made, lambda: asked(made, 7) is Verdict.UNKNOWN)


@pytest.mark.parametrize("error", [Down(500), TimeoutError(), ConnectionError()])
def test_an_id_without_an_answer_is_set_aside_while_others_have_one(
    error: Exception, caplog: Any
) -> None:
    client = Client(SCHEMA, n7=error)
    made, woken = make(client, patience=60_000_000)
    asked(made, 7)
    begun = time.monotonic()
    with caplog.at_level("DEBUG", logger="hushstream"):
        play(made, lambda: asked(made, 7) is Verdict.UNKNOWN and bool(woken))
    assert asked(made, 7) is Verdict.UNKNOWN and woken and not made.progress.away
    assert time.monotonic() - begun >= 0.2
    assert levels(caplog, "no answer for one schema") == {"DEBUG"}
    assert "secret" not in caplog.text


def test_nobody_waits_a_second_time_for_what_was_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(SCHEMA, n7=Down(500))
    made, _ = make(client)
    asked(made, 7)
    play(made, lambda: asked(made, 7) is Verdict.UNKNOWN)
    monkeypatch.setattr(asking.time, "monotonic", lambda now=time.monotonic: now() + 60)
    assert asked(made, 7) is Verdict.UNKNOWN
    client.by_id[7] = SCHEMA  # the id is asked for nevertheless
    play(made, lambda: asked(made, 7) is SCHEMA)
    assert asked(made, 7) is SCHEMA


def test_an_id_that_does_not_answer_delays_no_other_one() -> None:
    client = Client(SCHEMA, **{f"n{n}": Down(500) for n in range(1, 60)})
    client.held = set(range(1, 60))
    made, _ = make(client)
    for number in range(1, 60):
        asked(made, number)
    asked(made, 100, partition=1)
    play(made, lambda: asked(made, 100, partition=1) is SCHEMA)
    assert asked(made, 100, partition=1) is SCHEMA and not client.let_go.is_set()
    assert client.running == asking.MINE  # they still wait, and take up only these places
    client.let_go.set()


# -- many ids --------------------------------------------------------------------------------------


def test_ids_are_asked_for_side_by_side_but_not_all_at_once() -> None:
    client = Client(SCHEMA)
    client.takes = 0.02
    made, _ = make(client)
    for number in range(96):
        asked(made, number, partition=number % 8)
    # Wait for the last thread as well: partition 0 also asks for ids that others still wait for.
    play(made, lambda: all(asked(made, n) is SCHEMA for n in range(96)) and not client.running)
    assert asking.MINE < client.most <= asking.SLOTS
    client.most = 0
    for number in range(100, 130):
        asked(made, number)
    play(made, lambda: all(asked(made, n) is SCHEMA for n in range(100, 130)))
    assert 1 < client.most <= asking.MINE


def levels(caplog: Any, text: str) -> set[str]:
    """Levels of the lines with a text. Which schemas records have is a fact about raw data."""
    return {one.levelname for one in caplog.records if text in one.getMessage()}


def test_a_partition_may_ask_for_so_many_unknown_ids_in_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    client = Client(Verdict.UNKNOWN, n900=SCHEMA)
    made, _ = make(client)
    numbers = range(1, 301)

    def all_denied() -> bool:
        return {asked(made, n) for n in numbers} == {Verdict.UNKNOWN}

    with caplog.at_level("DEBUG", logger="hushstream"):
        play(made, all_denied)
    assert levels(caplog, "unknown schemas within a minute") == {"DEBUG"}
    assert all_denied() and len(set(client.asked)) == asking.MOST_ASKED
    assert asked(made, 900) is Verdict.UNKNOWN and asked(made, 900, partition=1) is Verdict.PENDING
    play(made, lambda: asked(made, 900, partition=1) is SCHEMA)
    assert asked(made, 900) is SCHEMA  # what one partition has found, all partitions have
    monkeypatch.setattr(asking.time, "monotonic", lambda now=time.monotonic: now() + 61)
    assert asked(made, 301) is Verdict.PENDING


def test_schemas_that_exist_are_not_counted_as_unknown() -> None:
    made, _ = make(Client(SCHEMA))
    many = range(3 * asking.MOST_ASKED)
    seen = set()

    def answered() -> bool:
        verdicts = {asked(made, n) for n in many}
        seen.update(verdicts)
        return verdicts == {SCHEMA}

    play(made, answered)
    assert answered() and Verdict.UNKNOWN not in seen


def test_found_schemas_take_so_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "MOST_FOUND", 1_000)
    made, _ = make(Client(Schema("AVRO", "x" * 300)))
    for number in range(9):
        asked(made, number)
        play(made, lambda number=number: isinstance(asked(made, number), Schema))
    assert list(made._found) == [6, 7, 8]


@pytest.mark.parametrize("partition", [0, 1])
def test_a_thousand_records_with_unknown_ids_delay_nobody_for_long(partition: int) -> None:
    """Each such record used to cost two requests, and all other partitions waited for them."""
    client = Client(Verdict.UNKNOWN, n5=SCHEMA)
    client.takes = 0.003
    made, _ = make(client)
    flood, other = KnownSchemas(made, "events", 0), KnownSchemas(made, "events", 1)
    flood.reopen()
    other.reopen()
    log = [RawRecord(n, 0, None, b"\0" + (1_000 + n).to_bytes(4, "big") + b"\2")
           for n in range(1_000)]  # fmt: skip
    plain = [RawRecord(0, 0, None, b"\0\0\0\0\5\2")]
    place: list[int] = [0]

    def done() -> bool:
        place[0] = flood.ready(MemoryStore(), log[place[0] :], 1_000)[1]
        there = other.ready(MemoryStore(), plain, 1)[1]
        return place[0] == 1_000 if partition == 0 else there == 1

    done()
    play(made, done)
    assert done() and len(client.asked) < 300  # out of two thousand
    assert client.asked.index(5) < asking.MOST_ASKED // 2

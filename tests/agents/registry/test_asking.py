"""Asking: outages are waited for, unknown ids asked for twice, and patience ends aloud."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hushstream.agents.registry import asking
from hushstream.agents.registry.asking import Asking
from hushstream.errors import EngineError
from hushstream.topics.schemas.schema import Schema, Verdict

SCHEMA = Schema("AVRO", "{}")
Answer = Schema | Verdict | Exception


class Client:
    """A registry with a list of answers; the last one stays."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[int] = []

    def fetch(self, number: int) -> Schema | Verdict:
        self.asked.append(number)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(asking, "RETRY_SECONDS", 0.01)


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


def test_an_answer_is_fetched_once_and_wakes_who_asked() -> None:
    client = Client(SCHEMA)
    made, woken = make(client)
    assert made.ask(7) is Verdict.PENDING
    play(made, lambda: made.ask(7) is SCHEMA)
    assert made.ask(7) is SCHEMA and client.asked == [7] and woken
    assert not made.progress.away and made.pinned("t", 0) == {}


def test_an_unknown_id_is_asked_for_twice_and_again_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Client(Verdict.UNKNOWN)
    made, _ = make(client)
    made.ask(7)
    play(made, lambda: made.ask(7) is Verdict.UNKNOWN)
    assert made.ask(7) is Verdict.UNKNOWN and client.asked == [7, 7]
    monkeypatch.setattr(asking.time, "monotonic", lambda now=asking.time.monotonic: now() + 60)
    assert made.ask(7) is Verdict.PENDING


def test_a_replica_that_lags_behind_makes_no_id_unknown() -> None:
    made, _ = make(Client(Verdict.UNKNOWN, SCHEMA))
    made.ask(7)
    play(made, lambda: made.ask(7) is not Verdict.PENDING)
    assert made.ask(7) is SCHEMA


def test_an_outage_is_waited_for_and_is_never_an_unknown_id(caplog: Any) -> None:
    class Down(Exception):
        http_status_code = 503

    client = Client(*[Down("a secret of the answer")] * 4, SCHEMA)
    made, _ = make(client)
    made.ask(7)
    seen = set()

    def answered() -> bool:
        seen.add(made.ask(7))
        return made.ask(7) is SCHEMA

    with caplog.at_level("WARNING"):
        play(made, answered)
    assert seen == {Verdict.PENDING, SCHEMA}
    assert "records wait for the schema registry (Down 503)" in caplog.text
    assert "secret" not in caplog.text


def test_patience_ends_with_an_error_that_says_why() -> None:
    made, _ = make(Client(ConnectionError("http://user:password@host")), patience=30_000)
    made.ask(7)
    with pytest.raises(EngineError, match=r"no clear answer .* 0\.03 s") as raised:
        play(made, lambda: False)
    assert made.progress.away and "password" not in str(raised.value)


def test_memory_of_unknown_ids_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "MOST_UNKNOWN", 3)
    made, _ = make(Client(Verdict.UNKNOWN))
    for number in range(8):
        made.ask(number)
        play(made, lambda number=number: made.ask(number) is Verdict.UNKNOWN)
    assert len(made._unknown) <= 3

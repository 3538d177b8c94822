"""Clients while the broker is away: what they raise is waited out, and ends no task of ours."""

from __future__ import annotations

import asyncio
import time

import hushstream.agents.kafka.clients as clients
import pytest
from aiokafka.errors import KafkaConnectionError
from hushstream.agents.kafka.clients import asked_to_end, stop_quietly, through_outages
from hushstream.agents.kafka.progress import Progress
from hushstream.errors import EngineError


async def nothing() -> None:
    """Let go of nothing."""


class Broken:
    """A client whose stop raises, as aiokafka's does once its fetches were cancelled."""

    def __init__(self, error: BaseException | None) -> None:
        self._error = error

    async def stop(self) -> None:
        if self._error is None:
            await asyncio.sleep(60)
        else:
            raise self._error


@pytest.mark.parametrize(
    "error",
    [asyncio.CancelledError(), RuntimeError("broken"), None],
    ids=["cancels", "raises", "hangs"],
)
def test_stopping_a_broken_client_ends_nobody(monkeypatch, error):
    monkeypatch.setattr(clients, "STOP_SECONDS", 0.1)

    async def run() -> str:
        await stop_quietly(Broken(error))
        assert not asked_to_end()
        return "went on"

    assert asyncio.run(run()) == "went on"


@pytest.mark.parametrize("error", clients.OUTAGES)
def test_what_a_client_raises_is_waited_out(monkeypatch, error):
    attempts = []
    sleep = asyncio.sleep
    monkeypatch.setattr(clients.asyncio, "sleep", lambda _: sleep(0))

    async def acquire() -> None:
        attempts.append(1)
        if len(attempts) < 3:
            raise error()

    asyncio.run(through_outages(Progress("it"), acquire, nothing, 60_000_000))
    assert len(attempts) == 3


def test_a_cancellation_that_was_asked_for_is_not_an_outage():
    attempts = []

    async def acquire() -> None:
        attempts.append(1)
        await asyncio.sleep(60)

    async def run() -> None:
        task = asyncio.create_task(through_outages(Progress("it"), acquire, nothing, 60_000_000))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert attempts == [1]


def test_an_outage_that_lasts_too_long_is_an_error():
    async def acquire() -> None:
        raise KafkaConnectionError

    began = time.monotonic()
    with pytest.raises(EngineError, match="no broker for 1 s"):
        asyncio.run(through_outages(Progress("it"), acquire, nothing, 1_000_000))
    assert 1 <= time.monotonic() - began < 10

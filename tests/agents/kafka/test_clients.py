"""Clients while the broker is away: the product waits through their errors, and no task ends.

Covers: agents/kafka/patience.py
"""

from __future__ import annotations

import asyncio
import gc
from types import SimpleNamespace

import hushstream.agents.kafka.clients as clients
import hushstream.agents.kafka.patience as patience
import pytest
from aiokafka.errors import (
    DuplicateSequenceNumber,
    IllegalOperation,
    KafkaConnectionError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
)
from aiokafka.structs import TopicPartition
from hushstream.agents.kafka.clients import stop_quietly
from hushstream.agents.kafka.patience import asked_to_end, through_outages
from hushstream.agents.kafka.progress import Progress
from hushstream.errors import EngineError, RewoundError
from hushstream.topics.config.model import Kafka


async def nothing() -> None:
    """Release nothing."""


class Broken:
    """A client whose stop raises, as aiokafka's does after its fetches were cancelled."""

    def __init__(self, error: BaseException | None) -> None:
        self._error = error

    async def stop(self) -> None:
        if self._error is None:
            await asyncio.Event().wait()
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


@pytest.mark.parametrize("error", patience.OUTAGES)
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


def test_what_is_not_wanted_any_more_is_not_tried_again(monkeypatch):
    attempts, sleep = [], asyncio.sleep
    monkeypatch.setattr(clients.asyncio, "sleep", lambda _: sleep(0))

    async def acquire() -> None:
        attempts.append(1)
        raise TimeoutError

    def run(most: int) -> bool:
        wanted = lambda: len(attempts) < most  # noqa: E731
        return asyncio.run(through_outages(Progress("it"), acquire, nothing, 60_000_000, wanted))

    assert not run(0) and attempts == []
    assert not run(2) and attempts == [1, 1]


def test_a_cancellation_that_was_asked_for_is_not_an_outage():
    attempts = []

    async def acquire() -> None:
        attempts.append(1)
        await asyncio.Event().wait()

    async def run() -> None:
        task = asyncio.create_task(through_outages(Progress("it"), acquire, nothing, 60_000_000))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert attempts == [1]


def test_one_refused_batch_is_enough_to_keep_a_transaction_from_its_commit():
    async def run() -> None:
        loop = asyncio.get_running_loop()
        good, bad, late = (loop.create_future() for _ in range(3))
        written = SimpleNamespace(offset=7)
        good.set_result(written)
        assert await clients.answers([good, good]) == [written, written]
        assert await clients.answers([]) == []
        bad.set_exception(OutOfOrderSequenceNumber())
        with pytest.raises(OutOfOrderSequenceNumber):  # `late` may never come
            await clients.answers([good, bad, late])
        known = loop.create_future()  # aiokafka's answer if the broker had the batch's number
        known.set_result(SimpleNamespace(offset=-1))
        with pytest.raises(DuplicateSequenceNumber):
            await clients.answers([known, good])
        late.set_exception(KafkaConnectionError())
        await asyncio.sleep(0)

    asyncio.run(run())


def test_a_record_that_is_too_large_is_not_sent_again():
    """The step would only be repeated for ever, while the worker looks well."""

    async def run() -> None:
        refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        refused.set_exception(MessageSizeTooLargeError())
        with pytest.raises(EngineError, match=r"max\.message\.bytes"):
            await clients.answers([refused])

    asyncio.run(run())


def test_an_answer_that_comes_after_a_wait_was_cancelled_is_not_logged():
    unheard: list[str] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: unheard.append(context["message"]))
        sent = [loop.create_future(), loop.create_future()]
        waiting = asyncio.create_task(clients.answers(sent))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        sent[1].set_exception(KafkaConnectionError())
        await asyncio.sleep(0)
        sent.clear()
        gc.collect()

    asyncio.run(run())
    assert unheard == []


class Silent:
    """A client that knows the end of a log and receives only some of its records."""

    def __init__(self, records: int) -> None:
        self._left, self._place = records, 0

    async def start(self) -> None:
        """Connect."""

    async def stop(self) -> None:
        """Hang up."""

    def assign(self, _: object) -> None:
        """Read from these partitions."""

    def seek(self, _: object, position: int) -> None:
        """Read from this position on."""
        self._place = position

    async def beginning_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, 0)

    async def end_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, 5)

    async def getmany(self, tp: TopicPartition, timeout_ms: int) -> dict[TopicPartition, list[int]]:
        clients.time.monotonic.now += 3.0
        if not self._left:
            return {}
        self._left -= 1
        self._place += 1
        return {tp: [self._place]}

    async def position(self, _: object) -> int:
        return self._place


class Ticks:
    """A clock that only the test advances."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def ticks(monkeypatch) -> Ticks:
    made = Ticks()
    for module in (clients, patience):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=made))
    return made


def test_a_log_of_which_nothing_comes_is_not_waited_for_without_end(monkeypatch, ticks):
    monkeypatch.setattr(clients, "READ_SECONDS", 5.0)

    async def read(records: int) -> list[int]:
        monkeypatch.setattr(clients, "consumer", lambda *_: Silent(records))
        return [r async for found, _, _ in clients.read_to_end(Kafka(), "t", 0) for r in found]

    assert asyncio.run(read(5)) == [1, 2, 3, 4, 5]  # slow, but it advances
    with pytest.raises(TimeoutError, match="t-0 was not read to its end"):
        asyncio.run(read(3))
    assert issubclass(TimeoutError, patience.OUTAGES)  # so the product retries, for a limited time


def test_a_producer_whose_coordinator_has_no_leader_is_not_waited_for_without_end(monkeypatch):
    monkeypatch.setattr(clients, "START_SECONDS", 0.05)

    class Unled:
        async def start(self) -> None:
            await asyncio.Event().wait()  # aiokafka retries until it finds a coordinator

    progress = Progress("shard in-0")

    async def acquire() -> None:
        await clients.start_producer(Unled())

    async def run() -> None:
        with pytest.raises(EngineError, match=r"in-0: no broker for 0\.1 s.* no coordinator"):
            await through_outages(progress, acquire, nothing, 100_000)
        assert not asked_to_end()

    asyncio.run(run())
    assert progress.away  # so the worker is not ready meanwhile


def test_an_outage_that_lasts_too_long_is_an_error(monkeypatch, ticks):
    attempts, sleep = [], asyncio.sleep

    async def acquire() -> None:
        attempts.append(ticks.now)
        raise KafkaConnectionError

    async def passes(seconds: float) -> None:
        ticks.now += seconds
        await sleep(0)

    monkeypatch.setattr(clients.asyncio, "sleep", passes)
    with pytest.raises(EngineError, match="no broker for 60 s"):
        asyncio.run(through_outages(Progress("it"), acquire, nothing, 60_000_000))
    assert 59 <= attempts[-1] - attempts[0] <= 61 and len(attempts) > 10


def test_brokers_that_keep_an_epoch_are_warned_of_once(monkeypatch, caplog):
    async def start() -> None:
        """Start with an id at once."""

    clients._warn_of_repeats.cache_clear()
    epochs = [True, False, False]
    monkeypatch.setattr(clients, "new_epochs", lambda producer: epochs.pop(0))
    for expected in (0, 1, 1):
        asyncio.run(clients.start_producer(SimpleNamespace(start=start)))
        assert caplog.text.count("transaction.version below 2") == expected
    assert "records are then lost or counted twice" in caplog.text
    clients._warn_of_repeats.cache_clear()


def test_a_producer_that_was_given_up_is_an_outage():
    """A sender gets this error and must reopen, as after any other outage."""
    assert issubclass(IllegalOperation, patience.OUTAGES)


def test_an_answer_from_before_a_pause_does_not_show_a_rewound_log(monkeypatch):
    place, asked, clock = TopicPartition("log", 0), [], SimpleNamespace(now=100.0)

    class Ends:
        """The second answer waits while the process is suspended."""

        def __init__(self, *ends: int) -> None:
            self._ends = iter(ends)

        async def end_offsets(self, places):
            asked.append(clock.now)
            clock.now += 9.0 if len(asked) == 2 else 0.1
            return {place: next(self._ends)}

    async def wait(seconds: float) -> None:
        clock.now += seconds

    monkeypatch.setattr(clients.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(clients.asyncio, "sleep", wait)
    assert asyncio.run(clients.reached(Ends(4, 4, 7), {place: 7})) == {place: 7}
    asked.clear()
    with pytest.raises(RewoundError, match="log-0 ends before"):
        asyncio.run(clients.reached(Ends(4, 4, 4, 4), {place: 7}))
    assert len(asked) == 3

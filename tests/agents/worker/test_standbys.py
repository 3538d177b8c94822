"""Copies are given up whole or not at all, whatever a standby does when its shard comes here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager

import pytest
from aiokafka.structs import TopicPartition
from faust.types import TP
from hushstream.agents.worker import standbys
from hushstream.agents.worker.local_state import Shared
from hushstream.agents.worker.standbys import Standbys
from hushstream.errors import DamagedError, RewoundError

from .bench import until

ONE, TWO = TP("in", 0), TP("in", 1)


class State:
    """Stands for `LocalState`: a restore of ten lists, and a changelog that grows by itself."""

    def __init__(self, tp: TP, moved: Callable[[], None]) -> None:
        self.place = TopicPartition("log", tp.partition)
        self.moved = moved
        self.ready = False
        self.position = 0
        self.lists = 10
        self.did: list[str] = []
        self.damaged = False

    async def open(self) -> None:
        self.did.append("open")
        for _ in range(self.lists):
            await asyncio.sleep(0.001)
            self.moved()
        self.ready = True

    async def follow(self, client: object, end: int, thread: object) -> None:
        if self.damaged:
            raise DamagedError("a table is damaged")
        while self.position < end:
            self.did.append("begins a list")
            await asyncio.sleep(0.001)
            self.position += 1
            self.did.append("has written it")
            self.moved()

    def close(self, soon: bool = False) -> None:
        self.did.append("close")
        self.ready = False

    def set_aside(self, error: DamagedError) -> None:
        self.damaged = self.ready = False
        self.did.append("set aside")

    def forget(self) -> None:
        self.did.append("forget")


class Logs:
    """Ends of all changelogs, and how often a client was made."""

    def __init__(self) -> None:
        self.end = 0
        self.error: BaseException | None = None
        self.clients = 0

    @asynccontextmanager
    async def reader(self, kafka: object):
        self.clients += 1
        yield self

    async def reached(self, client: object, known: dict[TopicPartition, int]):
        error, self.error = self.error, None
        if error is not None:
            raise error
        return dict.fromkeys(known, self.end)


@pytest.fixture
def logs(monkeypatch) -> Logs:
    made = Logs()
    monkeypatch.setattr(standbys, "reader", made.reader)
    monkeypatch.setattr(standbys, "reached", made.reached)
    monkeypatch.setattr(standbys, "ROUND_SECONDS", 0.001)
    return made


@pytest.fixture
def shared(tmp_path) -> Shared:
    return Shared(*[None] * 8)  # type: ignore[arg-type]


class Running:
    """Standbys with made states, while their task runs."""

    def __init__(self, shared: Shared) -> None:
        self.states: dict[TP, State] = {}
        self.standbys = Standbys(shared, self._make)  # type: ignore[arg-type]

    def _make(self, tp: TP, moved: Callable[[], None]) -> State:
        self.states[tp] = State(tp, moved)
        return self.states[tp]

    async def __aenter__(self) -> Running:
        await self.standbys.match({ONE, TWO})
        self.task = asyncio.ensure_future(self.standbys.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])
        await self.standbys.close()


def test_a_copy_follows_its_changelog_until_its_shard_opens(shared, logs):
    async def body() -> None:
        async with Running(shared) as running:
            logs.end = 5
            await until(lambda: all(one.position == 5 for one in running.states.values()))
            state = await running.standbys.take(ONE)
            assert state is running.states[ONE] and state.ready
            logs.end = 9
            await until(lambda: running.states[TWO].position == 9)
            assert state.position == 5 and "close" not in running.states[ONE].did

    asyncio.run(body())


def test_a_list_that_is_being_written_is_written_before_a_copy_is_given_up(shared, logs):
    async def body() -> None:
        async with Running(shared) as running:
            state = running.states[ONE]
            await until(lambda: state.ready)
            logs.end = 1_000
            await until(lambda: state.did[-1] == "begins a list")
            assert await running.standbys.take(ONE) is state
            assert state.did[-1] == "has written it" and 0 < state.position < 1_000

    asyncio.run(body())


def test_half_of_a_restore_is_not_given(shared, logs):
    async def body() -> None:
        async with Running(shared) as running:
            state = running.states[ONE]
            state.lists = 10_000
            await until(lambda: state.did == ["open"] or running.states[TWO].ready)
            assert await running.standbys.take(ONE) is None
            assert state.did[-1] == "close" and not state.ready

    asyncio.run(body())


def test_nothing_is_given_for_a_shard_that_nobody_stood_by_for(shared, logs):
    async def body() -> None:
        async with Running(shared) as running:
            assert await running.standbys.take(TP("in", 7)) is None

    asyncio.run(body())


def test_a_damaged_copy_is_set_aside_and_restored(shared, logs):
    async def body() -> None:
        async with Running(shared) as running:
            state = running.states[ONE]
            await until(lambda: state.ready)
            state.damaged, logs.end = True, 3
            await until(lambda: state.position == 3)
            assert state.did[:4] == ["open", "set aside", "open", "begins a list"]

    asyncio.run(body())


def test_copies_of_shards_that_others_stand_by_for_are_closed(shared, logs):
    async def body() -> None:
        async with Running(shared) as running:
            await until(lambda: running.states[ONE].ready)
            await running.standbys.match({TWO})
            assert running.states[ONE].did[-2:] == ["close", "forget"]

    asyncio.run(body())


def test_a_changelog_that_ends_before_its_copy_ends_the_worker(shared, logs):
    """A copy is evidence of a rewound cluster, as an owner's table is."""

    async def body() -> None:
        async with Running(shared) as running:
            await until(lambda: running.states[ONE].ready)
            logs.error = RewoundError("log-0 ends before what this worker has read of it")
            with pytest.raises(RewoundError):
                await running.task

    asyncio.run(body())


def test_an_outage_is_waited_for(shared, logs, monkeypatch):
    async def body() -> None:
        async with Running(shared) as running:
            await until(lambda: running.states[ONE].ready)
            logs.error = ConnectionError()
            await until(lambda: running.standbys.progress.away)
            logs.end = 3
            await until(lambda: running.states[ONE].position == 3)
            assert logs.clients == 2
            await until(lambda: not running.standbys.progress.away)

    asyncio.run(body())

"""Standbys give up whole copies or none, whatever they do when the shard moves here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiokafka.structs import TopicPartition
from faust.types import TP
from hushstream.agents.snapshots.objects import Objects
from hushstream.agents.worker.metrics import OperatorMetrics
from hushstream.agents.worker.shared import Shared
from hushstream.agents.worker.tables import standbys
from hushstream.agents.worker.tables.local_state import LocalState
from hushstream.agents.worker.tables.standbys import Standbys
from hushstream.agents.worker.tables.uploads import Uploads
from hushstream.errors import ConfigError, DamagedError, RewoundError
from hushstream.topics.config.load import load
from prometheus_client import generate_latest

from ..bench import UNIT, Bench, applied, interval, until

ONE, TWO = TP("in", 0), TP("in", 1)


class State:
    """Stands for `LocalState`: a restore of ten lists, and a changelog that grows by itself."""

    def __init__(self, tp: TP, moved: Callable[[], None]) -> None:
        self.place = TopicPartition("log", tp.partition)
        self.name = f"log-{tp.partition}"
        self.moved = moved
        self.ready = False
        self.at = 0
        self.lists = 10
        self.did: list[str] = []
        self.damaged = self.unreadable = self.old = False

    @property
    def position(self) -> int:
        if self.unreadable:
            raise DamagedError("a table is damaged")
        return self.at

    def renew(self) -> None:
        self.did.append("renew")
        self.old = False

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
            self.at += 1
            self.did.append("has written it")
            self.moved()

    def close(self, soon: bool = False) -> None:
        self.did.append("close")
        self.ready = False

    def set_aside(self, error: DamagedError) -> None:
        self.damaged = self.unreadable = self.ready = False
        self.did.append("set aside")

    def forget(self) -> None:
        self.did.append("forget")

    @property
    def path(self) -> Path:
        return Path(f"{self.place.topic}-{self.place.partition}")


class Logs:
    """The ends of all changelogs, and the number of clients made."""

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


class Running:
    """Standbys with fake states, while their task runs."""

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


def test_a_worker_that_comes_back_waits_until_its_copies_are_near_their_ends(
    shared, logs, monkeypatch
):
    async def body() -> None:
        async with Running(shared) as running:
            logs.end = 50
            await running.standbys.warm({ONE}, 60.0)
            assert running.states[ONE].position == 50 and TWO not in running.standbys._copies
            monkeypatch.setattr(standbys, "SHORT_SECONDS", 0.0)  # each look takes longer than this
            await running.standbys.warm({TWO}, 0.2)  # for at most 0.2 s
            assert running.states[TWO].ready

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


@pytest.mark.parametrize("shown", ["damaged", "unreadable"])
def test_a_damaged_copy_is_set_aside_and_restored(shared, logs, shown):
    async def body() -> None:
        async with Running(shared) as running:
            state = running.states[ONE]
            await until(lambda: state.ready)
            setattr(state, shown, True)
            logs.end = 3
            await until(lambda: state.at == 3)
            assert state.did[:4] == ["open", "set aside", "open", "begins a list"]

    asyncio.run(body())


def test_copies_of_shards_that_others_stand_by_for_are_closed(shared, logs):
    async def body() -> None:
        async with Running(shared) as running:
            await until(lambda: running.states[ONE].ready)
            await running.standbys.match({TWO})
            assert running.standbys.folders == [running.states[TWO].path]
            assert running.states[ONE].did[-2:] == ["close", "forget"]

    asyncio.run(body())


def test_a_changelog_that_ends_before_its_copy_ends_the_worker(shared, logs):
    """A copy is evidence of a rewound cluster, like an owner's table."""

    async def body() -> None:
        async with Running(shared) as running:
            await until(lambda: running.states[ONE].ready)
            logs.error = RewoundError("log-0 ends before what this worker has read of it")
            with pytest.raises(RewoundError):
                await running.task

    asyncio.run(body())


def test_a_copy_without_new_rows_tells_now_and_then_that_it_is_up_to_date(shared, logs):
    """Otherwise the changelog might lose deletions after that time, and the copy would restart."""

    async def body() -> None:
        async with Running(shared) as running:
            state = running.states[ONE]
            await until(lambda: state.ready)
            state.old = True
            await until(lambda: not state.old)
            assert state.did == ["open", "renew"]

    asyncio.run(body())


@pytest.mark.parametrize("spoilt", [False, True])
def test_a_copy_on_an_empty_disk_begins_with_a_snapshot(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture, spoilt: bool
) -> None:
    """Unless the snapshot must not be used. In both cases the copy then follows its changelog."""
    caplog.set_level("INFO")
    bench.store = Objects(f"file://{tmp_path / 'store'}")

    async def body() -> None:
        shard = bench.shard()
        await shard.open()
        here = bench.copies()
        assert here is not None
        uploads = Uploads(here, 0.0, {shard.tp: shard}, OperatorMetrics())
        for end in (5, 6, 7):  # the second step writes the seal, the third ends the snapshot
            shard.deliver(interval(shard.wanted, end))
            await applied(shard, end)
            await uploads.round()
        if spoilt:
            for part in (tmp_path / "store").rglob("000000"):
                part.write_bytes(part.read_bytes()[:-1])
        behind = bench.shard("two")  # only its table is opened
        state = behind.table

        def make(tp: TP, moved: Callable[[], None]) -> LocalState:
            state.moved = moved
            return state

        copies = Standbys(behind._shared, make)
        await copies.match({shard.tp})
        task = asyncio.ensure_future(copies.run())
        await until(lambda: state.ready)
        shard.deliver(interval(shard.wanted, 9))
        await applied(shard, 9)
        await until(lambda: state.table.get_many([b"n"]) == [b"9"])
        assert await copies.take(shard.tp) is state
        assert state.table.get_many([UNIT]) == [b"9"]
        task.cancel()
        await asyncio.wait([task])
        state.close()
        await copies.close()
        await shard.close()

    asyncio.run(body())
    assert bench.failures == []
    assert ("goes on from its snapshot" in caplog.text) is not spoilt


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


def test_the_operator_sees_how_far_copies_are_behind(shared, logs):
    def series() -> str:
        return generate_latest(shared.metrics.series).decode()

    async def body() -> None:
        async with Running(shared) as running:
            logs.end = 500
            await until(lambda: 'lag_records{store="log-0"} 500.0' in series())
            await until(lambda: 'lag_records{store="log-0"} 0.0' in series())
            await running.standbys.take(ONE)
            assert "log-0" not in series() and "log-1" in series()

    asyncio.run(body())


@pytest.mark.parametrize("number", ["-1", "2", "1.5"])
def test_more_than_one_standby_and_less_than_none_are_refused(tmp_path, number):
    path = tmp_path / "hush.toml"
    path.write_text(f"[engine]\nstandbys = {number}\n")
    with pytest.raises(ConfigError, match="standbys"):
        load(path, environ={})

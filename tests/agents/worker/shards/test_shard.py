"""A shard: its own positions, one transaction, the table written after it, zombies fenced.

Covers: agents/worker/shards/report.py, agents/worker/shards/spec.py
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import hushstream.agents.clock.wall_time as wall_time
import hushstream.agents.worker.shards.shard as shard_module
import hushstream.agents.worker.tables.local_state as local_state
from aiokafka.errors import ProducerFenced
from hushstream.agents.worker.shards.shard import Shard
from hushstream.errors import DamagedError, EngineError

from ..bench import UNIT, applied, interval, unopened, until


def test_steps_are_published_stored_and_taken_up_by_the_next_owner(bench):
    async def run() -> None:
        shard = bench.shard()
        await shard.open()
        shard.deliver(interval(0, 5))
        await applied(shard, 5)
        shard.deliver(interval(5, 9))
        await applied(shard, 9)
        await shard.close()
        assert bench.rows()[b"n"] == b"9"
        again = bench.shard()  # the same folder
        await again.open()
        assert (again.applied, again.wanted) == (9, 9)
        await again.close()
        other = bench.shard("two")  # an empty folder, restored from the changelog
        await other.open()
        assert (other.applied, other._state.table.get_many([b"n", UNIT])) == (9, [b"9", b"9"])
        await other.close()

    asyncio.run(run())
    assert bench.published() == [b"%d" % n for n in range(9)]
    assert bench.failures == []


def test_a_shard_that_was_closed_leaves_no_series(bench):
    async def run() -> None:
        shard = bench.shard()
        await shard.open()
        shard.deliver(interval(0, 5))
        await applied(shard, 5)
        await shard.measure(5)

        def series() -> set[str]:
            found = shard._shared.metrics.series.collect()
            return {s.labels["store"] for m in found for s in m.samples if "store" in s.labels}

        names = {f"{bench.name}-log-0", "in-0", f"{bench.name}-0"}
        assert series() and series() <= names
        await shard.close()
        await shard.measure(5)  # upkeep may call it at this time
        assert series() == set()

    asyncio.run(run())


def test_the_lag_counts_what_the_topic_has_and_the_last_beat_counts_without_a_step(bench):
    """What was fetched says nothing of a backlog: fetching pauses at `MOST` records."""

    async def run() -> None:
        shard = bench.shard()
        await shard.open()
        shard.deliver(interval(0, 5))
        await applied(shard, 5)
        metrics = shard._shared.metrics

        def beats() -> list[float]:
            (gauge,) = metrics.watermark.collect()
            return [sample.value for sample in gauge.samples]

        for end, lag in ((0, 0), (5, 0), (200_005, 200_000)):
            await shard.measure(end)
            assert metrics.lag.labels(store=f"{bench.name}-0")._value.get() == lag
        shard._stage.watermark = {"p": 7_000_000}
        await shard.measure(5)
        assert beats() == [7]
        await shard.close()
        assert beats() == []

    asyncio.run(run())


def test_the_first_step_begins_where_the_input_did(bench):
    async def run() -> None:
        shard = bench.shard(begin=40)
        await shard.open()
        assert shard.wanted == 40
        shard.deliver(interval(40, 43))
        await applied(shard, 43)
        await shard.close()
        again = bench.shard(begin=40)
        await again.open()
        assert again.wanted == 43
        await again.close()

    asyncio.run(run())


def test_a_step_that_the_product_itself_refuses_reaches_the_worker(bench, monkeypatch):
    """Every retry would fail as well, and a shard that merely went quiet would look alive."""

    async def refuses(*_: Any) -> int:
        raise EngineError("a record is larger than the broker takes")

    async def run() -> None:
        shard = bench.shard()
        await shard.open()
        with monkeypatch.context() as broken:
            broken.setattr(shard_module, "transact", refuses)
            shard.deliver(interval(0, 1))
            await until(lambda: bool(bench.failures))
        assert shard.applied == 0
        await shard.close()

    asyncio.run(run())
    (error,) = bench.failures
    assert isinstance(error, EngineError) and "larger than the broker takes" in str(error)


def test_whatever_a_stage_raises_reaches_the_worker(bench):
    async def run() -> None:
        shard = bench.shard()
        await shard.open()

        def broken(*_: Any) -> None:
            raise ZeroDivisionError("a bug")

        shard._stage.step = broken
        shard.deliver(interval(0, 1))
        await until(lambda: bool(bench.failures))
        await shard.close()

    asyncio.run(run())
    (error,) = bench.failures
    assert isinstance(error, EngineError) and isinstance(error.__cause__, ZeroDivisionError)
    assert "a bug" not in str(error)  # the error's text may quote records


def test_a_shard_that_is_closed_while_it_reopens_leaves_its_folder_and_its_new_owner_alone(
    bench, monkeypatch
):
    """A fenced shard waits; a rebalance closes it meanwhile and returns the partition later."""
    monkeypatch.setattr(shard_module, "FENCED_SECONDS", 600.0)  # a close does not wait that long

    async def run() -> None:
        first, second = bench.shard(), bench.shard("two")
        fenced, reopen = asyncio.Event(), first._reopen

        async def noted(error: BaseException) -> None:
            fenced.set()
            await reopen(error)

        monkeypatch.setattr(first, "_reopen", noted)
        await first.open()
        await second.open()
        first.deliver(interval(0, 3))  # fails, because it is fenced
        await asyncio.wait_for(fenced.wait(), 150)
        await asyncio.wait_for(first.close(patience=300), 150)
        second.deliver(interval(0, 5))  # it still owns the partition
        await applied(second, 5)
        await second.close()

    asyncio.run(run())
    assert bench.failures == [] and bench.rows("two")[b"n"] == b"5"


def test_a_shard_that_leaves_ends_when_it_is_fenced_and_leaves_its_new_owner_alone(bench):
    async def run() -> None:
        first, second = bench.shard(), bench.shard("two")
        await first.open()
        first.leave()
        first.deliver(interval(0, 3))
        await applied(first, 3)
        assert not first.left
        await second.open()
        assert (second.applied, first.left) == (3, False)  # its next step will tell it
        first.deliver(interval(3, 5))
        await until(lambda: first.left)
        first.doubt()  # the new owner has trimmed records that were wanted here
        await first.close()
        second.deliver(interval(3, 6))  # it still owns the partition
        await applied(second, 6)
        await second.close()

    asyncio.run(run())
    assert bench.failures == [] and bench.rows("two")[b"n"] == b"6"
    assert bench.published() == [b"%d" % n for n in range(6)]


def test_a_shard_that_leaves_opens_never_again(tmp_path, monkeypatch):
    """Even if its table is damaged or its next record is gone."""

    async def run(happens: Callable[[Shard], Awaitable[object] | None]) -> bool:
        shard = unopened(tmp_path).shard()
        opened: list[int] = []

        async def noted() -> None:
            opened.append(1)

        monkeypatch.setattr(shard, "_reacquire", noted)
        monkeypatch.setattr(shard._state, "set_aside", lambda error: None)
        shard._task = asyncio.ensure_future(shard._run())
        shard.leave()
        if (waiting := happens(shard)) is not None:
            await waiting
        await until(lambda: shard.left)
        return not opened

    assert asyncio.run(run(lambda shard: shard.doubt()))
    assert asyncio.run(run(lambda shard: shard._restore(DamagedError("a block"))))
    assert asyncio.run(run(lambda shard: shard._reopen(ProducerFenced())))


def test_a_shard_that_leaves_while_brokers_are_away_is_not_opened_after_that(tmp_path, monkeypatch):
    """Another worker has taken over by then, and its producer would be fenced."""

    async def run() -> None:
        shard, tries = unopened(tmp_path).shard(), list[int]()

        async def away() -> None:
            assert not tries, "it was tried again"
            tries.append(1)
            shard.leave()
            raise TimeoutError

        monkeypatch.setattr(shard, "_acquire", away)
        await asyncio.wait_for(shard.open(), 20)
        assert tries == [1] and shard.left and shard._task is None
        await shard.open()  # as if it had to leave before it began
        assert tries == [1]
        await shard.close()

    asyncio.run(run())


def test_a_shard_that_is_cancelled_while_it_restores_lets_go_of_its_folder(bench, monkeypatch):
    async def never(*_: Any) -> Any:
        await asyncio.Event().wait()
        yield [], 0, 0

    async def run() -> None:
        shard = bench.shard()
        with monkeypatch.context() as slow:
            slow.setattr(local_state, "read_to_end", never)
            opening = asyncio.create_task(shard.open())
            await until(bench.path().exists)
            await asyncio.sleep(0.2)
            opening.cancel()
            await asyncio.wait([opening])
        await shard.close()
        again = bench.shard()
        await again.open()  # the folder is not in use
        await again.close()

    asyncio.run(run())
    assert bench.failures == []


def test_a_shard_in_doubt_opens_again_and_asks_for_what_it_then_wants(bench):
    """While it slept, another worker applied more records, and the topic was trimmed."""

    async def run() -> None:
        sleeper = bench.shard()
        await sleeper.open()
        sleeper.deliver(interval(0, 3))
        await applied(sleeper, 3)
        other = bench.shard("two")
        await other.open()
        other.deliver(interval(3, 9))
        await applied(other, 9)
        await other.close()
        assert sleeper.wanted == 3
        sleeper.doubt()
        await until(lambda: bench.seeks == [9])
        assert (sleeper.applied, sleeper.wanted) == (9, 9)
        await sleeper.close()

    asyncio.run(run())
    assert bench.failures == []


def test_a_wall_clock_that_is_set_back_delays_no_release(tmp_path, monkeypatch, caplog):
    async def run() -> None:
        shard = unopened(tmp_path).shard()
        shard._shared.wall.now()
        not_before = int(time.time() * 1e6) + 200_000
        real = time.time
        monkeypatch.setattr(wall_time.time, "time", lambda: real() - 3600)
        await asyncio.wait_for(shard._until(not_before), 120)

    asyncio.run(run())
    assert "was set back by" in caplog.text


def test_a_start_with_a_slow_wall_clock_follows_the_clock_log(tmp_path):
    async def run() -> None:
        shard = unopened(tmp_path).shard()
        ahead = int(time.time() * 1e6) + 3_600_000_000
        shard._shared.wall.reach(ahead)  # as if it had read a trigger of that time
        await asyncio.wait_for(shard._until(ahead), 120)

    asyncio.run(run())


def test_a_release_waits_for_its_public_time(tmp_path, monkeypatch):
    """And no longer: it reads the clock until the clock shows that time."""
    monkeypatch.setattr(shard_module, "SLICE_SECONDS", 0.001)

    async def run() -> None:
        shard = unopened(tmp_path).shard()
        moments = iter(range(100))
        monkeypatch.setattr(shard._shared.wall, "now", lambda: next(moments))
        await asyncio.wait_for(shard._until(7), 120)
        assert next(moments) == 8

    asyncio.run(run())

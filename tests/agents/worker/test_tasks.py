"""A long-lived task that ends for any reason stops the worker, unless it was asked to end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP
from hushstream.agents.clock.log import ClockLog
from hushstream.agents.clock.owner import ClockOwner
from hushstream.agents.clock.wall_time import Settling
from hushstream.agents.kafka.progress import Progress
from hushstream.agents.worker.health.joining import Joining
from hushstream.agents.worker.log_follower import Hearers, LogFollower
from hushstream.agents.worker.owned_clock import OwnedClock
from hushstream.agents.worker.tasks import Tasks
from hushstream.agents.worker.worker import Worker
from hushstream.cli.group import exit_code
from hushstream.errors import EngineError, HushError, LedgerError
from hushstream.topics.config.model import Kafka

from ...support import NAMES
from .bench import unopened


async def returns(*_: Any) -> None:
    """End at once."""


async def raises(*_: Any) -> None:
    raise RuntimeError("a bug")


async def cancels(*_: Any) -> None:
    """aiokafka does this when it is closed after an outage, although the task was not cancelled."""
    raise asyncio.CancelledError


ENDS = pytest.mark.parametrize(
    ("body", "why"),
    [(returns, "returned"), (raises, "RuntimeError"), (cancels, "cancelled from outside")],
)


async def nothing(*_: Any, **__: Any) -> None:
    """Stands for a call that needs a broker."""


async def endless(*_: Any) -> None:
    await asyncio.Event().wait()


def check(failures: list[BaseException], name: str, why: str) -> None:
    (error,) = failures
    assert isinstance(error, HushError) and exit_code(error) == 4
    assert str(error).startswith(f"{name} stopped while the worker was running") and why in str(
        error
    )


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@ENDS
def test_the_end_of_the_log_follower_stops_the_worker(monkeypatch, body, why):
    async def run() -> None:
        failures: list[BaseException] = []
        made = LogFollower(
            Kafka(), NAMES, ClockLog({}), {}, {}, Hearers(lambda: None, failures.append)
        )
        monkeypatch.setattr(made, "_catch_up", nothing)
        monkeypatch.setattr(made, "_run", body)
        await made.open()
        await settle()
        check(failures, "following the clock", why)
        await made.close()

    asyncio.run(run())


@ENDS
def test_the_end_of_a_shard_stops_the_worker(monkeypatch, tmp_path, body, why):
    async def run() -> None:
        bench = unopened(tmp_path)
        shard = bench.shard()
        monkeypatch.setattr(shard, "_acquire", nothing)
        monkeypatch.setattr(shard, "_run", body)
        await shard.open()
        await settle()
        check(bench.failures, "shard in-0", why)
        await shard.close()

    asyncio.run(run())


def worker() -> Any:
    """A worker without a broker: it starts, watches and stops its tasks."""
    made = Worker.__new__(Worker)
    made.error, made.stopped, made.shards = None, asyncio.Event(), {}
    made._restoring = set()
    made.health, made._loop, made._member = SimpleNamespace(serving=False), None, ""
    made._leaving = False
    made._tasks, made._standbys, made._followed, made._joined = Tasks(made.fail), None, True, True
    made._uploads = made._uploading = None
    setup: Any = SimpleNamespace(names=NAMES)
    unused: Any = None
    made._clock = OwnedClock(setup, unused, made._tasks, unused, unused, Settling(0), lambda: True)
    made._joining, made._opening = Joining(60_000_000), asyncio.Lock()
    made.app = SimpleNamespace(
        consumer=SimpleNamespace(
            group_error=lambda: None, member_id="a", serve=lambda _: None, hurry=asyncio.Event()
        ),
        crash_reason=None, should_stop=False, start=nothing, stop=nothing,
    )  # fmt: skip
    made._shared = SimpleNamespace(room=SimpleNamespace(among=0))
    made._rests = SimpleNamespace(pause=float)
    made._upkeep = SimpleNamespace(run=endless, watch_topics=endless, prune_clock=lambda: None)
    return made


async def opened() -> bool:
    return True


def clock(run: Callable[..., Awaitable[None]]) -> Any:
    made = ClockOwner.__new__(ClockOwner)
    made.open, made.close = opened, nothing  # type: ignore[method-assign]
    made.progress = Progress("the clock")
    made.run = run  # type: ignore[assignment, method-assign]
    return made


@ENDS
def test_the_end_of_the_clock_stops_the_worker(body, why):
    async def run() -> None:
        made = worker()
        made._clock._make = lambda: clock(body)
        await made._match({made._clock.tp})
        await settle()
        assert made.stopped.is_set()
        check([made.error], "the clock", why)

    asyncio.run(run())


def test_an_assignment_that_fails_stops_the_worker_and_never_reaches_faust():
    async def run() -> None:
        made, error = worker(), LedgerError("the ledger is broken")

        async def match(_: object) -> None:
            raise error

        made._opening, made._match = asyncio.Lock(), match
        made.app.consumer.assignment = set
        held = asyncio.create_task(made._on_assigned())
        await settle()
        assert made.stopped.is_set() and made.error is error and not made._opening.locked()
        assert not held.done()  # Faust would crash on the error before it is stopped
        held.cancel()  # as when the application stops
        await asyncio.wait([held])
        assert held.cancelled()

    asyncio.run(run())


def test_only_what_is_opened_or_a_broker_that_is_away_excuses_a_consumer_that_stands():
    made = worker()
    made.app.progress, follower = Progress("the consumer"), Progress("the follower")
    made._follower = SimpleNamespace(progress=follower)
    assert made._look() is None and made.app.progress.resting
    for excuse in (made._restoring.add, lambda _: follower.outage(True)):
        excuse(1)
        assert made._look() is None and not made.app.progress.resting
        made.app.progress.rest()
        made._restoring.clear()
        follower.outage(False)
    made._clock._owner = clock(returns)  # it counts as opening until it beats
    assert made._look() is None and not made.app.progress.resting


@ENDS
def test_the_end_of_upkeep_stops_the_worker(body, why):
    async def run() -> None:
        made = worker()
        made._upkeep.run = body
        with pytest.raises(EngineError, match="upkeep stopped") as caught:
            await asyncio.wait_for(made.run(), 120)
        check([caught.value], "upkeep", why)

    asyncio.run(run())


def test_a_topic_that_is_gone_ends_a_start_that_would_wait_for_it():
    async def gone(fail: Any) -> None:
        fail(EngineError("topic p.cells is gone"))
        await endless()

    async def run() -> None:
        made = worker()
        made.app.start, made._upkeep.watch_topics = endless, gone
        with pytest.raises(EngineError, match="is gone"):
            await asyncio.wait_for(made.run(), 20)

    asyncio.run(run())


def test_a_task_that_is_stopped_or_released_may_end():
    async def run() -> None:
        failures: list[BaseException] = []
        tasks, going = Tasks(failures.append), asyncio.Event()
        await tasks.stop(tasks.start("one", forever(going)))
        released = tasks.start("two", forever(going))
        tasks.release(released)
        going.set()
        await released
        assert failures == []

    asyncio.run(run())


async def forever(end: asyncio.Event) -> None:
    await end.wait()


def test_errors_of_our_own_keep_their_text_and_exit_code():
    async def breaks() -> None:
        raise LedgerError("the ledger is broken")

    async def run() -> None:
        failures: list[BaseException] = []
        Tasks(failures.append).start("the clock", breaks())
        await settle()
        assert [str(f) for f in failures] == ["the ledger is broken"]
        assert exit_code(failures[0]) == 3  # type: ignore[arg-type]

    asyncio.run(run())


def test_a_cancellation_that_reaches_the_worker_is_told():
    made = worker()
    made.fail(asyncio.CancelledError())
    assert isinstance(made.error, EngineError) and "cancelled from outside" in str(made.error)


# -- membership -----------------------------------------------------------------------------------


def test_a_worker_that_the_group_took_for_dead_opens_what_it_kept_again():
    """Another worker may have owned its shards meanwhile and trimmed what they want next."""

    async def run() -> None:
        made, closed, opened = worker(), [], []
        place = TP("in", 0)

        async def close() -> None:
            closed.append(place)

        async def open_shard(tp: TP) -> None:
            opened.append(tp)
            made.shards[tp] = SimpleNamespace(
                close=close, forget_pause=lambda: None, stir=lambda: None
            )

        made._open_shard = open_shard
        made._follower = SimpleNamespace(recall=nothing)
        made._namesake = SimpleNamespace(changed=lambda: None)
        made._topology = SimpleNamespace(find=lambda topic, partition: topic)
        await made._match({place})
        await made._match({place})  # a rebalance in which this worker took part
        assert (opened, closed) == ([place], [])
        made.app.consumer.member_id = "b"
        await made._match({place})
        assert (opened, closed) == ([place, place], [place])
        await made._match({place})
        assert len(opened) == 2

    asyncio.run(run())


def test_shards_that_stay_are_served_before_others_are_open():
    async def run() -> None:
        made, seen = worker(), list[object]()
        kept, new, gone = TP("in", 0), TP("in", 1), TP("in", 2)

        def shard(tp: TP) -> Any:
            async def close() -> None:
                seen.append(("closed", tp.partition))

            return SimpleNamespace(close=close, forget_pause=lambda: None, stir=lambda: None)

        async def open_shard(tp: TP) -> None:
            seen.append(("opened", tp.partition))
            made.shards[tp] = shard(tp)

        def serve(partitions: set[TP]) -> None:
            seen.append(("served", *sorted(tp.partition for tp in partitions)))

        made.shards = {kept: shard(kept), gone: shard(gone)}
        made.app.consumer.serve, made._open_shard = serve, open_shard
        made._follower = SimpleNamespace(recall=nothing)
        made._topology = SimpleNamespace(find=lambda topic, partition: topic)
        await made._match({kept, new})
        assert seen == [("served", 0), ("closed", 2), ("opened", 1), ("served", 0, 1)]

    asyncio.run(run())


def test_a_trigger_ends_a_pause_of_fetching():
    made = worker()
    made._joined, made._rests.pause = True, lambda: 1.0
    made._wake()  # by a beat
    assert not made.app.consumer.hurry.is_set()
    made._rests.pause = float
    made._wake()
    assert made.app.consumer.hurry.is_set()


def test_shards_that_are_being_opened_leave_too():
    """Otherwise a shard that waits for brokers would take its partition back from the new owner."""

    async def run() -> None:
        made, left, go = worker(), list[TP](), asyncio.Event()

        class Waiting:
            def __init__(self, tp: TP, *_: Any) -> None:
                self.tp, self.open, self.leave = tp, go.wait, lambda: left.append(tp)

        made._maker = SimpleNamespace(begin=lambda tp: asyncio.sleep(0), shard=Waiting)
        one, two = TP("in", 0), TP("in", 1)
        opening = [asyncio.create_task(made._open_shard(one))]
        await settle()
        assert [*made._served()] == [one, made._clock.tp] and left == []
        opening.append(asyncio.create_task(made._open_shard(two)))
        await asyncio.sleep(0)  # it is about to learn its place
        made._leaving = True
        await settle()
        assert left == [two]  # it learned this by itself
        go.set()
        await asyncio.gather(*opening)
        await made._open_shard(TP("in", 2))
        assert [*made.shards] == [one, two]

    asyncio.run(run())


@pytest.mark.parametrize("copies", [True, False])
def test_a_worker_beside_standbys_leaves_its_group_before_it_stops(copies: bool):
    """Otherwise a named worker stays in the group, and its shards wait for its return."""

    async def run() -> list[str]:
        made, seen = worker(), list[str]()

        async def leave() -> None:
            seen.append("leaves")

        async def stop() -> None:
            seen.append("stops")

        async def commit() -> None:
            seen.append("tells")

        made.app.stop, made.app.consumer.leave, made.app.consumer.commit = stop, leave, commit
        made._namesake, made._claimed = SimpleNamespace(others=lambda: True), []
        made._standbys = SimpleNamespace() if copies else None
        made.health.serving = True
        asyncio.get_running_loop().call_later(0.01, made.stopped.set)
        await asyncio.wait_for(made.run(), 60)
        return seen

    assert asyncio.run(run()) == ["leaves", "tells", "stops"][not copies :]

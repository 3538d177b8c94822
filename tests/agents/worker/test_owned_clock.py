"""The clock on its owner: opened once, watched from its opening on, and reported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hushstream.agents.clock.ledger import Ledger
from hushstream.agents.clock.wall_time import Settling
from hushstream.agents.kafka.progress import Progress
from hushstream.agents.worker import owned_clock
from hushstream.agents.worker.owned_clock import OwnedClock
from hushstream.agents.worker.tasks import Tasks
from hushstream.topics.records import ClockRecord, Retired, Skipped

from ...support import NAMES, ORIGIN, deployment, trigger

(P,) = deployment().pipelines


class Beating:
    """A clock without a broker that notes the calls to it."""

    def __init__(self, seen: list[tuple[str, bool, bool]]) -> None:
        self.progress = Progress("the clock")
        self.seen = seen
        self.of: OwnedClock | None = None

    def note(self, done: str) -> None:
        assert self.of is not None
        self.seen.append((done, self.of.owned, self.of.opening))

    async def open(self) -> bool:
        self.note("open")
        return True

    async def run(self) -> None:
        self.note("run")
        await asyncio.Event().wait()

    async def close(self) -> None:
        self.note("close")


def owned(
    tasks: Any = None, public: Any = None, read: Callable[[], bool] = lambda: True
) -> OwnedClock:
    setup: Any = SimpleNamespace(names=NAMES)
    unused: Any = None
    return OwnedClock(setup, unused, tasks, public, unused, Settling(0), read)


def test_the_clock_is_opened_once_and_can_be_owned_again(monkeypatch):
    async def run() -> None:
        failures: list[BaseException] = []
        clock, seen = owned(Tasks(failures.append)), []

        def make() -> Beating:
            made = Beating(seen)
            made.of = clock
            return made

        monkeypatch.setattr(clock, "_make", make)
        assert (clock.owned, clock.opening, clock.progress) == (False, False, [])
        for _ in range(2):
            for _ in range(3):  # rebalances that leave the clock here
                await clock.open()
                await asyncio.sleep(0)
            assert (clock.owned, clock.opening, len(clock.progress)) == (True, False, 1)
            await clock.close()
            assert (clock.owned, clock.opening, clock.progress) == (False, False, [])
        await clock.close()  # a clock that is not owned is not closed
        once = [("open", True, True), ("run", True, False), ("close", True, True)]
        assert seen == once * 2 and failures == []

    asyncio.run(run())


async def begun(seen: list[Any]) -> None:
    for _ in range(6_000):
        if len(seen) > 1:
            return
        await asyncio.sleep(0.01)


def test_the_clock_is_fenced_at_once_and_beats_when_the_shards_here_have_read(monkeypatch):
    async def run() -> None:
        monkeypatch.setattr(owned_clock, "LOOK_SECONDS", 0.01)
        for patience, expected in ((60.0, False), (0.05, True)):
            monkeypatch.setattr(owned_clock, "READ_SECONDS", patience)
            able, seen = [False], []
            clock = owned(Tasks(lambda error: None), read=lambda able=able: able[0])
            made = Beating(seen)
            made.of = clock
            monkeypatch.setattr(clock, "_make", lambda made=made: made)
            await clock.open()
            await (begun(seen) if expected else asyncio.sleep(0.5))
            assert [done for done, *_ in seen] == ["open", "run"][: 1 + expected]
            assert clock.owned and not clock.opening
            able[0] = True
            await begun(seen)
            assert [done for done, *_ in seen] == ["open", "run"]
            await clock.close()

    asyncio.run(run())


def test_a_clock_that_leaves_beats_until_it_is_fenced_and_stops_no_worker(monkeypatch):
    async def run() -> None:
        failures, fenced = list[BaseException](), asyncio.Event()
        clock = owned(Tasks(failures.append))
        assert clock.left  # it is not owned
        clock.leave()

        class Leaving(Beating):
            leaving = False

            async def run(self) -> None:
                await fenced.wait()

        made = Leaving([])
        made.of = clock
        monkeypatch.setattr(clock, "_make", lambda: made)
        await clock.open()
        clock.leave()
        await asyncio.sleep(0.01)
        assert made.leaving and not clock.left
        fenced.set()
        await asyncio.sleep(0.01)
        assert clock.left and failures == []
        await clock.close()

    asyncio.run(run())


def test_a_clock_that_was_left_before_it_was_open_never_beats(monkeypatch):
    async def run() -> None:
        failures, seen = list[BaseException](), list[Any]()
        clock = owned(Tasks(failures.append))

        class Left(Beating):
            leaving = False

            async def open(self) -> bool:
                clock.leave()
                return not self.leaving

        made = Left(seen)
        made.of = clock
        monkeypatch.setattr(clock, "_make", lambda: made)
        await clock.open()
        assert clock.left
        await clock.close()
        assert seen == [("close", True, True)] and failures == []

    asyncio.run(run())


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (trigger(P, 1, [5]), "triggered"),
        (Retired("p", 3, ORIGIN), "retired"),
        (Skipped("p", 0, 0, ORIGIN), "refused"),
    ],
)
def test_each_record_of_the_clock_is_public_and_so_is_what_was_spent(
    record: ClockRecord, told: str
) -> None:
    public, ledger = SimpleNamespace(said=[]), Ledger()
    for name in ("triggered", "retired", "refused", "spent"):
        setattr(public, name, lambda *given, name=name: public.said.append((name, *given)))
    ledger.take(ledger.next("genesis", 1, {"genesis": "abcdef"}).encode())
    owned(public=public)._written(P, record, ledger)
    said = {"triggered": (P, record), "retired": (P, 3), "refused": (P,)}
    assert public.said == [(told, *said[told]), ("spent", P, ledger)]

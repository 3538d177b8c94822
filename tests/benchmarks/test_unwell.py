"""The watch of a faulted run: silent workers are restarted, deliberately stopped ones are not."""

from __future__ import annotations

import random
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
if str(BENCHMARKS) not in sys.path:
    sys.path.append(str(BENCHMARKS))

import _unwell  # noqa: E402
from _chaos import Monkey  # noqa: E402
from _unwell import TOLD, Watch  # noqa: E402


class Clock:
    """The time, plus seconds that a test added."""

    def __init__(self) -> None:
        self.added = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.added


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(_unwell, "time", made)
    monkeypatch.setattr(_unwell, "GAP", 1e9)  # a moved clock is not taken for sleep
    return made


@pytest.fixture
def watch(clock: Clock) -> Iterator[Watch]:
    made = Watch(silence=300, start=3600)
    yield made
    made.close()


def heard(watch: Watch, clock: Clock, member: str) -> bool:
    """Whether a worker has been heard: it is then due much earlier than a starting one."""
    return watch._due[member] < clock.monotonic() + 1000


def say(address: str, text: str = "WATCHDOG=1") -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.sendto(text.encode(), address)


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 150
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_worker_that_falls_silent_is_unwell_and_one_that_starts_is_not(watch, clock):
    told = watch.began("w1")
    assert told["WATCHDOG_USEC"] == "300000000"
    clock.added += 400
    assert not watch.unwell("w1") and not watch.unwell("another")  # it has sent nothing yet
    say(told["NOTIFY_SOCKET"])
    until(lambda: heard(watch, clock, "w1"))
    assert not watch.unwell("w1")
    clock.added += 400
    assert watch.unwell("w1")
    watch.excuse("w1")  # like a paused one
    assert not watch.unwell("w1")
    clock.added += 400
    assert watch.unwell("w1")
    again = watch.began("w1")
    assert again == told and not watch.unwell("w1")
    say(told["NOTIFY_SOCKET"], "READY=1")
    time.sleep(0.6)  # this is not a sign of life, and must not count as one
    assert not heard(watch, clock, "w1") and not watch.unwell("w1")


def test_it_is_ended_and_started_and_its_own_words_are_kept(watch, clock, tmp_path):
    done: list[str] = []
    log = tmp_path / "w1.log"
    log.write_text(f"one\nERROR the clock {TOLD} for 90 s: not live\ntwo\n")
    child = SimpleNamespace(returncode=None)

    def kill(name: str) -> None:
        done.append(f"kill {name}")
        del local.workers[name]

    local = SimpleNamespace(
        workers={"w1": child, "w2": child}, log=lambda name: log, kill=kill,
        start=lambda name: done.append(f"start {name}"),
    )  # fmt: skip
    monkey = Monkey(local, None, random.Random(1), _watch=watch)  # type: ignore[arg-type]
    monkey._stopped.add("w2")  # paused by a fault, so silence is expected
    for name in local.workers:
        say(watch.began(name)["NOTIFY_SOCKET"])
    until(lambda: all(heard(watch, clock, name) for name in local.workers))
    monkey.look()
    assert done == []
    clock.added += 400
    monkey.look()
    assert done == ["kill w1", "start w1"]
    assert monkey.unwell == [f"worker w1: ERROR the clock {TOLD} for 90 s: not live"]
    clock.added += 400
    monkey.look()
    assert len(monkey.unwell) == 1

"""A stop beside standbys: leave the group first, and serve everything until others take over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError
from faust.exceptions import ConsumerNotStarted
from faust.types import TP
from hushstream.agents.worker import leaving
from hushstream.agents.worker.leaving import (
    WARM_SECONDS,
    Leaver,
    come_back,
    hand_over,
    tell_positions,
)
from hushstream.errors import OutageError


class Served:
    """Something that another worker takes over after some looks."""

    def __init__(self, seen: list[str], looks: int) -> None:
        self.seen, self.looks = seen, looks
        self.leaving = False

    def leave(self) -> None:
        if not self.leaving:
            self.seen.append("leave")
        self.leaving = True

    @property
    def left(self) -> bool:
        self.looks -= 1
        return self.looks < 0


class Group:
    """A consumer in a group."""

    def __init__(self, seen: list[str], error: Exception | None = None) -> None:
        self.seen, self.error = seen, error

    async def leave(self) -> None:
        self.seen.append("group")
        if self.error is not None:
            raise self.error


def run(group: Any, served: dict[str, Leaver], others: bool | Exception = True) -> None:
    def asked() -> bool:
        if isinstance(others, Exception):
            raise others
        return others

    asyncio.run(hand_over(group, asked, lambda: served))


@pytest.mark.parametrize("error", [None, KafkaConnectionError(), ConsumerNotStarted()])
def test_positions_are_told_if_the_group_answers(error: Exception | None) -> None:
    seen: list[str] = []

    class Told(Group):
        async def commit(self) -> None:
            await self.leave()

    asyncio.run(tell_positions(Told(seen, error)))  # type: ignore[arg-type]
    assert seen == ["group"]


def test_all_go_on_until_each_was_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "LOOK_SECONDS", 0.01)
    seen: list[str] = []
    one, two = Served(seen, 3), Served(seen, 5)
    run(Group(seen), {"one": one, "two": two})
    assert seen == ["leave", "leave", "group"]  # all know that they leave before any can be fenced
    assert one.looks < 0 and two.looks == -1


def test_what_a_rebalance_opens_meanwhile_leaves_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "LOOK_SECONDS", 0.01)
    seen: list[str] = []
    served: dict[str, Leaver] = {"one": Served(seen, 3)}
    late = Served(seen, 0)

    class Slow(Group):
        async def leave(self) -> None:
            served["late"] = late

    run(Slow(seen), served)
    assert late.leaving


def test_what_nobody_takes_over_is_stopped_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "TAKEN_SECONDS", 0.1)
    seen: list[str] = []
    run(Group(seen), {"one": Served(seen, 1_000_000)})
    assert seen == ["leave", "group"]


def test_nobody_is_waited_for_where_all_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """For example, a machine stops, and all its workers get their signals at once."""
    monkeypatch.setattr(leaving, "LOOK_SECONDS", 0.0001)
    seen: list[str] = []
    answers = [True, True, False]
    endless = Served(seen, 1_000_000)
    asyncio.run(hand_over(Group(seen), lambda: answers.pop(0), lambda: {"one": endless}))  # type: ignore[arg-type]
    assert answers == [] and endless.looks > 900_000


@pytest.mark.parametrize("others", [False, OutageError("no broker answers")])
def test_a_worker_stays_in_a_group_without_others(others: bool | Exception) -> None:
    """If it is alone, it comes back to its own tables."""
    seen: list[str] = []
    run(Group(seen), {"one": Served(seen, 1)}, others)
    assert seen == []


def test_a_group_that_does_not_answer_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    endless = Served(seen, 1_000_000)
    run(Group(seen, KafkaConnectionError()), {"one": endless})

    class Silent(Group):
        async def leave(self) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr(leaving, "GROUP_SECONDS", 0.05)
    run(Silent(seen), {"one": endless})
    assert endless.looks >= 999_998


@pytest.mark.parametrize(
    ("claimed", "others", "warmed"),
    [
        ([("in", 1)], True, [({TP("in", 1)}, WARM_SECONDS)]),
        ([("in", 1)], False, []),  # no other worker serves it meanwhile
        ([("in", 1)], OutageError("no broker answers"), []),
        ([], True, []),
    ],
)
def test_a_worker_brings_its_tables_up_to_date_while_others_serve(
    claimed: list[tuple[str, int]], others: bool | Exception, warmed: list[Any]
) -> None:
    seen: list[Any] = []

    class Copies:
        async def warm(self, wanted: set[TP], patience: float) -> None:
            seen.append((wanted, patience))

    def asked() -> bool:
        if isinstance(others, Exception):
            raise others
        return others

    copies: Any = Copies()
    asyncio.run(come_back(copies, claimed, asked))
    assert seen == warmed

"""Declaring transactions: chained to a ledger that was read to its end, or not written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hushstream.agents.clock.appending import Line, Overtaken, append, ledger_line
from hushstream.agents.clock.ledger import Ledger

from ...support import NAMES

END = 2  # a genesis, and the marker of its transaction


class Written:
    """A cluster and its producer; the leader that answers readers shows an end."""

    def __init__(self, shown: int) -> None:
        self.done: list[str] = []
        self._shown = shown
        self.offsets = SimpleNamespace(settle=lambda topic, seconds: None)
        self._told: list[Callable[[], None]] = []

    def each(self, topic: str, ended: Callable[[int], None]) -> Iterator[Any]:
        value = Ledger().next("genesis", 1, {"genesis": "abcdef"}).encode()
        yield SimpleNamespace(value=lambda: value)
        ended(self._shown)

    def producer(self, **options: Any) -> Any:
        return self

    def init_transactions(self, seconds: float) -> None:
        self.done.append("fence")

    def begin_transaction(self) -> None:
        self.done.append("begin")

    def produce(self, topic: str, value: bytes, on_delivery: Any, **place: Any) -> None:
        offset = END + len(self) if topic == NAMES.ledger else 77
        message = SimpleNamespace(topic=lambda: topic, offset=lambda: offset)
        self._told.append(lambda: on_delivery(None, message))

    def __len__(self) -> int:
        return len(self._told)

    def poll(self, seconds: float) -> None:
        self._told.pop(0)()

    def commit_transaction(self, seconds: float) -> None:
        self.done.append("commit")

    def abort_transaction(self, seconds: float) -> None:
        self.done.append("abort")


def declare(cluster: Any) -> None:
    def lines(ledger: Ledger) -> list[Line]:
        made = [ledger.next("pipeline", 1, {"pipeline": name}) for name in "pq"]
        return [*(ledger_line(NAMES.ledger, one) for one in made), Line(NAMES.begins, b"k", b"v")]

    append(cluster, "id", NAMES.ledger, None, lines)


def test_lines_follow_the_ledger_that_was_read() -> None:
    cluster = Written(END)
    declare(cluster)
    assert cluster.done == ["fence", "begin", "commit"]


def test_nothing_is_declared_on_a_ledger_that_was_not_read_to_its_end() -> None:
    """A leader that is cut off may answer readers with an old end offset."""
    cluster = Written(END - 1)
    with pytest.raises(Overtaken, match="was not read to its end"):
        declare(cluster)
    assert cluster.done == ["fence", "begin", "abort"]

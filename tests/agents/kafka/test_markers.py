"""A table's marker in its changelog, of which compaction deletes records meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.structs import TopicPartition
from hushstream.agents.kafka import markers as module
from hushstream.agents.kafka.markers import seek_marker
from hushstream.agents.state.layout import MARKER
from hushstream.topics.config.model import Kafka
from hushstream.topics.records import Marker, encode

STEP = 5  # three rows, the marker, and the end of the transaction


class Changelog:
    """Steps of one shard, and a client that reads them; ``then`` is called after each answer."""

    def __init__(self, steps: int) -> None:
        self.rows = [
            SimpleNamespace(offset=STEP * n + k, key=b"%d" % n, value=b"v")
            for n in range(steps)
            for k in range(3)
        ]
        self.rows += [
            SimpleNamespace(offset=STEP * n + 3, key=MARKER, value=encode(marker(n)))
            for n in range(steps)
        ]
        self.rows.sort(key=lambda row: row.offset)
        self.end = STEP * steps
        self.then: Callable[[], None] = lambda: None

    def compact(self) -> None:
        """Delete all but the last record of each key below the last 64."""
        last = {row.key: row.offset for row in self.rows if row.offset < self.end - 64}
        self.rows = [row for row in self.rows if last.get(row.key, row.offset) <= row.offset]

    def assign(self, places: object) -> None: ...

    async def beginning_offsets(self, places: list[TopicPartition]) -> dict[object, int]:
        return dict.fromkeys(places, 0)

    async def end_offsets(self, places: list[TopicPartition]) -> dict[object, int]:
        return dict.fromkeys(places, self.end)

    def seek(self, place: TopicPartition, offset: int) -> None:
        self.at = offset

    async def position(self, place: TopicPartition) -> int:
        return self.at

    async def getmany(self, place: TopicPartition, timeout_ms: int) -> dict[object, list[Any]]:
        found = [row for row in self.rows if row.offset >= self.at]
        self.at = self.end
        self.then()
        return {place: found}


def marker(step: int) -> Marker:
    return Marker("g", step, transaction=f"x-{step}")


@pytest.mark.parametrize("own", [True, False], ids=["from a step", "restored"])
@pytest.mark.parametrize("questions", [0, 1, 2, 3, None])
def test_compaction_between_two_questions_is_no_other_history(
    own: bool, questions: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, answered = Changelog(40), [0]

    def then() -> None:
        if answered[0] == questions:
            log.compact()
        answered[0] += 1

    @asynccontextmanager
    async def reader(kafka: Kafka) -> AsyncIterator[Changelog]:
        yield log

    log.then = then
    monkeypatch.setattr(module, "reader", reader)
    position = STEP * 20 if own else STEP * 21
    sought = asyncio.run(seek_marker(Kafka(), "log", 0, position, marker(20)))
    assert sought.last == marker(39)
    assert sought.found or not sought.before
    assert sought.found or questions is not None

"""Chains of windows: a chain is unbroken while the predecessor of each window was released."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hushstream.agents.stages.aggregate.chain import hop_of, lengthen
from hushstream.agents.state.memory import MemoryStore
from hushstream.agents.state.store import Changes
from hushstream.errors import EngineError
from hushstream.mechanisms.columns import Hop
from hushstream.topics.config.pipelines.schedule import Schedule

HOUR = 3_600_000_000
PIPELINE: Any = SimpleNamespace(
    name="p", windows=Schedule(0, HOUR, per_epoch=4, every=HOUR, hops=4)
)


def place(window: int) -> Any:
    return SimpleNamespace(window=window)


def test_a_chain_grows_and_breaks() -> None:
    store, seen = MemoryStore(), []
    for window in (-2, -1, 0, 1, 6, 7):
        rows: Changes = {}
        lengthen(store, window, rows)
        seen.append(hop_of(store, PIPELINE, place(window), rows))
        store.write(dict(rows))
        assert hop_of(store, PIPELINE, place(window), {}) == seen[-1]
    assert seen == [Hop(3, 1), Hop(4, 2), Hop(1, 3), Hop(2, 4), Hop(3, 1), Hop(4, 2)]


def test_a_repeated_step_counts_once() -> None:
    store, rows = MemoryStore(), {}
    for _ in range(2):
        rows = {}
        lengthen(store, 5, rows)
    assert hop_of(store, PIPELINE, place(5), rows).chain == 1


def test_a_missing_length_stops_the_shard() -> None:
    with pytest.raises(EngineError, match="before window 3"):
        hop_of(MemoryStore(), PIPELINE, place(3), {})

"""Pairs that a window has shown: looked up on closing, at once or in pieces; deleted at its end."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.stages.aggregate import computation, partial_sums
from hushstream.agents.stages.aggregate.first_sightings import of_keys, sighted
from hushstream.agents.stages.aggregate.held_release import Pending
from hushstream.agents.state.layout import PAIR, pairs_of
from hushstream.agents.state.memory import MemoryStore
from hushstream.mechanisms.columns import Part, merge
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.pairs import split
from hushstream.offline.engine import OfflineEngine, Recorded, VirtualShard
from hushstream.topics.config.load import loads
from hushstream.topics.records import Trigger

from ....judge.outcomes import restless, verdict
from ....judge.worlds import HORIZONS, INPUT, PIPELINE, world
from ....support import NAMES, SECRET

DISTINCT = """aggregate = [{ kind = "distinct", field = "more" }]
derive = { more = { field = "spent", bucket = 5 } }
"""
SETTINGS = {
    "public": ('public_keys = ["p0", "p1", "p3", "nobody"]', ""),
    "found": ("", ", adaptive_weight = 0"),
    "two lanes": ("feedback_delay = 0", ""),
    "per key": ('epoch = "2d"', ', bound = "per-key", per_key = 2, budget = 3'),
}


def made(name: str, cells: int = 2) -> Any:
    more, mechanism = SETTINGS[name]
    text = INPUT.format(units=2, cells=cells, partitioner="none", unit='"user"') + PIPELINE.format(
        name="p", key='["page"]', window=HORIZONS[4], more=DISTINCT + more, epsilon=8,
        delta="1e-2", mechanism=mechanism,
    )  # fmt: skip
    return compile_config(loads(text, environ={}), {"events": 2})


def part(*texts: bytes) -> Part:
    parts = split(Keys.of(texts))
    lane = np.full(len(texts), 2, np.uint8)
    return merge([Part(parts.names, lane, np.full((len(texts), 1), 3), np.zeros(0, np.int64))])


def test_a_pair_counts_in_the_first_micro_batch_of_its_window() -> None:
    store = MemoryStore()
    first = sighted(store, 4, part(b'["a",1]', b'["a",2]', b'["b",1]'))
    assert first.part.key.tolist() == [b'["a"]', b'["b"]']
    assert first.part.sums.tolist() == [[2], [1]]
    assert all(row.startswith(pairs_of(4)) and not value for row, value in first.rows.items())
    store.write(first.rows)
    second = sighted(store, 4, part(b'["a",2]', b'["a",3]'))
    assert second.part.sums.tolist() == [[1]] and len(second.rows) == 1
    assert sighted(store, 5, part(b'["a",1]')).part.sums.tolist() == [[1]]
    both = merge([first.part, part(b'["a",9]')])
    assert of_keys(both).key.tolist() == [b'["a"]', b'["b"]']


@pytest.mark.spread(4)
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("chunk", [50_000, 7])
def test_the_judge_counts_the_same_whole_or_piece_by_piece(
    name: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With little memory, each micro-batch is spilled, settled in ranges and computed in chunks."""
    steps = []
    settle = computation.Computation.settle

    def watched(self: Any, *given: Any) -> Any:
        steps.append(1)
        return settle(self, *given)

    monkeypatch.setattr(computation.Computation, "settle", watched)
    monkeypatch.setattr(computation, "CHUNK", chunk)
    if chunk < 100:
        monkeypatch.setattr(partial_sums, "SPILL", 5)
    one = world(deployment := made(name), Random(5), events=700, users=100)
    found, rows = verdict(deployment, one.logs, one.clock)
    assert found == [] and rows
    assert (len(steps) > 20) == (chunk < 100)


def test_pairs_go_with_their_window() -> None:
    deployment = made("public", cells=1)
    one = world(deployment, Random(5), events=400, users=100)
    places = {("events", n): list(log) for n, log in enumerate(one.logs)}
    final = [
        n for n, record in enumerate(one.clock) if isinstance(record, Trigger) and record.final
    ]
    entries = list(enumerate(one.clock))[: final[1] - 3]  # up to a place in the second window
    engine = OfflineEngine(deployment, NAMES, SECRET, places, entries, Recorded(opening=restless))
    engine.run()
    kept = [key for shard in engine._shards for key, _ in shard._store.scan(PAIR, PAIR + b"\xff")]
    first, second = (one.clock[n].window for n in final[:2])  # type: ignore[union-attr]
    assert kept and all(key.startswith(pairs_of(second)) for key in kept) and first != second


def test_a_step_that_is_lost_is_repeated_with_the_same_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each step of a running release is computed, lost, and computed again after reopening."""
    monkeypatch.setattr(computation, "CHUNK", 7)
    monkeypatch.setattr(partial_sums, "SPILL", 5)
    lost, advance = [], VirtualShard.advance

    def shaky(self: Any, limit: int, take: Any) -> bool:
        pending = Pending.load(self._store)
        if pending is not None:
            lost.append(pending.settling)
            records, fetched = self._log.since(max(self.stage.position, 0), limit)
            self.stage.step(self._store, self._marker, records, fetched)
            self.stage.open(self._store, self._marker)
        return advance(self, limit, take)

    monkeypatch.setattr(VirtualShard, "advance", shaky)
    one = world(deployment := made("found"), Random(5), events=700, users=100)
    found, rows = verdict(deployment, one.logs, one.clock)
    assert found == [] and rows and {True, False} == set(lost)

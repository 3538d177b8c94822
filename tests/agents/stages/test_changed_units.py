"""Rows of units that a step changes, over committed rows; the newest counts."""

from __future__ import annotations

from random import Random

import pytest
from hushstream.agents.stages.step import ChangedUnits
from hushstream.agents.state.layout import UNIT_WIDTH
from hushstream.agents.state.memory import MemoryStore
from hushstream.agents.state.rows.columns import RowColumns
from hushstream.mechanisms.keys import Keys


def key(n: int) -> bytes:
    return b"u" + n.to_bytes(UNIT_WIDTH - 1, "big")


@pytest.mark.parametrize("seed", range(20))
def test_a_step_reads_its_own_changes_and_committed_rows_elsewhere(seed):
    random = Random(seed)
    store, changed = MemoryStore(), ChangedUnits()
    committed = {key(n): b"old %d" % n for n in range(0, 40, 3)}
    store.write(committed)
    seen, ours = dict(committed), dict[bytes, bytes]()
    for turn in range(random.randrange(5)):
        asked = [key(n) for n in random.sample(range(50), random.randrange(1, 50))]
        rows = changed.read(store, Keys.of(asked))
        assert rows.tolist() == [seen.get(one, b"") for one in asked]
        mine = {one: b"%d of %d" % (n, turn) for n, one in enumerate(asked)}
        changed.put(RowColumns(Keys.of(mine), Keys.of(mine.values())))
        ours |= mine
        seen |= mine
        assert len(changed) == len(ours)
    rows = changed.columns()
    assert len(rows.keys) == len(ours) and rows.changes() == ours
    assert dict(store.scan(b"u", b"v")) == committed  # the step is not committed


def test_no_changes():
    assert len(ChangedUnits()) == 0 and len(ChangedUnits().columns().keys) == 0

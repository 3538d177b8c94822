"""An audit of the cap for each unit: ten epochs, one unit in all of them, everything released.

The bound stage decides over a table what counts of the unit; the histogram releases it with keyed
noise, each key being one run. The statistic is the likelihood ratio of all ten releases together.
What it proves stays below the cap, and comes near; it exceeds the cap once the purse is not
charged, is read one step late, or is forgotten where a table is restored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pytest
from hushstream.agents.deployment.model import Pipeline
from hushstream.agents.stages.bound.bounder import Bounder
from hushstream.agents.stages.step import Step
from hushstream.agents.state.memory import MemoryStore
from hushstream.agents.state.store import Changes
from hushstream.mechanisms.columns import Closed, Part
from hushstream.mechanisms.histogram.mechanism import Histogram
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.parts.bounds import lifetime
from hushstream.mechanisms.tables import RowTable
from hushstream.topics.frames import CellsFrame, EventSlice, decode
from hushstream.topics.records import Marker

from ..support import NAMES, deployment
from .likelihood import keyed, proven
from .mutants import broken

RUNS, EPOCHS, CAP, DELTA = 80_000, 10, 1.0, 0.01
PAGES = Keys.of([b'["%05d"]' % n for n in range(RUNS)])
Reader = Callable[[list[MemoryStore]], MemoryStore]


@lru_cache
def pipeline() -> Pipeline:
    """A public key, one release an epoch; the cap is what one whole epoch costs."""
    swap = {
        "epsilon = 8.0, delta = 1e-4 }": f"epsilon = 1.0, delta = {DELTA}, per_unit = "
        f"{{ epsilon = {CAP}, delta = {DELTA} }} }}",
        'every = "6h"': 'every = "1d"',
        "budget = 4": "budget = 64",
    }
    made = deployment(partitioner="murmur2", more='public_keys = ["00000"]', swap=swap)
    return made.pipelines[0]


def shown(store: list[MemoryStore]) -> MemoryStore:
    return store[-1]


def late(store: list[MemoryStore]) -> MemoryStore:
    """The table as it was before the last step."""
    return store[-2] if len(store) > 1 else MemoryStore()


def restored(log: list[Changes]) -> MemoryStore:
    store = MemoryStore()
    for changes in log:
        store.write(changes)
    return store


def accepted(reader: Reader = shown, lost: int | None = None) -> list[int]:
    """Records of one unit that count in one key, by epoch; it sends eight in each.

    Args:
        reader: function that picks the table to read after each step.
        lost: epoch after which the table is restored without the rows of units.
    """
    bounder, found = Bounder(pipeline(), NAMES, 0, None), []
    log: list[Changes] = []
    stores = [MemoryStore()]
    for epoch in range(EPOCHS):
        unit, n = np.zeros((8, 16), np.uint8), np.zeros(8, np.intp)
        value, sign = np.empty((8, 0), np.int64), np.ones(8, np.int8)
        step = Step(Marker("g", 0))
        one = EventSlice(epoch, 1, unit, PAGES[:1], n, value, sign)
        bounder.absorb(reader(stores), [one], step)
        sums: Counter[bytes] = Counter()
        for out in step.out:
            frame = decode(out.value or b"")
            assert isinstance(frame, CellsFrame)
            sums.update(dict(zip(frame.part.key, frame.part.sums[:, 0].tolist(), strict=True)))
        found.append(sums.total())
        log.append({**step.rows, **step.units.columns().changes()})
        stores.append(restored([step.rows] if epoch == lost else log))
        if epoch == lost:
            log = [step.rows]
    return found


def released(counts: list[int], world: str) -> np.ndarray:
    """(RUNS, epochs) released numbers, where every key has so many records in each epoch."""
    mechanism, out = pipeline().mechanism, []
    assert isinstance(mechanism, Histogram)
    for epoch, count in enumerate(counts):
        rows = RowTable(mechanism.traits)
        rows.store(mechanism.traits.rows(PAGES))
        sums = np.full((RUNS, 1), count, np.int64)
        part = Part(PAGES, np.zeros(RUNS, np.uint8), sums, np.zeros(0, np.int64))
        _, found = mechanism.release(Closed(rows.load(part, 1), part, 1), keyed(f"{world}{epoch}"))
        out.append(found.value[:, 0])
    return np.stack(out, axis=1)


def audited(counts: list[int]) -> float:
    """ε that ten releases prove; noise is the same in all, so the ratio weighs by the counts."""
    weights = np.array(counts, float)
    present, absent = released(counts, "present"), released([0] * EPOCHS, "absent")
    return proven(present @ weights, absent @ weights, DELTA)


@pytest.mark.thorough
def test_ten_epochs_prove_no_more_than_the_cap() -> None:
    counts = accepted()
    assert counts[0] == 7 and sum(m * m for m in counts) <= 63  # of 64, for the slack of the grid
    assert counts[-1] == 0
    assert 0.7 < audited(counts) <= CAP
    assert counts == accepted(lost=None)


def test_a_restored_table_has_the_purses_of_before() -> None:
    """Every step of `accepted` reads a table that was restored from the changelog alone."""
    assert sum(m * m for m in accepted()) <= 63


@pytest.mark.spread(5)
@pytest.mark.parametrize("mistake", ["not charged", "late by a step", "forgotten at a restore"])
def test_a_purse_that_is_wrong_is_caught(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if mistake == "not charged":
        broken(monkeypatch, lifetime.Cap, "absorb", "purse - spent - price", "purse - price")
        counts = accepted()
        assert counts == [8] * EPOCHS or counts == [7] * EPOCHS
    elif mistake == "late by a step":
        counts = accepted(late)
    else:
        counts = accepted(lost=EPOCHS // 2)
    assert sum(m * m for m in counts) > 100
    assert audited(counts) > CAP

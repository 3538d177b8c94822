"""Sorted runs: ranges cover every row once, and no row outlives its micro-batch."""

from __future__ import annotations

import hushstream.topics.frames as frames
import numpy as np
import pytest
from hushstream.agents.stages.aggregate.partial_sums import SortedRuns
from hushstream.agents.state.layout import RUN
from hushstream.agents.state.memory import MemoryStore
from hushstream.agents.state.store import KeyLimit
from hushstream.errors import EngineError
from hushstream.mechanisms.columns import Part, empty_part, merge
from hushstream.mechanisms.keys import Keys
from hypothesis import given, settings
from hypothesis import strategies as st

KEY = st.binary(max_size=2)
PLACE = (-2, 3)


def part(numbers: dict[bytes, int]) -> Part:
    keys = sorted(numbers)
    sums = np.array([[numbers[k]] for k in keys], np.int64).reshape(-1, 1)
    return Part(Keys.of(keys), np.zeros(len(keys), np.uint8), sums, np.zeros(0, np.int64))


def totals(parts: list[Part]) -> dict[bytes, int]:
    merged = merge([empty_part(0, 0), *parts])
    return dict(zip(merged.key.tolist(), merged.sums[:, 0].tolist(), strict=True))


RUNS = st.lists(st.dictionaries(KEY, st.integers(1, 1 << 40), min_size=1, max_size=12), max_size=5)


@settings(max_examples=60)
@given(RUNS, st.integers(1, 20), st.integers(1, 20_000), st.booleans(), st.integers(900, 1300))
def test_ranges_add_up_to_the_whole(listed, limit, size, reload, frame_bytes):
    before = frames.LIMIT
    frames.LIMIT = frame_bytes  # so a run has several chunks
    try:
        store, runs = MemoryStore(), SortedRuns()
        for numbers in listed:
            store.write(runs.add(PLACE, part(numbers)))
        store.write(runs.add((0, 1), part({b"other": 5})))
    finally:
        frames.LIMIT = before
    if reload:
        runs = SortedRuns.load(store)
    expected: dict[bytes, int] = {}
    for numbers in listed:
        for key, number in numbers.items():
            expected[key] = expected.get(key, 0) + number
    assert totals(runs.parts(store, PLACE)) == expected
    assert runs.rows(PLACE) == sum(map(len, listed))
    found: dict[bytes, int] = {}
    begun = None
    while True:
        end = runs.end(PLACE, begun, KeyLimit(limit, size))
        some = totals(list(runs.range(store, PLACE, begun, end)))
        assert not set(some) & set(found)
        assert all((begun is None or k > begun) and (end is None or k <= end) for k in some)
        found |= some
        if end is None:
            break
        assert begun is None or end > begun
        begun = end
    assert found == expected
    store.write(runs.drop(PLACE))
    assert runs.parts(store, PLACE) == [] and runs.rows(PLACE) == 0
    assert totals(runs.parts(store, (0, 1))) == {b"other": 5}


def test_numbers_of_runs_go_on_after_a_restart():
    store, runs = MemoryStore(), SortedRuns()
    store.write(runs.add(PLACE, part({b"a": 1})))
    again = SortedRuns.load(store)
    store.write(again.add(PLACE, part({b"a": 2})))
    assert totals(again.parts(store, PLACE)) == {b"a": 3}
    assert len(list(store.scan(RUN, b"g"))) == 2


def test_a_run_that_has_disappeared_stops_the_stage():
    runs = SortedRuns()
    runs.add(PLACE, part({b"a": 1}))
    with pytest.raises(EngineError, match="delete the data folder"):
        runs.parts(MemoryStore(), PLACE)

"""Key rows and the index of what is due."""

from __future__ import annotations

from itertools import islice

import numpy as np
from hushstream.agents.stages.aggregate.key_rows import KeyRows, due_entries, due_keys
from hushstream.agents.stages.step import Step
from hushstream.agents.state.layout import DUE, ROW, index_entries
from hushstream.agents.state.memory import MemoryStore
from hushstream.agents.state.store import Overlay
from hushstream.mechanisms.columns import Rows
from hushstream.mechanisms.keys import Keys
from hushstream.topics.records import Marker
from hypothesis import given
from hypothesis import strategies as st

from ....support import deployment

MECHANISM = deployment().pipelines[0].mechanism
TABLE = KeyRows(MECHANISM)
KEY = st.lists(st.sampled_from([b"\0", b"a", b"\xff"]), max_size=4).map(b"".join)
WINDOW = st.integers(-3, 3)


def step() -> Step:
    return Step(Marker("g", 0))


def random_rows(keys: list[bytes], seed: int) -> Rows:
    rng = np.random.default_rng(seed)
    listed = sorted(set(keys))
    cell = np.zeros(len(listed), MECHANISM.row_dtype)
    cell["sums"] = rng.integers(-(1 << 62), 1 << 62, cell["sums"].shape)
    cell["first"] = rng.integers(0, 5, len(listed))
    return Rows(Keys.of(listed), cell, rng.integers(-1, 5, len(listed)).astype(np.int32))


@given(st.lists(KEY, max_size=12), st.lists(KEY, max_size=12), WINDOW, st.integers(0, 99))
def test_stored_rows_come_back_and_others_are_fresh(stored, asked, window, seed):
    rows = random_rows(stored, seed)
    done = step()
    TABLE.store(window, rows, done)
    store = MemoryStore()
    store.write(done.rows)
    wanted = Keys.of(sorted({*asked, *stored}))
    found = TABLE.load(store, window, wanted)
    fresh = MECHANISM.init_rows(wanted)
    place = {k: i for i, k in enumerate(rows.key.tolist())}
    for row, key in enumerate(wanted.tolist()):
        at = place.get(key)
        expected = (
            (fresh.cell[row], fresh.due[row]) if at is None else (rows.cell[at], rows.due[at])
        )
        assert (found.cell[row], found.due[row]) == expected
    first = TABLE.load(store, window, wanted, first=True)
    assert first.cell.tobytes() == found.cell.tobytes() and (first.due == found.due).all()
    # Another window is another row.
    assert (TABLE.load(store, window + 1, wanted, first=True).due == fresh.due).all()
    assert (TABLE.load(store, window + 1, wanted).due == fresh.due).all()


@given(st.lists(st.tuples(st.lists(KEY, max_size=6), st.integers(0, 99)), max_size=5), WINDOW)
def test_the_index_names_every_key_that_is_due_whatever_stale_entries_it_holds(rounds, window):
    store = MemoryStore()
    due: dict[bytes, int] = {}
    ever: dict[bytes, set[int]] = {}
    for keys, seed in rounds:
        rows = random_rows(keys, seed)
        done = step()
        TABLE.store(window, rows, done)
        store.write({**done.rows, **done.local})
        for key, at in zip(rows.key.tolist(), rows.due.tolist(), strict=True):
            due[key] = at
            ever.setdefault(key, set()).add(at)
    for at in (-1, 1, 2, 3, 4):
        found = list(due_keys(store, window, at, None))
        assert found == sorted(set(found))
        assert {k for k, d in due.items() if d == at} <= set(found)
        assert set(found) == {k for k, ds in ever.items() if at in ds}
        # A stale entry is only a hint: the row itself says otherwise.
        loaded = TABLE.load(store, window, Keys.of(found))
        live = [k for k, d in zip(found, loaded.due.tolist(), strict=True) if d == at]
        assert live == sorted(k for k, d in due.items() if d == at)
    assert not list(due_keys(store, window + 1, -1, None))


@given(st.lists(KEY, max_size=12), st.integers(1, 4), WINDOW)
def test_reading_what_is_due_in_chunks_misses_nothing(keys, limit, window):
    listed = sorted(set(keys))
    cell = np.zeros(len(listed), MECHANISM.row_dtype)
    done = step()
    TABLE.store(window, Rows(Keys.of(listed), cell, np.full(len(listed), 2, np.int32)), done)
    store = MemoryStore()
    store.write(done.local)
    found: list[bytes] = []
    begun = None
    while some := list(islice(due_keys(store, window, 2, begun), limit)):
        found += some
        begun = some[-1]
    assert found == listed
    store.write(due_entries(window, 2, listed))
    assert not list(due_keys(store, window, 2, None))


@given(st.lists(KEY, max_size=8), WINDOW, st.integers(0, 99))
def test_the_index_is_rebuilt_from_the_rows_alone(keys, window, seed):
    done = step()
    TABLE.store(window, random_rows(keys, seed), done)
    rebuilt: dict[bytes, bytes | None] = {}
    for key, value in done.rows.items():
        rebuilt |= index_entries(key, value)
    assert rebuilt == done.local
    assert all(key[:1] == ROW for key in done.rows) and all(key[:1] == DUE for key in done.local)
    assert index_entries(b"uother", b"\1\0\0\0") == {} and index_entries(ROW + bytes(8), None) == {}


def test_rows_of_this_step_are_seen_before_they_are_committed():
    rows = random_rows([b"a"], 3)
    done = step()
    TABLE.store(0, rows, done)
    found = TABLE.load(Overlay(MemoryStore(), done.rows), 0, rows.key)
    assert found.cell == rows.cell

"""Rows of keys, and the index of keys that are due."""

from __future__ import annotations

import base64
import zlib
from dataclasses import replace
from fractions import Fraction
from itertools import islice

import numpy as np
from hushstream.agents.stages.aggregate.key_rows import KeyRows, due_entries, due_keys
from hushstream.agents.stages.step import Step
from hushstream.agents.state.layout import DUE, ROW, index_entries, rows_of
from hushstream.agents.state.memory import MemoryStore
from hushstream.agents.state.rows.sparse import pack
from hushstream.agents.state.store import Overlay
from hushstream.mechanisms.columns import Rows
from hushstream.mechanisms.contract import Setting, Traits
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.quantile.settings import QuantileParameters, build
from hushstream.topics.records import Marker
from hypothesis import given
from hypothesis import strategies as st

from ....support import deployment

MECHANISM = deployment().pipelines[0].mechanism
TABLE = KeyRows(MECHANISM.traits)
KEY = st.lists(st.sampled_from([b"\0", b"a", b"\xff"]), max_size=4).map(b"".join)
WINDOW = st.integers(-3, 3)


def step() -> Step:
    return Step(Marker("g", 0))


def random_rows(keys: list[bytes], seed: int) -> Rows:
    rng = np.random.default_rng(seed)
    listed = sorted(set(keys))
    cell = np.zeros(len(listed), MECHANISM.traits.row_dtype)
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
    fresh = MECHANISM.traits.rows(wanted)
    place = {k: i for i, k in enumerate(rows.key.tolist())}
    for row, key in enumerate(wanted.tolist()):
        at = place.get(key)
        expected = (
            (fresh.state[row], fresh.due[row]) if at is None else (rows.state[at], rows.due[at])
        )
        assert (found.state[row], found.due[row]) == expected
    first = TABLE.load(store, window, wanted, first=True)
    assert first.state.tobytes() == found.state.tobytes() and (first.due == found.due).all()
    # The row belongs to another window.
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
        # A stale entry is only a hint; the row itself decides.
        loaded = TABLE.load(store, window, Keys.of(found))
        live = [k for k, d in zip(found, loaded.due.tolist(), strict=True) if d == at]
        assert live == sorted(k for k, d in due.items() if d == at)
    assert not list(due_keys(store, window + 1, -1, None))


@given(st.lists(KEY, max_size=12), st.integers(1, 4), WINDOW)
def test_reading_what_is_due_in_chunks_misses_nothing(keys, limit, window):
    listed = sorted(set(keys))
    cell = np.zeros(len(listed), MECHANISM.traits.row_dtype)
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
    assert found.state == rows.state


SPARSE = build(QuantileParameters(0, 100), Setting(Fraction(1), Fraction(1, 10**6), 24)).traits
FIXED = replace(SPARSE, sparse=False)
LAID = base64.b85decode("c-s5_|Nnnx2J*mvC@2tQWEcgbU=)mkQ7{Td!O#G(TALM!0T&4jfB")
"""A row in the fixed layout, compressed: a worker wrote it before rows were packed."""
COUNT = st.one_of(st.just(0), st.integers(-3, 300), st.sampled_from([-(1 << 63), (1 << 63) - 1]))


def counted(counts: list[list[int]], due: list[int]) -> Rows:
    """Rows of quantiles with these counts in their bands, repeated as needed."""
    rows = SPARSE.rows(Keys.of([b"%d" % n for n in range(len(counts))]))
    for cell, some in zip(rows.state, counts, strict=True):
        cell["bands"] = np.resize(some, 256)
    rows.state["first"], rows.due[:] = due, due
    return rows


def written(traits: Traits, rows: Rows) -> Step:
    done = step()
    KeyRows(traits).store(0, rows, done)
    return done


@given(st.lists(st.lists(COUNT, min_size=1, max_size=256), max_size=4), st.integers(-1, 3))
def test_packed_rows_say_what_rows_in_the_fixed_layout_say(counts, due):
    """One table may contain both layouts, as when a worker continues with an earlier state."""
    rows = counted(counts, [due + n % 2 for n in range(len(counts))])
    packed, laid = written(SPARSE, rows), written(FIXED, rows)
    assert packed.local == laid.local and packed.rows.keys() == laid.rows.keys()
    mixed = {key: (laid if n % 2 else packed).rows[key] for n, key in enumerate(packed.rows)}
    for changes in (packed.rows, laid.rows, mixed):
        store = MemoryStore()
        store.write(changes)
        found = KeyRows(SPARSE).load(store, 0, rows.key)
        assert found.state.tobytes() == rows.state.tobytes()
        assert found.due.tolist() == rows.due.tolist()
        assert written(SPARSE, found).rows == packed.rows
    for key, row in packed.rows.items():
        assert row is None or len(row) <= len(laid.rows[key] or b"")


def test_few_bands_are_few_bytes_and_no_row_is_longer_than_the_fixed_layout():
    sizes = []
    for some in ([7, *[0] * 255], [1000] * 256, [1 << 62] * 256):
        (row,) = written(SPARSE, counted([some], [3])).rows.values()
        sizes.append(len(row or b""))
    assert sizes == [9, 4 + 2 * 256 + 1, 2056]


def test_a_row_that_is_not_shorter_packed_keeps_the_fixed_layout():
    """Even at equal length, because the length tells readers the layout."""
    just = [1 << 58] * 3 + [1 << 50] * 253
    assert len(pack(np.array([3], np.int32), np.array([[*just, 3]])).data) == 2056
    for some in (just, [1 << 62]):
        rows = counted([some], [3])
        assert written(SPARSE, rows).rows == written(FIXED, rows).rows


def test_a_row_from_before_rows_were_packed_is_read_and_packed_when_it_changes():
    key = next(iter(written(SPARSE, counted([[1]], [1])).rows))
    store = MemoryStore()
    store.write({key: zlib.decompress(LAID)})
    found = KeyRows(SPARSE).load(store, 0, Keys.of([b"0"]))
    bands = found.state["bands"][0]
    assert {place: int(bands[place]) for place in np.flatnonzero(bands).tolist()} == {
        0: 3, 7: -1, 8: 70_000, 255: 1
    }  # fmt: skip
    assert (int(found.state["first"][0]), int(found.due[0])) == (5, -1)
    assert len(written(SPARSE, found).rows[key] or b"") == 16


def test_a_row_of_quantiles_that_equals_a_fresh_one_is_not_stored():
    assert written(SPARSE, counted([[0], [1]], [0, 0])).rows[rows_of(0) + b"0"] is None

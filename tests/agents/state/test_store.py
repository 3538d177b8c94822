"""The three kinds of state answer alike, and prefixes end where they should.

Covers: agents/state/memory.py
Covers: agents/state/rocks.py
Covers: agents/state/layout.py
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hushstream.agents.state.layout import MARKER, after
from hushstream.agents.state.memory import MemoryStore
from hushstream.agents.state.rocks import RocksStore, discard
from hushstream.agents.state.store import Overlay, scan_prefix
from hushstream.errors import EngineError
from hypothesis import given, settings
from hypothesis import strategies as st

KEY = st.lists(st.sampled_from([b"\0", b"k", b"\xff"]), max_size=4).map(
    lambda p: b"t" + b"".join(p)
)
CHANGES = st.dictionaries(KEY, st.none() | st.binary(max_size=5), max_size=6)
QUERY = st.tuples(KEY, KEY, st.lists(KEY, max_size=5))


@settings(max_examples=25)
@given(st.lists(st.tuples(CHANGES, CHANGES, QUERY), max_size=8))
def test_memory_rocks_and_overlay_give_the_same_answers(tmp_path_factory, operations):
    rocks = RocksStore(tmp_path_factory.mktemp("state"), None, 1 << 20)
    memory = MemoryStore()
    truth: dict[bytes, bytes] = {}
    try:
        for changes, pending, (start, end, keys) in operations:
            for store in (rocks, memory):
                store.write(changes)
            truth = {k: v for k, v in (truth | changes).items() if v is not None}
            seen = {k: v for k, v in (truth | pending).items() if v is not None}
            for reader, expected in (
                (rocks, truth),
                (memory, truth),
                (Overlay(rocks, pending), seen),
                (Overlay(memory, pending), seen),
            ):
                assert reader.get_many(keys) == [expected.get(k) for k in keys]
                inside = sorted((k, v) for k, v in expected.items() if start <= k < end)
                assert list(reader.scan(start, end)) == inside
                found = list(scan_prefix(reader, start))
                assert found == sorted((k, v) for k, v in expected.items() if k.startswith(start))
    finally:
        rocks.close()


@settings(max_examples=25)
@given(st.lists(st.tuples(CHANGES, QUERY, st.booleans()), max_size=12), st.integers(1, 6))
def test_held_rows_are_read_and_reach_the_disk_by_whole_steps(tmp_path_factory, operations, hold):
    folder = tmp_path_factory.mktemp("held")
    rocks = RocksStore(folder / "s", None, 1 << 20, hold)
    truth: dict[bytes, bytes] = {}
    past = [truth]
    try:
        for number, (changes, (start, end, keys), scanned) in enumerate(operations):
            rocks.write({**changes, MARKER: b"%d" % number})
            truth = {k: v for k, v in (truth | changes).items() if v is not None}
            past.append(truth)
            assert rocks.get_many(keys) == [truth.get(k) for k in keys]
            if scanned:
                inside = sorted((k, v) for k, v in truth.items() if start <= k < end)
                assert list(rocks.scan(start, end)) == inside
        shutil.copytree(folder / "s", folder / "killed")
    finally:
        rocks.close()
    # What a kill leaves behind is the state after one step: no row of a later one.
    for name, known in (("killed", None), ("s", len(operations))):
        left = RocksStore(folder / name, None, 1 << 20)
        rows = dict(left.scan(b"t", b"u"))
        (marker,) = left.get_many([MARKER])
        step = 0 if marker is None else int(marker) + 1
        assert rows == past[step] and step == (step if known is None else known)
        left.close()


@given(st.binary(max_size=4), st.binary(max_size=4))
def test_after_is_above_its_prefix_and_below_all_other_keys_above(prefix, other):
    bound = after(prefix)
    assert prefix + other < bound
    if other > prefix and not other.startswith(prefix):
        assert bound <= other


def test_state_survives_closing_and_can_be_discarded(tmp_path: Path):
    rocks = RocksStore(tmp_path / "s", None, 1 << 20)
    rocks.write({b"ra": b"1", b"rb": b"2"})
    rocks.write({b"ra": None})
    rocks.compact()
    assert rocks.size() > 0
    rocks.close()
    reopened = RocksStore(tmp_path / "s", None, 1 << 20)
    assert reopened.get_many([b"ra", b"rb"]) == [None, b"2"]
    reopened.close()
    discard(tmp_path / "s")
    assert not (tmp_path / "s").exists()
    discard(tmp_path / "s")


def test_a_folder_in_use_is_refused_with_what_to_do(tmp_path: Path):
    first = RocksStore(tmp_path / "s", None, 1 << 20)
    with pytest.raises(EngineError, match="data_dir of its own"):
        RocksStore(tmp_path / "s", None, 1 << 20)
    first.close()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "CURRENT").write_text("nonsense")
    with pytest.raises(EngineError, match="cannot be opened"):
        RocksStore(tmp_path / "broken", None, 1 << 20)

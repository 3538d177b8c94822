"""The three kinds of state answer alike, and prefixes end where they should.

Covers: agents/state/memory.py
Covers: agents/state/rocks.py
Covers: agents/state/layout.py
"""

from __future__ import annotations

import shutil
from os import urandom
from pathlib import Path

import pytest
from hushstream.agents.state import rocks as rocks_module
from hushstream.agents.state.columns import RowColumns
from hushstream.agents.state.unit_room import UnitRoom
from hushstream.agents.state.layout import MARKER, after
from hushstream.agents.state.memory import MemoryStore
from hushstream.agents.state.rocks import RocksStore, _error, discard, set_aside
from hushstream.agents.state.store import Overlay, scan_prefix
from hushstream.errors import DamagedError, EngineError
from hushstream.mechanisms.keys import Keys
from hypothesis import HealthCheck, given, settings
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


def copied(table: Path, to: Path) -> None:
    """Copy a table that is open; once more where a file went away meanwhile, as after a merge."""
    for _ in range(50):
        try:
            shutil.copytree(table, to)
            return
        except shutil.Error:
            shutil.rmtree(to)
    raise AssertionError("the table does not stand still")


UNITS = [b"u" + bytes(25) + bytes([n]) for n in range(6)] + [b"u", b"u" + bytes(27)]
ROWS = st.dictionaries(st.sampled_from(UNITS[:6]), st.binary(min_size=1, max_size=40), max_size=6)
SINGLE = st.dictionaries(
    st.sampled_from(UNITS), st.none() | st.binary(min_size=1, max_size=9), max_size=3
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    operations=st.lists(st.tuples(ROWS, SINGLE, st.sampled_from("nnnsfo")), max_size=14),
    hold=st.sampled_from([0, 1, 4, 8, 1000]),
    room=st.sampled_from([0, 1 << 20]),
)
def test_rows_of_units_are_read_and_kept_whichever_way_they_are_written(
    tmp_path_factory, operations, hold, room
):
    folder, shared = tmp_path_factory.mktemp("units"), UnitRoom(room)
    rocks, memory = RocksStore(folder / "s", None, 1 << 20, hold, shared), MemoryStore()
    truth: dict[bytes, bytes] = {}
    past = [truth]
    asked = Keys.of(UNITS[:6])
    for number, (rows, single, then) in enumerate(operations):
        columns = RowColumns(Keys.of(rows), Keys.of(rows.values()))
        for store in (rocks, memory):
            store.write({**single, MARKER: b"%d" % number}, columns)
        truth = {k: v for k, v in (truth | rows | single).items() if v is not None}
        past.append(truth)
        if then == "s":
            assert dict(rocks.scan(b"u", b"v")) == truth
        elif then == "f":
            rocks.flush()
        elif then == "o":
            rocks.close()
            rocks = RocksStore(folder / "s", None, 1 << 20, hold, shared)
        for store in (rocks, memory):
            assert store.get_columns(asked).tolist() == [truth.get(k, b"") for k in asked]
            assert store.get_many([*UNITS, MARKER]) == [*map(truth.get, UNITS), b"%d" % number]
    copied(folder / "s", folder / "killed")
    rocks.close()
    # What a kill leaves behind is the state after one step: no unit is ahead of the marker.
    for name, known in (("killed", None), ("s", len(operations))):
        left = RocksStore(folder / name, None, 1 << 20)
        kept, (marker,) = dict(left.scan(b"u", b"v")), left.get_many([MARKER])
        step = 0 if marker is None else int(marker) + 1
        assert kept == past[step] and step == (step if known is None else known)
        left.close()


def test_an_empty_row_of_a_unit_is_damage_and_not_a_new_unit(tmp_path: Path):
    for hold in (0, 5):
        store = RocksStore(tmp_path / str(hold), None, 1 << 20, hold)
        store._db.put(UNITS[0], b"")
        with pytest.raises(EngineError, match="damaged"):
            store.get_columns(Keys.of(UNITS[:2]))
        store.close()


def test_rows_on_disk_are_found_in_the_order_in_which_they_are_asked_for(tmp_path: Path):
    keys = [b"u" + bytes(10) + urandom(16) for _ in range(2_500)]
    rows = {key: key[-5:] for key in keys[:2_000]}
    store = RocksStore(tmp_path / "s", None, 1 << 20, 100)
    store.write({}, RowColumns(Keys.of(rows), Keys.of(rows.values())))
    store.close()
    store = RocksStore(tmp_path / "s", None, 1 << 20, 100)
    asked = keys[1_500:] + keys[:1_500]
    assert store.get_columns(Keys.of(asked)).tolist() == [rows.get(key, b"") for key in asked]
    store.close()


def test_a_table_takes_its_share_of_the_room_once_and_gives_it_back_once(tmp_path: Path):
    room = UnitRoom(1_000)
    one, other = (RocksStore(tmp_path / name, None, 1 << 20, 5, room) for name in "ab")
    plain = RocksStore(tmp_path / "c", None, 1 << 20, 0, room)
    assert room.share == 500
    one.close()
    one.abandon()
    plain.close()
    assert room.share == 1_000
    other.abandon()
    assert room.share == 1_000 and UnitRoom(7).share == 7


def test_a_write_that_fails_leaves_nothing_in_memory_that_is_not_on_disk(tmp_path: Path):
    store = RocksStore(tmp_path / "s", None, 1 << 20, 2, UnitRoom(1 << 20))
    rows = dict.fromkeys(UNITS[:5], b"1")
    store._db.close()
    with pytest.raises(EngineError):
        store.write({}, RowColumns(Keys.of(rows), Keys.of(rows.values())))
    assert not store._known.look(Keys.of(UNITS[:5])).known.any()


def test_large_rows_go_to_disk_before_there_are_many(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(rocks_module, "HELD_BYTES", 5_000)
    store = RocksStore(tmp_path / "s", None, 1 << 20, 1_000_000)
    for n in range(40):
        store.write({}, RowColumns(Keys.of([UNITS[0]]), Keys.of([bytes([n]) * 1_000])))
        assert store._units.size <= 5_000
    assert store.get_columns(Keys.of(UNITS[:1])).tolist() == [bytes([39]) * 1_000]
    store.close()


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


def damaged(folder: Path) -> list[Path]:
    """A closed table of many blocks; returns its large files, largest first."""
    store = RocksStore(folder, None, 1 << 20)
    for n in range(20):
        store.write({b"k%06d" % (1000 * n + m): urandom(50) for m in range(1000)})
    store.compact()
    store.close()
    return sorted(folder.glob("*.sst"), key=lambda file: -file.stat().st_size)


def flip(file: Path, share: float) -> None:
    data = bytearray(file.read_bytes())
    data[int(len(data) * share)] ^= 0xFF
    file.write_bytes(data)


@pytest.mark.parametrize(
    "harm",
    [
        lambda files: files[0].write_bytes(files[0].read_bytes()[:5000]),
        lambda files: files[0].unlink(),
        lambda files: (files[0].parent / "CURRENT").unlink(),
        lambda files: (files[0].parent / "CURRENT").write_text("nonsense"),
        lambda files: next(files[0].parent.glob("MANIFEST*")).unlink(),
    ],
)
def test_a_damaged_table_is_known_when_it_is_opened(tmp_path: Path, harm):
    harm(damaged(tmp_path / "s"))
    with pytest.raises(DamagedError, match="cannot be opened: it is damaged"):
        RocksStore(tmp_path / "s", None, 1 << 20)
    other = set_aside(tmp_path / "s")
    assert other.name == "damaged-s" and other.is_dir() and not (tmp_path / "s").exists()
    damaged(tmp_path / "s")
    assert set_aside(tmp_path / "s") == other  # the newest one is kept


def test_a_damaged_block_is_never_the_silent_end_of_a_scan(tmp_path: Path):
    """The library's own loop ends there without a word: rows would be missing from a release."""
    flip(damaged(tmp_path / "s")[0], 0.3)
    store = RocksStore(tmp_path / "s", None, 1 << 20)
    with pytest.raises(DamagedError):
        list(store.scan(b"", b"z"))
    with pytest.raises(DamagedError, match="cannot be read: it is damaged"):
        store.get_many([b"k%06d" % n for n in range(20_000)])
    assert len(list(store.scan(b"k000000", b"k000010"))) == 10  # before the block
    store.abandon()


def test_an_error_that_is_still_known_does_not_keep_a_damaged_folder_locked(tmp_path: Path):
    flip(damaged(tmp_path / "s")[0], 0.3)
    store = RocksStore(tmp_path / "s", None, 1 << 20)
    with pytest.raises(DamagedError) as met:
        list(store.scan(b"", b"z"))
    assert met.value.__traceback__ is not None
    store.abandon()
    set_aside(tmp_path / "s")
    RocksStore(tmp_path / "s", None, 1 << 20).close()


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("IO error: No space left on device: While appending", EngineError, "No space left on"),
        ("IO error: lock hold by current process", EngineError, "in use by another process"),
        ("Corruption: block checksum mismatch: stored = 31", DamagedError, "damaged"),
        ("Corruption: IO error: Too many open files", EngineError, "Too many open files"),
        ("Busy: secret", EngineError, "RocksDB refuses"),
    ],
)
def test_what_the_library_says_is_told_without_its_text(text, kind, words):
    error = _error(Path("s"), "written", text)
    assert type(error) is kind and words in str(error)
    assert "31" not in str(error) and "secret" not in str(error)


class Full:
    """A table on a disk that has become full."""

    def close(self) -> None:
        raise Exception("IO error: No space left on device: While appending to file: secret.sst")


def test_a_disk_that_is_full_at_the_end_is_told_like_one_that_is_full_before(tmp_path: Path):
    store = RocksStore(tmp_path / "s", None, 1 << 20)
    table, store._db = store._db, Full()  # type: ignore[assignment]
    with pytest.raises(EngineError, match="cannot be closed: No space left on device") as met:
        store.close()
    assert "secret" not in str(met.value)
    table.close()


def test_what_a_table_says_after_a_failed_flush_does_not_hide_its_reason(tmp_path: Path):
    store = RocksStore(tmp_path / "s", None, 1 << 20)
    table, store._db = store._db, Full()  # type: ignore[assignment]

    def flush() -> None:
        raise EngineError("the first reason")

    store.flush = flush  # type: ignore[method-assign]
    with pytest.raises(EngineError, match="the first reason"):
        store.close()
    table.close()

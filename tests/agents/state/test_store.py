"""The three kinds of state answer alike, and prefixes end in the right place.

Covers: agents/state/memory.py
Covers: agents/state/rocks.py, agents/state/folders.py
Covers: agents/state/layout.py
"""

from __future__ import annotations

import shutil
from os import urandom
from pathlib import Path

import pytest
from hushstream.agents.state import rocks as rocks_module
from hushstream.agents.state.folders import discard, set_aside
from hushstream.agents.state.layout import INDEX, MARKER, POSITION, SEEN, after, block_row
from hushstream.agents.state.memory import MemoryStore
from hushstream.agents.state.rocks import RocksStore
from hushstream.agents.state.rows.columns import RowColumns
from hushstream.agents.state.store import Overlay, scan_prefix
from hushstream.agents.state.units import table as unit_table
from hushstream.agents.state.units.room import UnitRoom
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
    # A kill leaves the state after one step, without rows of later steps.
    for name, known in (("killed", None), ("s", len(operations))):
        left = RocksStore(folder / name, None, 1 << 20)
        rows = dict(left.scan(b"t", b"u"))
        (marker,) = left.get_many([MARKER])
        step = 0 if marker is None else int(marker) + 1
        assert rows == past[step] and step == (step if known is None else known)
        left.close()


def copied(table: Path, to: Path) -> None:
    """Copy an open table; retry if a file disappears meanwhile, as after a merge."""
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
    # A kill leaves the state after one step: no unit is ahead of the marker.
    for name, known in (("killed", None), ("s", len(operations))):
        left = RocksStore(folder / name, None, 1 << 20)
        kept, (marker,) = dict(left.scan(b"u", b"v")), left.get_many([MARKER])
        step = 0 if marker is None else int(marker) + 1
        assert kept == past[step] and step == (step if known is None else known)
        left.close()


def test_blocks_that_are_missing_or_changed_are_damage_and_not_new_units(tmp_path: Path):
    rows = RowColumns(Keys.of(UNITS[:2]), Keys.of([b"a", b"b"]))
    for hold in (0, 5):
        for harm in (None, b"x" * 30):
            path = tmp_path / f"{hold}-{harm}"
            store = RocksStore(path, None, 1 << 20, hold)
            store.write({}, rows)
            store.close()
            store = RocksStore(path, None, 1 << 20, hold)
            store._put({block_row(0): harm})
            with pytest.raises(DamagedError, match="damaged"):
                store.get_columns(rows.keys)
            store.close()


@pytest.mark.parametrize("harm", [b"", b"\0" * 24])
@pytest.mark.parametrize("name", ["all", "one"])
def test_an_index_that_is_missing_or_changed_is_damage_and_no_new_epoch(tmp_path, name, harm):
    store = RocksStore(tmp_path / "s", None, 1 << 20, 5)
    store.write({POSITION: b"1"}, RowColumns(Keys.of(UNITS[:2]), Keys.of([b"a", b"b"])))
    store.close()
    store = RocksStore(tmp_path / "s", None, 1 << 20, 5)
    key = INDEX if name == "all" else INDEX + UNITS[0][:11]
    store._put({key: (None if name == "all" else harm)})
    store.close()
    with pytest.raises(DamagedError, match="index"):
        RocksStore(tmp_path / "s", None, 1 << 20, 5)
    set_aside(tmp_path / "s")  # the table is not locked


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


def test_a_write_that_fails_may_be_tried_again(tmp_path: Path, monkeypatch):
    """Rows in memory stay the newest, and the disk keeps the previous state."""
    store = RocksStore(tmp_path / "s", None, 1 << 20, 2, UnitRoom(1 << 20))
    old, new = (dict.fromkeys(UNITS[:5], value) for value in (b"1", b"22"))
    store.write({MARKER: b"1"}, RowColumns(Keys.of(old), Keys.of(old.values())))
    store.flush()

    def fail(*_: object) -> None:
        raise EngineError("the disk is full")

    for place in (store._files._db, None):
        with monkeypatch.context() as patch:
            if place is None:
                patch.setattr(store, "_put", fail)
            else:
                patch.setattr(store._files, "write", fail)
            store.write({MARKER: b"2"}, RowColumns(Keys.of(new), Keys.of(new.values())))
            with pytest.raises(EngineError, match="full"):
                store.flush()
        assert store.get_columns(Keys.of(UNITS[:5])).tolist() == [b"22"] * 5
        copied(tmp_path / "s", tmp_path / "left")
        left = RocksStore(tmp_path / "left", None, 1 << 20)
        assert left.get_many([*UNITS[:5], MARKER]) == [b"1"] * 6
        left.close()
        discard(tmp_path / "left")
    store.close()
    left = RocksStore(tmp_path / "s", None, 1 << 20)
    assert left.get_many([*UNITS[:5], MARKER]) == [b"22"] * 5 + [b"2"]
    left.close()


def test_what_waits_for_the_disk_is_bounded_by_its_bytes_and_by_what_a_restart_reads_again(
    tmp_path: Path, monkeypatch
):
    monkeypatch.setattr(unit_table, "FRESH_BYTES", 80_000)
    for size, hold, most in ((1_000, 1_000_000, 200_000), (3, 4, 100_000)):
        store = RocksStore(tmp_path / f"{hold}", None, 1 << 20, hold)
        behind = 0
        for n in range(400):
            store.write({}, RowColumns(Keys.of([UNITS[0]]), Keys.of([bytes([n % 251]) * size])))
            behind = behind + 1 if store._units.changed else 0
            assert store.known_bytes <= most and behind <= unit_table.REPLAYED * hold
        assert store.get_columns(Keys.of(UNITS[:1])).tolist() == [bytes([399 % 251]) * size]
        store.close()


@pytest.mark.parametrize("soon", [True, False])
def test_a_large_table_that_is_closed_soon_stays_as_it_was_saved_last(tmp_path, monkeypatch, soon):
    store = RocksStore(tmp_path / "s", None, 1 << 20, 1_000)
    for number in (1, 2):
        rows = RowColumns(Keys.of(UNITS[:2]), Keys.of([b"%d" % number] * 2))
        store.write({MARKER: b"%d" % number, b"t": b"%d" % number}, rows)
        if number == 1:
            store.flush()
    monkeypatch.setattr(rocks_module, "CLOSED_ROWS", 1)
    store.note(SEEN, b"2")
    store.close(soon)
    left = RocksStore(tmp_path / "s", None, 1 << 20)
    assert left.get_many([*UNITS[:2], b"t", MARKER]) == [b"1" if soon else b"2"] * 4
    assert left.get_many([SEEN]) == [b"2"]
    left.close()


def test_few_changed_rows_do_not_go_to_disk_before_their_time(tmp_path: Path, monkeypatch):
    store = RocksStore(tmp_path / "s", None, 1 << 20, 1_000)
    keys = [b"u" + bytes(10) + urandom(16) for _ in range(100)]
    store.write({}, RowColumns(Keys.of(keys), Keys.of([b"1"] * 100)))
    store.settle()
    assert not store._units.changed
    store.write({}, RowColumns(Keys.of(keys[:3]), Keys.of([b"2"] * 3)))
    store.settle()
    assert store._units.changed
    monkeypatch.setattr(unit_table, "IDLE_SECONDS", 0.0)
    store.settle()
    assert not store._units.changed
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
    """Make and close a table of many blocks; return its large files, largest first."""
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
    assert set_aside(tmp_path / "s") == other  # the newest damaged table is kept


def test_a_damaged_block_is_never_the_silent_end_of_a_scan(tmp_path: Path):
    """The library's own loop stops there silently, so rows would be missing from a release."""
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


class Full:
    """A table on a full disk."""

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

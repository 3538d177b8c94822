"""The filter of rows on disk: it never says that a row is missing which is there."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest
from hushstream.agents.state import unit_filter as module
from hushstream.agents.state.columns import RowColumns
from hushstream.agents.state.known_units import UnitRoom
from hushstream.agents.state.layout import MARKER, POSITION, sortable, units_of
from hushstream.agents.state.rocks import RocksStore, discard, set_aside
from hushstream.agents.state.unit_filter import UnitFilter
from hushstream.errors import DamagedError
from hushstream.mechanisms.keys import Keys, concat
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ...tree import ROOT
from .killed_table import EPOCH

MOST = 1 << 30
KILLED = "hushstream.tests.agents.state.killed_table"


def keys_of(rng: np.random.Generator, n: int, epoch: int = 0, pipeline: int = 1) -> Keys:
    head = np.frombuffer(units_of(pipeline) + sortable(epoch), np.uint8)
    digests = rng.integers(0, 256, (n, 16), np.uint8)
    return Keys.fixed(np.concatenate([np.tile(head, (n, 1)), digests], axis=1))


def test_what_was_added_is_possible_and_almost_nothing_else(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_LEAST", 64)
    rng, held, added = np.random.default_rng(1), UnitFilter(lambda _: True), list[Keys]()
    for n in (1, 0, 700, 3, 9_000, 20_000):  # several layers at once
        added.append(keys_of(rng, n))
        held.add(added[-1], MOST)
        assert all(held.possible(one).all() for one in added)
    held.add(concat(added), MOST)  # again: it takes no room
    assert held.memory == 8 * 64 * (1 + 4 + 16 + 64 + 256)
    assert held.possible(keys_of(rng, 20_000)).mean() < 0.05
    assert not held.possible(keys_of(rng, 200, epoch=1)).any()


def test_epochs_and_pipelines_come_in_any_mixture():
    rng, held = np.random.default_rng(2), UnitFilter(lambda _: True)
    kinds = [keys_of(rng, 50, epoch, pipeline) for epoch in (0, 7) for pipeline in (1, 2)]
    held.add(concat(kinds[:3]), MOST)
    every = concat(kinds)
    order = rng.permutation(len(every))
    assert held.possible(every.take(order)).tolist() == (order < 150).tolist()


def test_nothing_is_said_of_epochs_that_had_rows_or_are_too_many(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_EPOCHS", 3)
    rng, full = np.random.default_rng(3), set[bytes]()
    held = UnitFilter(lambda prefix: prefix not in full)
    kinds = [keys_of(rng, 20, epoch) for epoch in range(4)]
    full.add(kinds[0].tolist()[0][:-16])
    for one in kinds:
        held.add(one, MOST)
        full.add(one.tolist()[0][:-16])
    assert held.possible(keys_of(rng, 20, 0)).all()
    assert not held.possible(keys_of(rng, 20, 3)).any()
    assert all(held.possible(one).all() for one in kinds)


def test_a_filter_that_would_be_too_large_knows_nothing_of_what_was_asked_for_longest_ago(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(module, "_LEAST", 64)
    rng, held = np.random.default_rng(6), UnitFilter(lambda _: True)
    held.add(keys_of(rng, 200), 2_000)
    held.add(keys_of(rng, 200, epoch=1), 2_000)
    assert held.possible(keys_of(rng, 200)).mean() < 0.1
    held.add(keys_of(rng, 200, epoch=2), 1_100)
    assert held.memory == 8 * 64 * 2, "the second epoch went, of which nobody had asked since"
    assert held.possible(keys_of(rng, 200, epoch=1)).all()
    assert all(held.possible(keys_of(rng, 200, epoch)).mean() < 0.1 for epoch in (0, 2))
    held.add(keys_of(rng, 2_000, epoch=2), 2_000)
    assert held.memory == 0 and held.possible(keys_of(rng, 200)).all()


@pytest.mark.parametrize(("units", "most"), [(65_536, 2.01), (65_537, 10.01), (600_000, 8)])
def test_a_unit_takes_two_to_ten_bytes(units: int, most: float):
    rng, held = np.random.default_rng(7), UnitFilter(lambda _: True)
    for begun in range(0, units, 50_000):
        held.add(keys_of(rng, min(50_000, units - begun)), MOST)
    assert 1.9 < held.memory / units < most


def test_a_table_finds_each_row_through_flushes_deletions_and_another_start(tmp_path: Path):
    random, rng = Random(4), np.random.default_rng(4)
    every = concat([keys_of(rng, 600, epoch) for epoch in (0, 1)])
    model: dict[bytes, bytes] = {}
    store = RocksStore(tmp_path / "s", None, 1 << 20, hold=100, room=UnitRoom(1 << 23))
    for number in range(40):
        if number in (15, 30):
            store.close()
            store = RocksStore(tmp_path / "s", None, 1 << 20, hold=100, room=UnitRoom(1 << 23))
        rows = np.array(sorted(random.sample(range(1200 * (number + 1) // 40), 25)))
        keys = every.take(rows)
        wanted = [model.get(key, b"") for key in keys.tolist()]
        assert store.get_columns(keys).tolist() == wanted
        values = [b"" if random.random() < 0.2 else b"%d" % number for _ in rows]
        store.write({b"m": b"%d" % number}, RowColumns(keys, Keys.of(values)))
        model.update(zip(keys.tolist(), values, strict=True))
        if number % 7 == 0:
            some = keys.tolist()[0]
            store.write({some: b"alone"})
            model[some] = b"alone"
    assert store.get_columns(every).tolist() == [model.get(key, b"") for key in every.tolist()]
    store.close()


def test_a_new_unit_is_not_looked_up_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rng = np.random.default_rng(5)
    room, asked = UnitRoom(1 << 23), list[int]()
    store = RocksStore(tmp_path / "s", None, 1 << 20, hold=10, room=room)
    monkeypatch.setattr(store, "_read", lambda keys: asked.append(len(keys)) or [None] * len(keys))
    keys = keys_of(rng, 1_000)
    assert len(store.get_columns(keys).data) == 0
    store.write({}, RowColumns(keys, Keys.of([b"x"] * 1_000)))
    store.get_columns(keys_of(rng, 1_000))
    assert sum(asked) < 50
    store.close()


CHANGES = st.lists(st.tuples(st.integers(0, 59), st.booleans()), min_size=6, max_size=30)
THEN = st.sampled_from(
    ["go on"] * 12 + ["scan", "flush", "close", "kill", "wipe", "damage", "expire"]
)
POOL = concat([keys_of(np.random.default_rng(8), 15, epoch) for epoch in range(4)])


class _Shard:
    """A table and its changelog, and what may happen to them."""

    def __init__(self, folder: Path, hold: int, size: int) -> None:
        self._folder, self._hold, self._size = folder, hold, size
        self.log: list[dict[bytes, bytes]] = []  # the rows of each step; an empty one was deleted
        self.killed = 0
        self.table = self._opened()

    def _opened(self) -> RocksStore:
        room = UnitRoom(self._size)
        return RocksStore(self._folder / "s", None, 1 << 20, self._hold, room)

    def _restore(self) -> None:
        (position,) = self.table.get_many([POSITION])
        for step in range(int(position or b"0"), len(self.log)):
            self._write(step)

    def _write(self, step: int) -> None:
        rows, others = self.log[step], {MARKER: b"m", POSITION: b"%d" % (step + 1)}
        if step % 3:
            self.table.write(others, RowColumns(Keys.of(rows), Keys.of(rows.values())))
        else:
            self.table.write({**others, **{key: row or None for key, row in rows.items()}})

    def step(self, rows: dict[bytes, bytes]) -> None:
        self.log.append(rows)
        self._write(len(self.log) - 1)

    def truth(self) -> dict[bytes, bytes]:
        *_, last = accumulate(self.log, lambda all_rows, rows: all_rows | rows, initial={})
        return last

    def check(self) -> None:
        """No key that is on disk is taken for one that is not."""
        read = self.table._read(POOL.tolist())
        there = POOL.take(np.flatnonzero([row is not None for row in read]))
        assert self.table._filter.possible(there).all()

    def then(self, what: str) -> None:
        if what == "scan":
            list(self.table.scan(b"u", b"v"))
        elif what == "flush":
            self.table.flush()
        elif what == "close":
            self.table.close()
            self.table = self._opened()
        elif what == "kill":  # a copy of the folder is what a kill leaves behind
            shutil.copytree(self._folder / "s", self._folder / "left")
            self.table.abandon()
            discard(self._folder / "s")
            (self._folder / "left").rename(self._folder / "s")
            self.table = self._opened()
        elif what in ("wipe", "damage"):
            self.table.abandon()
            (discard if what == "wipe" else set_aside)(self._folder / "s")
            self.table = self._opened()
        elif what == "expire":
            self.step(dict.fromkeys(POOL.tolist()[:30], b""))
        self._restore()


@settings(  # to make a found history shorter takes minutes
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(
    history=st.lists(st.tuples(CHANGES, THEN), min_size=3, max_size=20),
    hold=st.sampled_from([1, 12, 1_000]),
    size=st.sampled_from([0, 2 * 8 * 2 * 3, 1 << 20]),
    epochs=st.sampled_from([2, 32]),
)
def test_no_row_is_missed_whatever_happens_to_a_table(
    tmp_path_factory, monkeypatch, history, hold, size, epochs
):
    monkeypatch.setattr(module, "_LEAST", 2)
    monkeypatch.setattr(module, "_EPOCHS", epochs)
    shard = _Shard(tmp_path_factory.mktemp("filter"), hold, size)
    try:
        for number, (changes, then) in enumerate(history):
            some = POOL.take(np.unique([place for place, _ in changes]))
            truth = shard.truth()
            wanted = [truth.get(key, b"") for key in some.tolist()]
            assert shard.table.get_columns(some).tolist() == wanted
            deleted = {place for place, kept in changes if not kept and number % 4 == 3}
            rows = {POOL.tolist()[n]: b"" if n in deleted else b"%d" % number for n, _ in changes}
            shard.step(rows)
            shard.then(then)
            shard.check()
        truth = shard.truth()
        wanted = [truth.get(key, b"") for key in POOL.tolist()]
        assert shard.table.get_columns(POOL).tolist() == wanted
        assert shard.table.get_many(POOL.tolist()) == [row or None for row in wanted]
    finally:
        shard.table.close()


def _rows(rng: np.random.Generator, n: int, value: bytes = b"x") -> RowColumns:
    return RowColumns(keys_of(rng, n), Keys.of([value] * n))


class _Blind:
    """A table of the library whose scans see some rows only; a blind iterator sees none."""

    def __init__(self, table: Any, sees: Callable[[bytes], bool], blind: bool = False) -> None:
        self._table, self._sees, self._blind = table, sees, blind

    def items(self, from_key: bytes, read_opt: Any) -> Any:
        found = self._table.items(from_key=from_key, read_opt=read_opt)
        return (pair for pair in found if self._sees(pair[0]))

    def iter(self, options: Any) -> Any:
        return _BlindCursor() if self._blind else self._table.iter(options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)


class _BlindCursor:
    """An iterator that is at its end wherever it stands."""

    def seek(self, key: bytes) -> None:
        """Stand there."""

    def valid(self) -> bool:
        return False

    def status(self) -> None:
        """No error."""


@pytest.mark.parametrize(
    ("sees", "blind"),
    [
        (lambda key: False, True),
        (lambda key: False, False),
        (lambda key: key != POSITION, True),
        (lambda key: key == POSITION, False),
    ],
)
def test_a_scan_that_sees_nothing_makes_no_known_unit_a_new_one(tmp_path: Path, sees, blind):
    """Once such a scan, of a simulated disk, made all units of a table new after a restart."""
    rows, room = _rows(np.random.default_rng(9), 300), UnitRoom(1 << 23)
    store = RocksStore(tmp_path / "s", None, 1 << 20, 50, room)
    store.write({POSITION: b"1"}, rows)
    store.close()
    store = RocksStore(tmp_path / "s", None, 1 << 20, 50, room)
    store._db = _Blind(store._db, sees, blind)  # type: ignore[assignment]
    try:
        assert store.get_columns(rows.keys).tolist() == [b"x"] * 300
    except DamagedError:
        assert not blind  # to stop is right as well; but what is seen nowhere cannot stop it
    finally:
        store.close()


def test_a_key_is_in_the_filter_before_it_is_on_disk(tmp_path: Path, monkeypatch):
    """A write that has failed for all that is known may have reached the disk."""
    rows, room = _rows(np.random.default_rng(10), 30), UnitRoom(1 << 23)
    store = RocksStore(tmp_path / "s", None, 1 << 20, 5, room)
    assert not any(store.get_columns(rows.keys))
    written = store._db.write

    def write(*args: Any, **kwargs: Any) -> None:
        written(*args, **kwargs)
        raise OSError("it is not known whether that was written")

    monkeypatch.setattr(store, "_db", _Failing(store._db, write))
    with pytest.raises(Exception, match="cannot be written"):
        store.write({}, rows)
    store._units.clear()
    assert store.get_columns(rows.keys).tolist() == [b"x"] * 30
    store.abandon()


class _Failing(_Blind):
    """A table whose writes end in an error."""

    def __init__(self, table: Any, write: Callable[..., None]) -> None:
        super().__init__(table, lambda key: True)
        self.write = write


@pytest.mark.thorough
def test_after_a_kill_each_unit_goes_on_from_its_row(tmp_path: Path):
    """Real kills also meet the library's own threads; each user's row counts its events.

    What a kill meets is chance: most leave steps that the disk has not, some leave none. So the
    kills go on until enough have met what this test is about, however the machine is loaded.
    """
    folder, log, random = tmp_path / "s", tmp_path / "log", Random(11)
    seen = list[_Start]()
    log.touch()
    while len(seen) < 4 or not _enough(seen):
        assert len(seen) < 40, f"no kill met what it should: {seen}"
        command = [sys.executable, "-m", KILLED, str(folder), str(log), "20000"]
        with subprocess.Popen(
            command, cwd=ROOT.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None and process.stderr is not None
            line = process.stdout.readline()
            if not line:
                raise AssertionError(process.stderr.read())
            seen.append(_Start(*map(int, line.split())))
            time.sleep(random.uniform(0.05, 0.6))
            process.kill()
            assert process.wait() == -9, process.stderr.read()
        _torn(log)


class _Start(NamedTuple):
    """Counts that a start printed: rows, steps of the log, steps of the table."""

    rows: int
    steps: int
    restored: int


def _enough(seen: list[_Start]) -> bool:
    """Tell whether rows lay in the table, some steps were lost, and epochs differed."""
    met = [start for start in seen if start.rows > 5_000 and start.steps > EPOCH]
    lost = any(0 < start.restored < start.steps for start in met)
    return lost and len({start.restored // EPOCH for start in seen}) > 1


def _torn(log: Path) -> None:
    """Drop the last line if the kill has cut it off: a changelog shows whole steps only."""
    text = log.read_text()
    log.write_text(text[: text.rfind("\n") + 1])

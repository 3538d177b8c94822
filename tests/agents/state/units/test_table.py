"""Rows of units in a table: every row is found, whatever happens to the table."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
import pytest
from hushstream.agents.state import rocks
from hushstream.agents.state.folders import discard, set_aside
from hushstream.agents.state.layout import MARKER, POSITION, sortable, units_of
from hushstream.agents.state.rocks import RocksStore
from hushstream.agents.state.rows.columns import RowColumns
from hushstream.agents.state.units import epoch as unit_epoch
from hushstream.agents.state.units import table as unit_table
from hushstream.agents.state.units.room import UnitRoom
from hushstream.mechanisms.keys import Keys, concat
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ....tree import ROOT
from ..killed_table import EPOCH

KILLED = "hushstream.tests.agents.state.killed_table"


def keys_of(rng: np.random.Generator, n: int, epoch: int = 0, pipeline: int = 1) -> Keys:
    head = np.frombuffer(units_of(pipeline) + sortable(epoch), np.uint8)
    digests = rng.integers(0, 256, (n, 16), np.uint8)
    return Keys.fixed(np.concatenate([np.tile(head, (n, 1)), digests], axis=1))


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


CHANGES = st.lists(st.tuples(st.integers(0, 59), st.booleans()), min_size=6, max_size=30)
THEN = st.sampled_from(
    ["go on"] * 12
    + ["scan", "flush", "close", "kill", "wipe", "wipe", "end in a restore", "damage", "expire"]
)
POOL = concat([keys_of(np.random.default_rng(8), 15, epoch) for epoch in range(4)])


class _Shard:
    """A table, its changelog, and events that may happen to the table."""

    def __init__(self, folder: Path, hold: int, size: int) -> None:
        self._folder, self._hold, self._size = folder, hold, size
        self.log: list[dict[bytes, bytes]] = []  # rows by step; an empty row is a deletion
        self.killed = 0
        self.table = self._opened()

    def _opened(self) -> RocksStore:
        room = UnitRoom(self._size)
        return RocksStore(self._folder / "s", None, 1 << 20, self._hold, room)

    def _restore(self) -> None:
        (position,) = self.table.get_many([POSITION])
        if position is None and not self.table.empty:
            self.table.abandon()
            discard(self._folder / "s")
            self.table = self._opened()
        if position is None:
            self.table.gather()
        for step in range(int(position or b"0"), len(self.log)):
            self._write(step)
        if position is None:
            list(self.table.gathered())

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

    def then(self, what: str) -> None:
        if what == "scan":
            list(self.table.scan(b"u", b"v"))
        elif what == "flush":
            self.table.flush()
        elif what == "close":
            self.table.close()
            self.table = self._opened()
        elif what == "kill":  # a kill leaves a copy of the folder
            shutil.copytree(self._folder / "s", self._folder / "left")
            self.table.abandon()
            discard(self._folder / "s")
            (self._folder / "left").rename(self._folder / "s")
            self.table = self._opened()
        elif what in ("wipe", "damage", "end in a restore"):
            self.table.abandon()
            (set_aside if what == "damage" else discard)(self._folder / "s")
            self.table = self._opened()
            if what == "end in a restore":
                self.table.gather()
                for step in range(len(self.log)):
                    self._write(step)
                self.table.abandon()
                self.table = self._opened()
                assert self.table.get_many([MARKER, POSITION]) == [None, None]
        elif what == "expire":
            self.step(dict.fromkeys(POOL.tolist()[:30], b""))
        self._restore()


@settings(  # shrinking a failing history takes minutes
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(
    history=st.lists(st.tuples(CHANGES, THEN), min_size=3, max_size=20),
    hold=st.sampled_from([1, 12, 1_000]),
    size=st.sampled_from([0, 2_000, 1 << 20]),
    crowded=st.sampled_from([3, 1_000]),
)
def test_no_row_is_missed_whatever_happens_to_a_table(
    tmp_path_factory, monkeypatch, history, hold, size, crowded
):
    monkeypatch.setattr(unit_epoch, "CROWDED", crowded)
    monkeypatch.setattr(unit_table, "REPLAYED", 2)
    monkeypatch.setattr(unit_table, "FRESH_BYTES", 0)
    monkeypatch.setattr(rocks, "FRESH_BYTES", 0)
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
        truth = shard.truth()
        wanted = [truth.get(key, b"") for key in POOL.tolist()]
        assert shard.table.get_columns(POOL).tolist() == wanted
        assert shard.table.get_many(POOL.tolist()) == [row or None for row in wanted]
    finally:
        shard.table.close()


@pytest.mark.thorough
def test_after_a_kill_each_unit_goes_on_from_its_row(tmp_path: Path):
    """Real kills also interrupt the library's own threads; each user's row counts its events.

    Chance decides what a kill interrupts: most lose steps that are not on the disk, some lose none.
    So the kills go on until enough of them have met the cases of this test. Each kill comes some
    steps after the start, at any speed of the machine.
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
            further = seen[-1].steps + random.randrange(60)
            while process.poll() is None and log.read_bytes().count(b"\n") < further:
                time.sleep(0.01)
            process.kill()
            assert process.wait() == -9, process.stderr.read()
        _torn(log)


class _Start(NamedTuple):
    """What a start prints: the numbers of rows, of steps in the log, and of steps in the table."""

    rows: int
    steps: int
    restored: int


def _enough(seen: list[_Start]) -> bool:
    """Whether the table had rows, some steps were lost, and epochs differed."""
    met = [start for start in seen if start.rows > 5_000 and start.steps > EPOCH]
    lost = any(0 < start.restored < start.steps for start in met)
    return lost and len({start.restored // EPOCH for start in seen}) > 1


def _torn(log: Path) -> None:
    """Drop the last line if the kill has cut it off: a changelog has only whole steps."""
    text = log.read_text()
    log.write_text(text[: text.rfind("\n") + 1])

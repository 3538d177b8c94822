"""Rows gathered for an empty table: the last of each unit, wherever the rows wait."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hushstream.agents.state.layout import MARKER, POSITION
from hushstream.agents.state.rocks import RocksStore
from hushstream.agents.state.rows.columns import RowColumns
from hushstream.agents.state.units.intake import PARTS, UnitIntake
from hushstream.agents.state.units.room import UnitRoom
from hushstream.errors import DamagedError
from hushstream.mechanisms.keys import Keys, concat

from .test_table import keys_of


def lists(rng: np.random.Generator, number: int) -> list[RowColumns]:
    """Lists of rows of 3,000 units in two epochs; every tenth row is a deletion."""
    every = concat([keys_of(rng, 1_500, epoch) for epoch in (0, 1)])
    made = []
    for _ in range(number):
        keys = every.take(rng.permutation(len(every))[:700])
        values = [b"" if rng.random() < 0.1 else rng.bytes(rng.integers(1, 30)) for _ in range(700)]
        made.append(RowColumns(keys, Keys.of(values)))
    return made


@pytest.mark.parametrize("room", [0, 40_000, 1 << 30])
def test_the_parts_of_an_epoch_hold_the_last_row_of_each_unit_in_order(tmp_path: Path, room: int):
    rng = np.random.default_rng(3)
    intake, model = UnitIntake(tmp_path, room), dict[bytes, bytes]()
    for rows in lists(rng, 12):
        intake.add(rows)
        model.update(zip(rows.keys.tolist(), rows.values.tolist(), strict=True))
    for prefix, one in intake.epochs.items():
        parts = list(intake.parts(prefix))
        assert len(parts) == (PARTS if one.bits else 1) and bool(one.bits) == (room < 1 << 30)
        found = [pair for part in parts for pair in part.columns().pairs()]
        wanted = {key: row or None for key, row in model.items() if key.startswith(prefix)}
        assert [(prefix + key, row) for key, row in found] == sorted(wanted.items())
    intake.close()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_cut_is_damage(tmp_path: Path):
    intake = UnitIntake(tmp_path, 0)
    (rows,) = lists(np.random.default_rng(3), 1)
    intake.add(rows)
    assert intake._file is not None
    intake._file.truncate(50)
    with pytest.raises(DamagedError, match="gone"):
        list(intake.parts(next(iter(intake.epochs))))
    intake.close()


def test_a_table_tells_its_progress_after_all_rows(tmp_path: Path):
    store = RocksStore(tmp_path, None, 1 << 20, 100, UnitRoom(0))
    assert store.empty
    store.gather()
    rows = lists(np.random.default_rng(5), 3)
    for number, some in enumerate(rows):
        store.write({POSITION: b"%d" % number, MARKER: b"m", b"x%d" % number: b"y"}, some)
    store.flush()
    assert not store.empty
    assert store.get_many([POSITION, MARKER, b"x1"]) == [None, None, b"y"]
    list(store.gathered())
    model = {key: row for some in rows for key, row in some.pairs()}
    for _ in range(2):
        assert store.get_many([POSITION, MARKER, b"x1"]) == [b"2", b"m", b"y"]
        assert store.get_many(list(model)) == list(model.values())
        store.close()
        store = RocksStore(tmp_path, None, 1 << 20, 100, UnitRoom(0))
    store.close()

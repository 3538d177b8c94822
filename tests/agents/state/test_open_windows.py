"""Many open windows, as any producer can cause: each is an epoch with a few rows of units."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hushstream.agents.state.layout import MARKER, sortable, units_of
from hushstream.agents.state.rocks import RocksStore
from hushstream.agents.state.rows.columns import RowColumns
from hushstream.agents.state.units.epoch import UnitEpoch
from hushstream.agents.state.units.room import UnitRoom
from hushstream.mechanisms.keys import Keys

MOST = 4096  # bytes of memory for an open window with one unit


def one_each(begin: int, end: int) -> RowColumns:
    """One row in each epoch from ``begin`` to ``end``."""
    rng = np.random.default_rng(begin)
    heads = [units_of(1) + sortable(epoch) for epoch in range(begin, end)]
    return RowColumns(
        Keys.of(head + rng.bytes(16) for head in heads), Keys.of([b"a row"] * len(heads))
    )


def opened(folder: Path, size: int) -> RocksStore:
    return RocksStore(folder / "s", None, 1 << 20, hold=100_000, room=UnitRoom(size))


def test_a_window_takes_little_memory(tmp_path: Path):
    table, count = opened(tmp_path, 1 << 26), 1_000
    table.write({MARKER: b"m"}, one_each(0, 100))
    tracemalloc.start()
    try:
        table.write({MARKER: b"m"}, one_each(100, 100 + count))
        assert tracemalloc.get_traced_memory()[0] < MOST * count
        table.flush()
        assert tracemalloc.get_traced_memory()[0] < MOST * count
    finally:
        tracemalloc.stop()
    table.close()


def test_windows_that_outgrow_the_room_leave_memory_and_are_found(tmp_path: Path):
    table, rows = opened(tmp_path, 1 << 20), one_each(0, 3_000)
    for at in range(0, 3_000, 500):
        some = np.arange(at, at + 500)
        table.write({MARKER: b"m"}, RowColumns(rows.keys.take(some), rows.values.take(some)))
    table.flush()
    assert table.known_bytes < 1 << 20
    assert table.get_columns(rows.keys).tolist() == rows.values.tolist()
    assert table.known_bytes < 1 << 20
    table.close()


def test_a_row_costs_no_look_at_the_other_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    looked = []
    memory = UnitEpoch.memory.fget
    monkeypatch.setattr(
        UnitEpoch, "memory", property(lambda epoch: looked.append(1) or memory(epoch))
    )
    table = opened(tmp_path, 1 << 26)
    for begin, end in ((0, 10), (10, 1_000)):
        table.write({MARKER: b"m"}, one_each(begin, end))
    looked.clear()
    table.get_columns(one_each(0, 10).keys)
    table.write({MARKER: b"m"}, one_each(0, 10))
    assert 0 < len(looked) < 200
    table.close()

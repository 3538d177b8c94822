"""The progress lines of a restore, and the local rows that it makes."""

from __future__ import annotations

import logging
import struct
from pathlib import Path

import pytest
from hushstream.agents.state.layout import DUE, HEAD, after, nonces_of, rows_of, unsortable
from hushstream.agents.state.rocks import RocksStore
from hushstream.agents.worker.tables import restoring
from hushstream.agents.worker.tables.restoring import Restoring, apply
from hushstream.formats.events.raw import RawRecord

from ....support import messages


@pytest.fixture
def said(caplog, monkeypatch):
    """Collect the lines of a restore, one every five seconds of a clock that the test moves."""
    clock = [100.0]
    monkeypatch.setattr(restoring.time, "monotonic", lambda: clock[0])
    caplog.set_level(logging.INFO, "hushstream.state")
    told = Restoring("table-0")

    def at(seconds: float, position: int, end: int = 1200) -> list[str]:
        clock[0] = 100.0 + seconds
        caplog.clear()
        told.reached(position, end)
        return messages(caplog.records)

    return at


def test_a_long_restore_is_told_in_percent_of_what_is_to_be_read(said):
    assert said(0, 200) == []
    assert said(4.9, 700) == []
    assert said(5, 710) == ["table-0: restored 51 %, after 5 s"]
    assert said(6, 900) == []
    assert said(10.5, 1190) == ["table-0: restored 99 %, after 10 s"]
    assert said(11, 1200) == ["table-0: restored 100 %, after 11 s"]


def test_a_short_restore_says_nothing(said):
    assert said(0, 1200) == []
    assert said(1, 1200) == []


def test_no_position_is_told(said):
    said(0, 987_654_321, 987_655_321)
    (line,) = said(5, 987_654_821, 987_655_321)
    assert "987" not in line and "50 %" in line


def due(store: RocksStore) -> list[int]:
    """The windows of which the index has entries."""
    return sorted({unsortable(key[1:HEAD]) for key, _ in store.scan(DUE, after(DUE))})


@pytest.mark.parametrize("hold", [0, 1_000])
@pytest.mark.parametrize("whole", [True, False], ids=["in one list", "record by record"])
@pytest.mark.parametrize("filled", [True, False], ids=["restored", "followed"])
def test_the_index_of_due_keys_forgets_windows_that_are_over(
    hold: int, whole: bool, filled: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A copy that follows for months would hold an entry for each key of each window."""
    monkeypatch.setattr(restoring, "PART", 4)
    rows: list[tuple[bytes, bytes | None]] = []
    for window in range(-1, 4):
        rows += [(rows_of(window) + b"%d" % n, struct.pack("<i", 7) + b"x") for n in range(6)]
        rows += [(nonces_of(window), b"nonces")]
    for window in range(-1, 2):
        rows += [(rows_of(window) + b"%d" % n, None) for n in range(6)]
    rows += [(nonces_of(-1), None), (nonces_of(1), None), (nonces_of(9) + b"no window", None)]
    records = [RawRecord(n, 0, key, row) for n, (key, row) in enumerate(rows)]
    store = RocksStore(tmp_path / "table", None, 1 << 20, hold)
    if filled:
        store.gather()
    for part in [records] if whole else [[one] for one in records]:
        apply(store, part, part[-1].offset + 1)
    if filled:
        assert list(store.gathered()) is not None
    assert due(store) == [2, 3]
    assert store.get_many([nonces_of(1), nonces_of(2)]) == [None, b"nonces"]
    store.close()

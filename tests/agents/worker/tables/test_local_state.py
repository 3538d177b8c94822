"""What a restore says of itself; tables and changelogs have their tests on the real broker."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hushstream.agents.state.layout import MARKER, POSITION
from hushstream.agents.state.rocks import RocksStore
from hushstream.agents.worker.metrics import OperatorMetrics
from hushstream.agents.worker.shared import Shared
from hushstream.agents.worker.tables import local_state
from hushstream.agents.worker.tables.local_state import LocalState, Restoring
from hushstream.formats.events.raw import RawRecord
from hushstream.topics.config.model import Kafka
from hushstream.topics.records import Marker, encode
from rocksdict import Cache

from ....support import messages


@pytest.fixture
def said(caplog, monkeypatch):
    """Lines of a restore, told every five seconds of a clock that the test moves."""
    clock = [100.0]
    monkeypatch.setattr(local_state.time, "monotonic", lambda: clock[0])
    caplog.set_level(logging.INFO, "hushstream.state")
    restoring = Restoring("table-0")

    def at(seconds: float, position: int, end: int = 1200) -> list[str]:
        clock[0] = 100.0 + seconds
        caplog.clear()
        restoring.reached(position, end)
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


async def changelog(*_, columns: bool):
    """A changelog of one row and a marker."""
    yield [], 0, 2
    marker = encode(Marker("g", 1))
    yield [RawRecord(0, 0, b"kept", b"1"), RawRecord(1, 0, MARKER, marker)], 2, 2


def test_what_an_interrupted_restore_has_left_is_dropped(tmp_path: Path, monkeypatch):
    """The changelog may have lost the deletion of such a row since."""
    monkeypatch.setattr(local_state, "read_to_end", changelog)
    shared = Shared(
        Kafka(), "g", tmp_path, Cache(1 << 20), 1 << 20, ThreadPoolExecutor(1), OperatorMetrics(), 1
    )
    store = RocksStore(tmp_path / "g" / "log" / "0", None, 1 << 20)
    store.write({b"deleted": b"1"})
    store.close()
    state = LocalState(shared, "log", 0, 0, lambda: None)
    marker = asyncio.run(state.open())
    assert marker is not None and marker.applied == 1
    assert state.table.get_many([b"deleted", b"kept"]) == [None, b"1"]
    assert not state.old
    monkeypatch.setattr(local_state, "FRESH_SECONDS", -1.0)
    assert state.old
    before = state.table.get_many([POSITION])
    state.renew()
    assert state.position == 2 and state.table.get_many([POSITION]) != before
    state.close()

"""The progress lines of a restore."""

from __future__ import annotations

import logging

import pytest
from hushstream.agents.worker.tables import restoring
from hushstream.agents.worker.tables.restoring import Restoring

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

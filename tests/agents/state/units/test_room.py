"""The open tables share the memory for rows of units."""

from __future__ import annotations

from hushstream.agents.state.units.room import UnitRoom


def test_tables_share_the_room():
    room = UnitRoom(1_000)
    assert room.share == 1_000
    room.enter()
    room.enter()
    assert room.share == 500
    room.leave()
    assert room.share == 1_000

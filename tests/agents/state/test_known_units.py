"""Rows kept in memory: the newest of each unit, within the room; what is forgotten is not known."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest
from hushstream.agents.state.columns import RowColumns
from hushstream.agents.state.unit_room import KnownUnits, UnitRoom
from hushstream.mechanisms.keys import Keys

UNITS = [b"u" + bytes(24) + n.to_bytes(2, "big") for n in range(900)]


def columns(rows: Mapping[bytes, bytes]) -> RowColumns:
    return RowColumns(Keys.of(rows), Keys.of(rows.values()))


@pytest.mark.parametrize("seed", range(6))
def test_what_it_knows_is_what_was_written_last(seed):
    random = Random(seed)
    known, truth = KnownUnits(UnitRoom(random.choice((0, 50_000, 300_000)))), dict[bytes, bytes]()
    for _ in range(40):
        rows = {key: random.randbytes(random.choice((0, 3, 60)))
                for key in random.sample(UNITS, random.choice((1, 50, 300)))}  # fmt: skip
        known.put(columns(rows))
        truth |= rows
        asked = random.sample(UNITS, 200)
        found = known.look(Keys.of(asked))
        for key, value, there in zip(asked, found.values.tolist(), found.known, strict=True):
            assert value == (truth[key] if there else b"")
        assert known.look(Keys.of(rows)).known.all(), "what came last is always known"


def test_all_is_known_while_there_is_room_and_no_more_than_there_is_room_for():
    wide, narrow = KnownUnits(UnitRoom(1 << 24)), KnownUnits(UnitRoom(400_000))
    for begun in range(0, 900, 50):
        rows = columns(dict.fromkeys(UNITS[begun : begun + 50], b"x" * 400))
        for known in (wide, narrow):
            known.put(rows)
        assert narrow.memory < 500_000
    assert wide.look(Keys.of(UNITS)).known.all()
    kept = narrow.look(Keys.of(UNITS)).known
    assert 200 < kept.sum() < 900 and kept[-200:].all()


def test_tables_share_the_room():
    room = UnitRoom(1_000)
    assert room.share == 1_000
    room.enter()
    room.enter()
    assert room.share == 500
    room.leave()
    assert room.share == 1_000

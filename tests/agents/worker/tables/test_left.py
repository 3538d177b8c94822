"""Tables that were left behind: they shrink to evidence once nothing could go on from them."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
from hushstream.agents.state.layout import (
    MARKER,
    PLAIN_POSITION,
    POSITION,
    SEEN,
    rows_of,
    sortable,
    units_of,
)
from hushstream.agents.state.rocks import RocksStore, read_rows
from hushstream.agents.worker.tables.evidence import STALE_SECONDS, Known, known_in, seen_row
from hushstream.agents.worker.tables.left import LeftTables
from hushstream.topics.records import Marker, encode

UNIT = units_of(0) + sortable(1) + bytes(range(16))
KEY = rows_of(2) + b"k"
ONE, OTHER = Marker("g", 5, transaction="x-1"), Marker("g", 6, transaction="x-2")


def position(offset: int, age: float) -> bytes:
    return json.dumps({"offset": offset, "time": time.time() - age}).encode()


def table(path: Path, **progress: bytes | None) -> Path:
    """A table with rows; progress by the names of its rows."""
    names = {"place": POSITION, "plain": PLAIN_POSITION, "marker": MARKER, "seen": SEEN}
    store = RocksStore(path, None, 1 << 20)
    store.write({UNIT: b"left", KEY: b"sums"} | {names[k]: row for k, row in progress.items()})
    store.close()
    return path


def rows(path: Path) -> list[bool]:
    """Whether rows of a unit and of a key are there."""
    store = RocksStore(path, None, 1 << 20)
    found = [row is not None for row in store.get_many([UNIT, KEY])]
    store.close()
    return found


def empty(folder: Path, *used: Path) -> None:
    asyncio.run(LeftTables(folder, asyncio.Lock(), lambda: used).empty())


def test_old_tables_that_nothing_uses_shrink_to_evidence(tmp_path: Path, caplog) -> None:
    old, marker = STALE_SECONDS + 60, encode(ONE)
    left = table(tmp_path / "log" / "0", place=position(9, old), marker=marker)
    used = table(tmp_path / "log" / "1", place=position(9, old), marker=marker)
    young = table(tmp_path / "log" / "2", place=position(9, 60), marker=marker)
    aside = table(tmp_path / "log" / "damaged-0", place=position(9, old), marker=marker)
    (tmp_path / "log" / "3").mkdir()
    before = {path: known_in(path) for path in (left, used, young)}
    for _ in range(2):
        empty(tmp_path, used)
        assert rows(left) == [False, False]
        assert [rows(path) for path in (used, young, aside)] == [[True, True]] * 3
        assert {path: known_in(path) for path in before} == before
    assert before[left] == Known(9, ONE, None) and caplog.text == ""
    assert read_rows(left, [POSITION, MARKER]) == [
        None,
        None,
    ]  # so a clock set back changes nothing
    empty(tmp_path / "missing")


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("newer", [True, False])
def test_the_newest_progress_stays(plain: bool, newer: bool, tmp_path: Path) -> None:
    old = position(9, STALE_SECONDS + 60)
    seen = seen_row(position(12 if newer else 9, STALE_SECONDS + 30), encode(OTHER))
    place = "plain" if plain else "place"
    path = table(tmp_path / "log" / "0", marker=encode(ONE), seen=seen, **{place: old})
    before = known_in(path)
    empty(tmp_path)
    assert known_in(path) == before == Known(12 if newer else 9, OTHER, None)
    assert rows(path) == [False, False]


def test_a_table_that_opens_meanwhile_stays(tmp_path: Path) -> None:
    old = position(9, STALE_SECONDS + 60)
    path = table(tmp_path / "log" / "0", place=old, marker=encode(ONE))

    async def run() -> None:
        opening, used = asyncio.Lock(), list[Path]()
        async with opening:
            emptying = asyncio.ensure_future(LeftTables(tmp_path, opening, lambda: used).empty())
            await asyncio.sleep(0.3)
            assert not emptying.done()
            used.append(path)
        await emptying

    asyncio.run(run())
    assert rows(path) == [True, True]


def test_a_table_that_cannot_be_emptied_stays_and_is_told(tmp_path: Path, caplog) -> None:
    old = position(9, STALE_SECONDS + 60)
    path = table(tmp_path / "log" / "0", place=old, marker=encode(ONE))
    store = RocksStore(path, None, 1 << 20)
    empty(tmp_path)
    assert "log-0: its old table stays: " in caplog.text
    store.close()
    assert rows(path) == [True, True]

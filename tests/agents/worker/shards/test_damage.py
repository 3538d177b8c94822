"""A damaged table, wherever the damage shows: it is set aside and restored."""

from __future__ import annotations

import asyncio
from typing import Any

import hushstream.agents.worker.tables.local_state as local_state
import pytest
from hushstream.agents.state.folders import discard
from hushstream.errors import DamagedError, EngineError
from hushstream.topics.records import Marker

from ..bench import Tally, applied, interval, unopened, until


def test_a_table_that_is_damaged_while_it_serves_is_restored(bench, monkeypatch):
    """The damage may show in any part of a step; nothing is lost or doubled."""

    async def run() -> None:
        shard = bench.shard()
        await shard.open()
        shard.deliver(interval(0, 5))
        await applied(shard, 5)
        for at, method in ((7, "get_many"), (9, "write")):
            shown: list[int] = []

            def damaged(*_: Any, shown: list[int] = shown) -> Any:
                shown.append(1)
                raise DamagedError("a block")

            table = shard._state.table
            monkeypatch.setattr(table, method, damaged)
            shard.deliver(interval(shard.wanted, at))
            await until(lambda before=table: shard._state._store not in (None, before))  # type: ignore[misc]
            await until(lambda: shard._state.ready and shard._producers.steps is not None)
            await until(lambda: len(bench.seeks) > 0)
            bench.seeks.clear()
            assert shown == [1]
            shard.deliver(interval(shard.wanted, at))
            await applied(shard, at)
        await shard.close()

    asyncio.run(run())
    assert bench.rows()[b"n"] == b"9" and bench.failures == []
    assert bench.published() == [b"%d" % n for n in range(9)]
    assert (bench.path().parent / "damaged-0").is_dir()


@pytest.mark.parametrize("again", [False, True])
def test_a_table_whose_damage_shows_when_it_is_closed_is_restored(bench, monkeypatch, again):
    """A close writes held rows, and so may be the first to read a damaged block."""

    async def run() -> None:
        shard = bench.shard()
        await shard.open()
        shard.deliver(interval(0, 5))
        await applied(shard, 5)

        def damaged() -> None:
            raise DamagedError("a block")

        monkeypatch.setattr(shard._state.table, "flush", damaged)
        if again:  # as after a fenced transaction
            before = shard._state.table
            await shard._open_again()
            assert shard._state.table is not before
        else:
            await shard.close()
            shard = bench.shard()
            await shard.open()
        assert (shard.applied, shard._state.table.get_many([b"n"])) == (5, [b"5"])
        await shard.close()

    asyncio.run(run())
    assert bench.rows()[b"n"] == b"5" and bench.failures == []
    assert (bench.path().parent / "damaged-0").is_dir()


def test_a_disk_that_damages_one_table_after_the_other_is_given_up(tmp_path):
    async def run() -> None:
        state = unopened(tmp_path).shard()._state
        for number in range(local_state.DAMAGES):
            state._opened()
            if number:  # the damage may also be that the folder is gone
                discard(state.path)
            state.set_aside(DamagedError("a block"))
        with pytest.raises(EngineError, match="check the disk"):
            state.set_aside(DamagedError("a block"))

    asyncio.run(run())


class Particular(Tally):
    """A stage that finds the table damaged at its first opening, in rows that only it reads."""

    damaged = 1

    def open(self, reader: Any, marker: Marker) -> None:
        if self.damaged:
            self.damaged -= 1
            raise DamagedError("the table cannot be read: it is damaged")
        super().open(reader, marker)


def test_a_table_that_a_stage_finds_damaged_when_it_opens_is_restored(bench, caplog):
    async def run() -> None:
        shard = bench.shard()
        await shard.open()
        shard.deliver(interval(0, 5))
        await applied(shard, 5)
        await shard.close()
        again = bench.shard()
        again._stage = Particular(bench.out)
        await again.open()
        assert (again.applied, again._state.table.get_many([b"n"])) == (5, [b"5"])
        again.deliver(interval(5, 8))
        await applied(again, 8)
        await again.close()

    asyncio.run(run())
    assert bench.rows()[b"n"] == b"8" and bench.failures == []
    assert "restored from its changelog" in caplog.text

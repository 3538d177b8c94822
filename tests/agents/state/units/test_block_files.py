"""Blocks in a table: a missing block is damage, and a block that no index names does no harm."""

from __future__ import annotations

from functools import partial
from os import urandom
from pathlib import Path

import pytest
from hushstream.agents.state.rocks import _options
from hushstream.agents.state.units.block_files import BlockFiles
from hushstream.errors import DamagedError
from rocksdict import Rdict, WriteBatch


def opened(folder: Path) -> tuple[Rdict, BlockFiles]:
    table = Rdict(str(folder), _options(None, 1 << 20))
    return table, BlockFiles(folder, table, partial(_options, None, 1 << 20))


def delete(table: Rdict, files: BlockFiles, ids: list[int]) -> None:
    batch = WriteBatch(raw_mode=True)
    for key in files.dropped(ids):
        batch.delete(key)
    table.write(batch)


def test_blocks_are_read_by_number_and_a_missing_one_is_damage(tmp_path: Path):
    table, files = opened(tmp_path / "s")
    with files.writing():
        assert files.write([b"a", b"b"]) + files.write([b"c" * 100_000]) == [0, 1, 2]
    files.count()
    assert files.read([2, 0]) == [b"c" * 100_000, b"a"]
    with pytest.raises(DamagedError, match="lacks rows of units"):
        files.read([1, 3])
    table.close()


def test_numbers_of_blocks_that_never_counted_are_used_again(tmp_path: Path):
    table, files = opened(tmp_path / "s")
    with files.writing():
        files.write([b"a"])
    files.count()
    with files.writing():
        assert files.write([b"b", b"c"]) == [1, 2]
    with pytest.raises(RuntimeError), files.writing():
        files.write([b"d"])
        raise RuntimeError
    with files.writing():
        assert files.write([b"e"]) == [1]
    assert files.read([0, 1]) == [b"a", b"e"]
    table.close()


def test_what_a_killed_process_left_is_removed(tmp_path: Path):
    table, files = opened(tmp_path / "s")
    files.write([b"a"])
    table.close()
    (tmp_path / "s" / "units.sst").write_bytes(b"half of a file")
    table, files = opened(tmp_path / "s")
    assert not (tmp_path / "s" / "units.sst").exists()
    with files.writing():
        files.write([b"b"])
    assert files.read([0]) == [b"b"]
    table.close()


def test_blocks_that_were_replaced_leave_the_disk(tmp_path: Path):
    table, files = opened(tmp_path / "s")
    before: list[int] = []
    for _ in range(12):
        with files.writing():
            ids = files.write(urandom(10_000) for _ in range(100))
        files.count()
        if before:
            delete(table, files, before)
            files.reclaim(before)
        before = ids
    size = sum(one.stat().st_size for one in (tmp_path / "s").rglob("*.sst"))
    assert size < 3_000_000
    assert len(files.read(before)) == 100
    table.close()

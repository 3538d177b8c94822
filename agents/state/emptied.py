"""Emptying of a closed table: all rows but some leave the disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rocksdict import (
    BottommostLevelCompaction,
    CompactOptions,
    Options,
    Rdict,
    WriteBatch,
    WriteOptions,
)

from .rocks_errors import explained

_END = b"\xff" * 40  # above all keys


def emptied(path: Path, kept: Mapping[bytes, bytes], gone: tuple[bytes, ...]) -> None:
    """Write rows to a closed table, then delete all others, also from its files.

    Args:
        kept: rows that stay.
        gone: keys of rows that are deleted in one batch with that. A process that ends afterwards
            leaves others behind.

    Raises:
        DamagedError: the table is damaged.
        EngineError: another process has it open, or it cannot be written.
    """
    with explained(path, "emptied"):
        table, durable = Rdict(str(path), Options(raw_mode=True)), WriteOptions()
        try:
            batch, durable.sync = WriteBatch(raw_mode=True), True
            for key in gone:
                batch.delete(key)
            for key, row in kept.items():
                batch.put(key, row)
            table.write(batch, write_opt=durable)
            begin = b""
            for key in sorted(kept):
                table.delete_range(begin, key)
                begin = key + b"\x00"
            table.delete_range(begin, _END)
            table.flush()
            options = CompactOptions()
            options.set_bottommost_level_compaction(BottommostLevelCompaction.force())
            table.compact_range(None, None, options)
        finally:
            table.close()
        Rdict(str(path), Options(raw_mode=True)).close()  # else its manifest names former rows

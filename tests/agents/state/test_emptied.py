"""Emptied tables: what stays, and that nothing else is left in any file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hushstream.agents.state.emptied import emptied
from hushstream.agents.state.layout import POSITION, SEEN, rows_of, sortable, units_of
from hushstream.agents.state.rocks import RocksStore, read_rows
from hushstream.errors import EngineError

OTHER = rows_of(3) + b"Kreuzberg"


def unit(number: int) -> bytes:
    digest = np.random.default_rng(number).bytes(16)
    return units_of(0) + sortable(9) + digest


def filled(path: Path) -> RocksStore:
    store = RocksStore(path, None, 1 << 20)
    store.write({OTHER: b"sums of a key", POSITION: b"place"})
    store.flush()
    store.write({unit(n): b"what is left" for n in range(3_000)})
    store.write({rows_of(4) + b"Neukoelln": b"held", b"\xff" * 20: b"last"})
    return store


def test_all_but_the_kept_rows_leave_the_files(tmp_path: Path) -> None:
    path = tmp_path / "table"
    filled(path).close()
    secrets = b"Kreuzberg", b"Neukoelln", b"sums of a key", unit(7)[-16:], unit(8)[-16:]

    def found() -> set[bytes]:
        files = [file.read_bytes() for file in path.rglob("*") if file.is_file()]
        return {one for one in secrets if any(one in data for data in files)}

    assert {b"Kreuzberg", b"Neukoelln"} <= found()
    for _ in range(2):
        emptied(path, {SEEN: b"evidence", b"a": b"1"}, (POSITION,))
        assert read_rows(path, [POSITION, SEEN, OTHER, b"a"]) == [None, b"evidence", None, b"1"]
        assert found() == set()
    store = RocksStore(path, None, 1 << 20)
    assert list(store.scan(b"", b"\xff" * 40)) == [(SEEN, b"evidence"), (b"a", b"1")]
    store.close()


def test_a_table_in_use_stays(tmp_path: Path) -> None:
    store = filled(tmp_path / "table")
    with pytest.raises(EngineError, match="in use"):
        emptied(tmp_path / "table", {SEEN: b"evidence"}, (POSITION,))
    assert store.get_many([OTHER, unit(7)]) == [b"sums of a key", b"what is left"]
    store.close()

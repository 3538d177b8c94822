"""A look-up in a large table reads little of it.

Covers: agents/state/rocks.py
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hushstream.agents.state.rocks import RocksStore
from rocksdict import Cache


def read_by_this_thread() -> int:
    """Bytes that this thread has read from files."""
    return int(Path("/proc/thread-self/io").read_text().split("rchar: ")[1].split()[0])


@pytest.mark.skipif(not Path("/proc/thread-self/io").exists(), reason="Linux counts what is read")
def test_a_row_is_found_without_reading_the_filter_of_all_rows(tmp_path: Path):
    """The filter of 300,000 rows has 375 KB: as one block it would not fit into this cache."""
    store = RocksStore(tmp_path, Cache(256 << 10), 16 << 20)
    for begun in range(0, 300_000, 50_000):
        store.write({b"r%09d" % n: b"%012d" % n for n in range(begun, begun + 50_000)})
    store.compact()
    before = read_by_this_thread()
    for n in range(0, 300_000, 30_000):
        assert store.get_many([b"r%09d" % n]) == [b"%012d" % n]
    assert read_by_this_thread() - before < 10 * 30_000
    store.close()

"""The number of a worker's shards, as the benchmark of standbys reads it from the log."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
try:
    import standby
finally:
    sys.path.pop(0)


def test_the_last_line_that_says_ready_counts(tmp_path: Path):
    run: Any = SimpleNamespace(log=lambda member: tmp_path / member)
    (tmp_path / "a").write_text("starting\n")
    (tmp_path / "b").write_text("ready: 4 shards, and the clock\nready: 2 shards\nbye\n")
    assert (standby.shards(run, "a"), standby.shards(run, "b")) == (0, 2)

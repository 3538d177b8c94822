"""How late releases are, as the benchmark of rolling restarts counts it."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
try:
    from rolling import Watch
finally:
    sys.path.pop(0)


def test_a_release_counts_by_the_time_at_which_it_was_due() -> None:
    watch = Watch.__new__(Watch)
    watch.seen = [(10.0, 10.5), (11.0, 14.0), (12.0, 14.25), (13.0, 13.5)]
    assert watch.late(11.0, 13.0) == [2.25, 3.0]
    assert watch.late(12.0) == [0.5, 2.25]
    assert watch.late(14.0) == []

"""The oracle that drops hopeless keys: what it drops is counted as error."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[2] / name) for name in ("research", "benchmarks")]
try:
    import hopeless
    from hushstream.mechanisms.workload import Workload
finally:
    del sys.path[:2]


def work() -> Workload:
    """2,000 units with a record in key 0 and one in a key of their own."""
    unit = np.repeat(np.arange(2000, dtype=np.int32), 2)
    key = np.stack([np.zeros(2000, np.int32), np.arange(1, 2001, dtype=np.int32)], axis=1)
    return Workload(unit, key.ravel(), 2000, 2001)


def test_dropped_keys_count_as_error() -> None:
    made, everything = hopeless.histogram(6.0, 1e-9, 4), work()
    without, with_oracle = (hopeless.error(made, everything, cut) for cut in (0.0, 0.5))
    assert 0.5 <= without < 0.52  # all keys of one unit are hidden
    assert 0.5 <= with_oracle < 0.52
    assert hopeless.error(made, everything, 1e6) == 1.0  # nothing is left


def test_the_cut_is_in_records() -> None:
    """The threshold is below 100 records here, so a cut of ten thresholds keeps key 0."""
    made = hopeless.histogram(6.0, 1e-9, 4)
    assert hopeless.error(made, work(), 10.0) < 0.52

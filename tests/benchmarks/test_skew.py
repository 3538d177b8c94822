"""Loads with the stated skew, and their reported ratios."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
try:
    import skew
finally:
    sys.path.pop(0)

COLUMNS = ["unit", "key", "partition"]


@pytest.mark.parametrize("name", COLUMNS)
def test_a_share_of_all_events_is_hot_and_the_other_columns_are_even(name: str):
    place = COLUMNS.index(name)
    columns = skew.drawn(skew.Load(**{name: 0.4}), 100_000)
    for number, column in enumerate(columns):
        each = skew.engine.PARTITIONS if number == 2 else 100_000
        hot = 0.4 + 0.6 / each if number == place else 1 / each
        assert np.mean(column == 0) == pytest.approx(hot, abs=0.01)


def test_the_worst_ratio_of_each_cost_is_told():
    found = {"even": skew.Cost(2.0, 4.0, 100.0), "hot": skew.Cost(3.0, 2.0, 150.0)}
    assert skew.worst(found) == {"worst_cpu": 1.5, "worst_late": 1.0, "worst_memory": 1.5}

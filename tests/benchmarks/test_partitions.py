"""The cost of partitions: ratios of the right figures, and a complete assignment."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

sys.path.insert(0, str(ROOT / "benchmarks"))
try:
    import partitions
finally:
    sys.path.pop(0)


def test_overheads_are_of_their_own_shape():
    figures = {"raw_4": {"cpu": 10.0}, "raw_256": {"cpu": 12.0},
               "square_4": {"cpu": 10.0, "frames": 1.0}, "square_64": {"cpu": 11.0, "frames": 2.0},
               "square_256": {"cpu": 15.0, "frames": 8.0}}  # fmt: skip
    assert partitions.compared(figures) == {
        "overhead_256_raw": 0.2, "overhead_64": 0.1, "overhead_256": 0.5, "growth_256": 4.0
    }  # fmt: skip
    assert partitions.compared({"raw_4": {"cpu": 1.0}}) == {}


def test_only_the_shape_square_states_the_partitions_between_the_stages():
    assert partitions.spread("raw", 64) == ""
    assert partitions.spread("square", 64) == "units_partitions = 64\ncells_partitions = 64"


def test_both_topics_count():
    one, other = partitions.Flow(1, 2, 3, 4), partitions.Flow(10, 20, 30, 40)
    assert partitions.sum_of([one, other]) == (11, 22, 33, 44)


def test_partitions_are_assigned_to_all_workers():
    assert 0 < partitions.assigned(64) < 60

"""The benchmark of distinct values: noise and bytes within their promises."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
try:
    import distinct
finally:
    sys.path.pop(0)


def test_noise_and_bytes_are_within_what_is_promised():
    assert 1 <= max(distinct.ratios().values()) <= 1.5
    found = distinct.table(60_000)
    assert found["pairs"] == 60_000 and 8 < found["bytes_per_pair"] <= 16


def test_every_pair_of_the_fill_is_new():
    one, two = distinct.batch(0, 2_000), distinct.batch(1, 2_000)
    assert len(set(one.key) | set(two.key)) == 4_000

"""The held-out benchmark of maps: two halves, and figures that notice a blind start."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]

sys.path[:0] = [str(ROOT / name) for name in ("research", "benchmarks")]
try:
    import _heldout_maps as maps
finally:
    del sys.path[:2]


def test_the_halves_share_no_set() -> None:
    assert not maps.TUNED.keys() & maps.HELD.keys()
    assert len(maps.TUNED) >= 5 and len(maps.HELD) >= 8


@pytest.mark.parametrize("name", ["a ridge", "towns by Zipf's law", "a slope"])
def test_a_first_trigger_is_far_better_than_one_cell(name: str) -> None:
    points = np.clip(maps.HELD[name](), 0, 1)[:3000]
    error, blind = (
        maps.large(points, maps.one_shot(points, 2.0, "t", 16, **given), 16)
        for given in ({}, {"start": "as later"})
    )
    assert error < 0.6 * blind


def test_an_exact_tree_has_no_error() -> None:
    points = np.clip(maps.HELD["a slope"](), 0, 1)[:500]
    domain = maps.Domain.unit(2, 8, "all")
    codes, counts = np.unique(domain.place(points), return_counts=True)
    finest = maps.Leaves(codes, counts.astype(float))
    assert maps.large(points, finest, 16) < 0.05
    assert maps.large(points, finest._replace(count=counts * 2.0), 16) > 0.9

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


def test_a_large_set_is_the_law_of_the_half_with_more_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(maps, "LARGE", 50_000)
    monkeypatch.setattr(maps, "HELD", {name: maps.HELD[name] for name in maps.LAWS})
    monkeypatch.setattr(maps, "HALVES", {"held": maps.HELD})
    found = dict(maps.large_samples("held", quick=False))
    assert found.keys() == maps.LAWS.keys()
    assert {points.shape for points in found.values()} == {(50_000, 2)}
    for name in ("cascade", "a ridge", "a slope"):  # towns are drawn anew
        points, small = found[name], np.clip(maps.HELD[name](), 0, 1)
        assert np.allclose(points.mean(axis=0), small.mean(axis=0), atol=0.03)
    assert not list(maps.large_samples("held", quick=True))


def test_ratios_are_told_by_records_and_epsilon() -> None:
    row = {"records": 2000, "epsilon": 0.5, "privhp, k = 1024": 1.0, "phdstream": 1.0}
    both = [row | {"privhp": 3.0}, row | {"privhp": 1.0, "epsilon": 2.0}]
    first = [{"default": 1.0, "as later": 1.0, "best floor": 1.0}]
    found = {"first triggers": first, "distributions": both, "intervals": [{"covered": 1.0}]}
    totals = maps.totals(found)
    assert totals["privhp_over_phdstream_2000_0.5"] == 3
    assert totals["privhp_over_phdstream_2000_2"] == 1

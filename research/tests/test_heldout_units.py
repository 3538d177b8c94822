"""People in the held-out maps: each has a home, and sends as many records as the law says."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path[:0] = [str(Path(__file__).parents[2] / name) for name in ("research", "benchmarks")]
try:
    import _heldout_units as units
finally:
    del sys.path[:2]


@pytest.mark.parametrize("law", ["20 each", "heavy tails"])
def test_people_live_somewhere(law: str) -> None:
    points = np.random.default_rng(1).random((4_000, 2))
    place, unit = units.people(points, law)
    sent = np.bincount(unit)
    assert (sent == 20).all() if law == "20 each" else sent.max() > 5 * np.median(sent)
    busy = np.flatnonzero(sent >= 10)
    homes = [place[unit == u] for u in busy]
    apart = [np.median(np.abs(home - np.median(home, axis=0))) for home in homes]
    assert np.median(apart) < 0.05  # uniform points would be 0.25 from the middle
    assert {tuple(p) for p in place} <= {tuple(p) for p in points}


def test_totals_compare_with_the_best_of_all_bounds() -> None:
    row = {f"{b}{way}": 0.5 for b in units.BOUNDS for way in ("", ", debiased")}
    row |= {"1": 0.9, "4, debiased": 0.2, "advised": 0.3}
    found = units.totals([row])
    assert found["units_bound_1"] == 0.9
    assert units.brief([row | {"set": "x", "law": "y", "epsilon": 1, "1, exact total": 1}])
    assert found["units_advised_over_best"] == pytest.approx(1.5)

"""The held-out benchmark of ToPL: its squared errors agree with drawn reports."""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hushstream.client import Survey
from hushstream.client.survey import VALUE
from hushstream.mechanisms.topl.fit import simulate

ROOT = Path(__file__).parents[2]

sys.path[:0] = [str(ROOT / name) for name in ("research", "benchmarks")]
try:
    import _heldout_topl as topl
finally:
    del sys.path[:2]


def test_the_halves_share_no_set() -> None:
    tuned, held = ({one.name: one for one in topl.sets(half)} for half in ("tuned", "held"))
    assert len(tuned) >= 20 and len(held) >= 25 and not tuned.keys() & held.keys()
    for one in (*tuned.values(), *held.values()):
        assert one.value.min() >= 0 and one.value.max() <= one.top


def test_the_least_error_is_that_of_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Means of drawn reports have the stated error at the best threshold, and more at others."""
    users, draw = 2000, np.random.default_rng(8)
    monkeypatch.setattr(topl, "USERS", users)
    monkeypatch.setattr(topl, "BEST", users - users // 10)
    one = topl.Values("exponential", np.minimum(draw.exponential(10, 5000), 200), 200)
    row = topl.row_of(one, Fraction(1, 2), 1)
    survey = Survey(Fraction(1, 2), Fraction(200), "heldout")
    n = users - users // 10

    def squared(theta: float) -> float:
        step = max(1, round(theta / 200 * survey.buckets))
        says = np.array([float(survey.estimate(j, step)) for j in range(survey.hybrid.outputs)])
        words = draw.integers(0, 1 << 64, (300 * n, 3), dtype=np.uint64)
        value = draw.choice(one.value, 300 * n)
        codes = simulate(survey, value, np.full(300 * n, VALUE), step, words)
        return float(((says[codes].reshape(300, n).mean(1) - one.value.mean()) ** 2).mean())

    best = squared(row["best_threshold"])
    assert best == pytest.approx(row["best"], rel=0.35)
    assert squared(row["best_threshold"] * 3) > 2 * best < squared(row["best_threshold"] / 3)
    assert row["topl"] >= row["best"] * 0.999


def test_totals_count_each_set_once_for_each_epsilon() -> None:
    rows = [
        {"topl": x, "one_round": 4 * x, "best": 2.0, "whole": 4.0, "covered": 1.0}
        for x in (2.0, 4.0, 20.0)
    ]
    found = topl.totals(rows)
    assert (found["topl_over_best"], found["topl_over_best_worst"]) == (2.0, 10.0)
    assert (found["topl_cells_over_3"], found["topl_cells"]) == (1, 3)
    assert found["topl_over_whole"] == 5.0
    assert found["topl_one_round_over_best"] == 8 and found["topl_one_round_cells_over_3"] == 3

"""The figures of `budget.py` that follow from the accounting, and a year of few users."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
try:
    import budget
finally:
    sys.path.pop(0)


def test_thirty_epochs_cost_less_than_six_and_four_that_share_have_half_the_noise():
    found = budget.composed()
    assert 5.5 < found["thirty_epochs"] < 5.6 and found["epochs_at_30"] == 579
    assert 1.95 < found["shared_gain"] <= 2


def test_a_year_under_a_cap_keeps_most_records(monkeypatch):
    monkeypatch.setattr(budget, "TRIGGERS", 1)
    monkeypatch.setattr(budget, "PIPELINE", budget.PIPELINE.replace('every = "1h"', 'every = "1d"'))
    found = budget.kept(400)
    assert 0.8 < found["kept"] < 1 and found["kept_of_all"] <= found["kept"]

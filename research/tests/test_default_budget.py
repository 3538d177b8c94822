"""The study of a default budget: the rule that it judges, and both defaults under one noise."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path[:0] = [str(Path(__file__).parents[2] / name) for name in ("research", "benchmarks")]
try:
    import _heldout_histogram as heldout
    import default_budget as study
finally:
    del sys.path[:2]

FEW, MANY = "units of one record", "units with many records"


def test_the_rule_falls_from_48_to_12_with_the_part_of_the_window_without_public_keys() -> None:
    assert [study.rule(one) for one in (1, 2, 3, 4, 7, 24, 1000)] == [48, 48, 36, 30, 22, 15, 12]


def test_a_larger_bound_helps_units_with_many_records_and_harms_those_with_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sets = {
        FEW: lambda seed: heldout._grouped(np.arange(8_000) % 20, 1, seed),
        MANY: lambda seed: heldout._favourites(2_000, 20, 10, 60, seed),
    }
    monkeypatch.setattr(heldout, "HALVES", {"sealed": sets})
    monkeypatch.setattr(heldout, "PRIVACY", ((6.0, 1e-9),))
    found = list(study.compared("sealed", quick=True))
    row = {(one["set"], one["triggers"]): one for one in found}
    assert row[FEW, 1]["new_over_old"] > 1.2 > 0.95 > row[MANY, 1]["new_over_old"]
    for one in found:
        assert one["new_over_old"] == pytest.approx(one["new"] / one["old"])
        assert one["old"] > 0.9 and one["new"] > 0.9


def test_totals_are_of_ratios() -> None:
    rows = [{"old": one, "new": 2 * one, "new_over_old": 2.0} for one in (1.0, 1.0, 8.0)]
    found = study.totals(rows)
    assert found["old_mean"] == pytest.approx(2) and found["new_mean"] == pytest.approx(4)
    assert (found["old_median"], found["new_worst"], found["new_over_old_worst"]) == (1, 16, 2)

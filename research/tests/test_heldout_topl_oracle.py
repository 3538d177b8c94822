"""What oracles of ToPL's threshold reach: ordered as stated, with the rule's own figure."""

from __future__ import annotations

import sys
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]

sys.path[:0] = [str(ROOT / name) for name in ("research", "benchmarks")]
try:
    import _heldout_topl as topl
    import _heldout_topl_oracle as oracle
finally:
    del sys.path[:2]

HALF = Fraction(1, 2)


def heavy() -> topl.Values:
    """Values far below the end of their range, with a law that no set of the benchmark has."""
    draw = np.random.default_rng(9)
    return topl.Values("gamma", np.minimum(draw.gamma(3, 10, 20_000), 4000), 4000)


def test_who_knows_more_errs_less() -> None:
    row = oracle.row_of(heavy(), HALF, 4)
    assert row["best"] < row["exact"] < row["told"] < 1.2 * row["topl"]
    assert row["factor"] <= row["topl"]


def test_exact_values_choose_the_threshold_of_least_error() -> None:
    """Compared with a search here, over thresholds and the values of all users."""
    one, survey = heavy(), topl.survey_of(heavy(), HALF, 2)
    users = topl.USERS * float(1 - survey.share)
    noise = survey_noise(survey)
    least = min(
        theta**2 * noise / (4 * users) + np.maximum(one.value - theta, 0).mean() ** 2
        for theta in np.linspace(1, 200, 800)
    )
    row = oracle.row_of(one, HALF, 2)
    assert row["exact"] == pytest.approx(least, rel=0.05)
    assert row["best"] == pytest.approx(least * users / topl.BEST, rel=0.1)


def survey_noise(survey: topl.Survey) -> float:
    """Worst variance of a value report in [-1, 1], computed from its outputs."""
    hybrid = survey.hybrid
    says = np.array([float(survey.estimate(j, survey.buckets)) for j in range(hybrid.outputs)])
    says = 2 * says / float(survey.bound) - 1
    worst = 0.0
    for level in range(0, hybrid.inputs, 8):
        p = np.array(hybrid.weights(level), float)
        p /= p.sum()
        worst = max(worst, float(p @ says**2 - (p @ says) ** 2))
    return worst


def test_the_rules_own_figure_is_that_of_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both use the oracle's channel, because channels differ in error at the same threshold."""
    row = oracle.row_of(heavy(), Fraction(2), 6)
    monkeypatch.setattr(topl, "survey_of", partial(topl.survey_of, channel="hybrid"))
    same = topl.row_of(heavy(), Fraction(2), 6)
    assert row["best"] == same["best"]
    assert row["topl"] == pytest.approx(same["topl"], rel=0.5)


def test_the_factor_in_hindsight_is_the_best_of_those_that_are_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = {}
    for factors in ((1.0,), (0.02,), (1.0, 0.02)):
        monkeypatch.setattr(oracle, "FACTORS", np.array(factors))
        found[factors] = oracle.row_of(heavy(), Fraction(1), 2)
    assert all(row["topl"] == found[1.0,]["factor"] for row in found.values())
    assert found[0.02,]["factor"] > 5 * found[1.0,]["factor"]
    assert found[1.0, 0.02]["factor"] == found[1.0,]["factor"]


def test_totals_tell_median_worst_and_those_above_three() -> None:
    rows = [{"best": 2.0, **dict.fromkeys(oracle.RULES, x)} for x in (2.0, 4.0, 20.0)]
    found = oracle.totals(rows)
    for rule in oracle.RULES:
        name = f"oracle_topl_{rule}_over_best"
        assert (found[name], found[f"{name}_worst"], found[f"{name}_over_3"]) == (2.0, 10.0, 1)

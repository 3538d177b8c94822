"""What oracles reach: figures agree with the benchmark of values, and are ordered as stated."""

from __future__ import annotations

import json
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]

sys.path[:0] = [str(ROOT / name) for name in ("research", "benchmarks")]
try:
    import _heldout_oracle as oracle
    import _heldout_values as values
    import heldout
    from _values import Stream
finally:
    del sys.path[:2]

HALF = Fraction(1, 2)


def steady(factor: float = 1.0) -> Stream:
    """Exponential values, ``factor`` times as large after the warm-up."""
    drawn = np.random.default_rng(8).exponential(20, 4000)
    drawn[500:] *= factor
    return Stream("short", np.rint(drawn).astype(np.int64), 2000)


def test_an_oracle_that_knows_more_errs_less() -> None:
    row = oracle.row_of(steady(), HALF, 20)
    assert row["best"] <= 1.02 * row["threshold"] <= 1.02 * row["warm_threshold"]
    assert row["threshold"] <= row["quiet"] and row["threshold"] <= row["told"] <= row["tops"]
    assert row["warm"] < 1.3 * row["best"] < 1.3 * row["tops"]


def test_nobody_who_knows_the_warm_up_alone_foresees_a_step() -> None:
    row = oracle.row_of(steady(20.0), HALF, 5)
    assert row["warm"] > 20 * row["best"] and row["warm_threshold"] > 20 * row["best"]
    assert row["threshold"] < 3 * row["best"]


def test_the_rule_is_the_one_that_the_benchmark_of_values_measures() -> None:
    """Both draw the same noise of the threshold; here the first guess has none."""
    stream = steady()
    mine, theirs = oracle.row_of(stream, HALF, 12), values.row_of(stream, HALF, 12)
    assert mine["tops"] == pytest.approx(theirs["tops"], rel=0.1)
    assert mine["best"] == theirs["best"]


def test_the_rule_itself_is_among_the_penalties() -> None:
    """No other penalty makes ``told`` worse than the rule, and some make it better."""
    stream, made = steady(), values.defaults(steady(), HALF)
    thresholds = np.array(made.slots.thresholds)
    warm = np.bincount(np.searchsorted(thresholds, stream.values[:500]), minlength=len(thresholds))
    noise, method = oracle.noises(20, len(thresholds), HALF), values.method_of(made)
    ranges, guesses = values.Ranges.of(stream), np.full(len(thresholds), 0.25)
    error = oracle.errors(ranges, thresholds, method, HALF, guesses)
    above, penalty = warm.sum() - np.cumsum(warm), np.array(made.penalty)
    drawn = error[np.argmax(-above - penalty + noise, axis=1)].mean()
    given = thresholds, noise, error
    assert oracle.told(above, penalty, values.rank(made), *given) <= drawn
    assert oracle.told(above, np.zeros_like(penalty), values.rank(made), *given) < error.max()


def test_totals_tell_steady_streams_from_others() -> None:
    row = {"best": 1.0, **dict.fromkeys(oracle.RULES, 2.0), "stream": "uniform"}
    moved = {**row, **dict.fromkeys(oracle.RULES, 8.0), "stream": "step to 5"}
    found = oracle.totals([row, moved])
    assert found["oracle_warm_over_best_steady"] == 2 and found["oracle_warm_over_best_drift"] == 8
    assert found["oracle_tops_over_best_all"] == 5


def test_the_flag_runs_oracles_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(oracle, "streams", lambda half: [steady(), steady(3.0)])
    monkeypatch.setattr(oracle, "EPSILONS", (HALF,))
    monkeypatch.setattr(sys, "argv", ["heldout.py", "--oracle", "--quick", "--json"])
    heldout.main()
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [row["stream"] for row in found["oracle"]] == ["short"]
    assert found["oracle_tops_over_best_all"] == found["oracle_tops_over_best_steady"] > 1
    assert not any(name.startswith("topl") for name in found)

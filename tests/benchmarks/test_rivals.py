"""The benchmark of rivals: their bounds, their costs, and the comparison."""

from __future__ import annotations

import itertools
import math
import operator
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hushstream.mechanisms.accounting import gdp_delta
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.workload import Workload

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
try:
    import _rivals
    import rivals
finally:
    sys.path.pop(0)

BUDGET = _rivals.Budget(6.0, 1e-9, 24)
DRAW = np.random.default_rng


def work(each: int = 40) -> Workload:
    """Units with given numbers of records, half of them in key 0."""
    unit = np.repeat(np.arange(5_000, dtype=np.int32), each)
    key = np.where(np.arange(len(unit)) % 2, 0, np.arange(len(unit)) % 16).astype(np.int32)
    return Workload(unit, key, 5_000, 16)


@pytest.mark.parametrize(("keys", "per_key"), [(1, 1), (3, 2), (16, 40)])
def test_no_unit_gives_more_than_its_bound_and_none_gives_less_than_it_may(
    keys: int, per_key: int
) -> None:
    one = work()
    found = _rivals.bounded(one, len(one.unit), _rivals.Setting(keys, per_key), DRAW(1))
    there = np.unique(np.stack([one.unit, one.key]), axis=1)
    assert (np.bincount(found.unit) == np.minimum(np.bincount(there[0]), keys)).all()
    assert found.records.max() <= per_key
    assert len(np.unique(found.unit * 16 + found.key)) == len(found.key)
    if keys == 16:
        assert (found.counts(16) == one.truth()).all()


def test_keys_that_a_unit_keeps_are_drawn_anew() -> None:
    one = work()
    kept = [_rivals.bounded(one, len(one.unit), _rivals.Setting(1, 1), DRAW(n)) for n in (1, 2)]
    assert (kept[0].key != kept[1].key).mean() > 0.5


@pytest.mark.parametrize("noise", _rivals.OpenDP.noises)
@pytest.mark.parametrize("times", [1, 24])
def test_releases_of_opendp_together_cost_the_budget(noise: str, times: int) -> None:
    pytest.importorskip("opendp")
    budget = BUDGET._replace(times=times)
    epsilon, delta = _rivals.OpenDP(_rivals.Setting(4, 2, noise), budget).cost()
    assert 0.95 * budget.epsilon < epsilon <= budget.epsilon
    assert 0.5 * budget.delta < delta <= budget.delta


def test_releases_of_google_together_cost_the_budget() -> None:
    google = _rivals.Google(_rivals.Setting(4, 1), BUDGET)
    epsilon, delta = google.each(1.0)
    assert delta * BUDGET.times == pytest.approx(BUDGET.delta)
    mu = float(_rivals.gdp_mu(epsilon, delta / 2)) * math.sqrt(BUDGET.times)
    assert float(gdp_delta(BUDGET.epsilon, mu)) <= BUDGET.delta / 2 * (1 + 1e-6)
    assert float(gdp_delta(BUDGET.epsilon, mu)) > 0.98 * BUDGET.delta / 2
    laplace = _rivals.Google(_rivals.Setting(4, 1, "laplace"), BUDGET).each(0.5)
    assert laplace == (BUDGET.epsilon / 48, BUDGET.delta / 24)


def test_a_unit_alone_shows_no_key_of_dp_sips() -> None:
    setting = _rivals.Setting(8, 1, "1/2 counts")
    loud = _rivals.Sips(setting, _rivals.Budget(6.0, 0.2, 1))
    rng, runs, shown = DRAW(3), 4_000, 0
    for run in range(runs):
        n = 1 + run % 8
        alone = _rivals.Bounded(np.zeros(n, int), np.arange(n), np.ones(n, int))
        shown += len(loud.release(alone, 8, rng).key) > 0
    assert 0.01 < shown / runs < 0.1 + 4 * math.sqrt(0.1 / runs)  # half of δ


@pytest.mark.parametrize("kind", list(_rivals.rivals()))
def test_large_counts_of_every_rival_are_near_the_truth(kind: Any) -> None:
    one = work()
    for noise in kind.noises:
        rival = kind(_rivals.Setting(16, 40, noise), BUDGET._replace(epsilon=50.0, times=1))
        accepted = _rivals.bounded(one, len(one.unit), rival.setting, DRAW(1))
        out = rival.release(accepted, 16, DRAW(2))
        order = np.argsort(out.key)
        assert (out.key[order] == np.flatnonzero(one.truth())).all()
        assert np.abs(out.value[order] / one.truth()[out.key[order]] - 1).max() < 0.3


def test_ours_and_theirs_are_judged_alike() -> None:
    one = work(4)
    exact = rivals.figures(one, one.truth() > 0, one.truth(), 1.0)
    assert exact == (np.count_nonzero(one.truth()), 0, 1)
    assert rivals.figures(one, np.zeros(16, bool), one.truth(), 1.0) == (0, 1, 1)
    mine = rivals.ours(rivals.Ours(HistogramParameters(budget=32), 24), BUDGET)(one, 1)
    sips = rivals.theirs(_rivals.Sips(_rivals.Setting(4, 4, "1/2 counts"), BUDGET), BUDGET)
    assert 0 < mine.l1 < sips(one, 1).l1 < 1 and mine.seconds > 0


def test_ours_costs_the_same_with_early_releases() -> None:
    for quick, times in itertools.product((True, False), (1, 4, 24)):
        found = list(rivals.candidates(quick, times))
        assert {one.releases for one in found} == {times, 24}
        assert len(set(map(str, found))) == len(set(found))
    once = rivals.Ours(HistogramParameters(budget=8, factorization="final"), 1)
    early, budget = once._replace(releases=24), BUDGET._replace(times=1)
    plays = [rivals.ours(one, budget) for one in (once, early)]
    loads = [rivals.published(0.003, n) for n in (1, 2)]
    keys = [[play(load, 1).keys for load in loads] for play in plays]
    assert all(map(operator.lt, *keys))


def row(who: str, aim: str, keys: float, l1: float, shape: str = "a") -> dict[str, Any]:
    return {"shape": shape, "epsilon": 1.0, "triggers": 4, "who": who, "by": aim, "keys": keys,
            "l1": l1}  # fmt: skip


def test_ratios_are_over_the_best_rival_of_each_case_and_the_worst_of_cases() -> None:
    rows = [
        row("ours", "l1", 1, 0.2), row("x", "l1", 9, 0.4), row("y", "l1", 9, 0.8),
        row("ours", "keys", 30, 9), row("x", "keys", 10, 0), row("y", "keys", 20, 0),
        row("ours", "l1", 1, 0.3, "b"), row("x", "l1", 9, 0.2, "b"), row("default", "l1", 1, 0.8),
    ]  # fmt: skip
    assert rivals.over_best(rows) == {
        "l1_over_best_rival": {"t4": 1.5}, "keys_over_best_rival": {"t4": 1.5},
    }  # fmt: skip
    assert rivals.over_best(rows, "default") == {"default_l1_over_best_rival": {"t4": 2.0}}


def test_what_is_not_installed_is_named_with_the_way_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_rivals, "dp", None)
    monkeypatch.setattr(_rivals, "partition_selection", None)
    assert list(_rivals.rivals()) == [_rivals.Sips]
    assert _rivals.left_out() == {
        "opendp": "pip install opendp", "google": "pip install python-dp",
    }  # fmt: skip

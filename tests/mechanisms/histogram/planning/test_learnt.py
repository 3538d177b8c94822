"""The learnt budget: its predictions against the mechanism's formulas, and its refusals."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.columns import Batch, empty_units
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.histogram.planning.formulas import forecast
from hushstream.mechanisms.histogram.planning.learnt import LADDER, EpochReleases, chosen, law_of
from hushstream.mechanisms.histogram.planning.play import Run, numbered
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.histogram.tumbling import build
from hushstream.mechanisms.noise.trial import noise_of
from hushstream.mechanisms.parts.unit_profile import STEPS, UnitProfile
from hushstream.mechanisms.stated_shape import Shape
from hushstream.mechanisms.workload import Workload
from scipy.stats import binom

PROFILE = UnitProfile()
SETTING = Setting(Fraction(1), Fraction(1, 10**6), 4)
START = HistogramParameters()
QUIET = Fraction(STEPS**2)  # one unit
COUNTS = np.array([100, 100, 100], np.int64)
SHAPES = {
    "one record each": Shape(3_000, 3_000, 60),
    "many keys": Shape(3_000, 20_000, 200, zipf=1.1),
    "keys of their own": Shape(2_000, 20_000, 100, repeat=0.9),
}


def seen(
    work: Workload, start: HistogramParameters = START, setting: Setting = SETTING
) -> EpochReleases:
    """A noisy profile, and the last release of a window that has the bound of ``start``."""
    n = len(work.unit)
    batch = Batch(
        numbered(np.arange(work.keys)), work.key.astype(np.intp), work.unit.astype(np.intp),
        np.zeros((n, 0), np.int64), np.ones(n, np.int8), np.zeros(work.keys, np.int32),
    )  # fmt: skip
    table = PROFILE.absorb(empty_units(work.users, 1, PROFILE.most), batch)[1] * STEPS
    noise = np.random.default_rng(7).normal(0, float(QUIET) ** 0.5, len(table))
    mechanism = build(start, setting)
    run = Run(mechanism, work, noise_of("learnt"), mechanism.delay)
    for part in work.micro_batches(setting.horizon):
        run.step(part)
    shown = run.shown[run.status > 0]
    return EpochReleases(table + noise.round().astype(np.int64), QUIET, shown)


def errors(work: Workload, parameters: HistogramParameters) -> dict[float, float]:
    """The error of each budget as a share of all records, by the formulas on the true records."""
    found = {}
    for budget in LADDER:
        (look,) = forecast(replace(parameters, budget=budget), SETTING, ((work,),))
        found[budget] = float(look.error[:, 0].sum() / np.abs(look.truth[:, 0]).sum())
    return found


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("bound", ["quadratic", "records"])
def test_the_choice_is_near_the_best_that_is_known_of_the_records(name: str, bound: str) -> None:
    work = SHAPES[name].workload()
    start = replace(START, bound=bound)
    found = chosen(PROFILE, seen(work, start), start, SETTING)
    exact = {b: x for b, x in errors(work, start).items() if found and b in found.expected}
    assert found is not None
    assert exact[found.budget] <= 1.1 * min(exact.values())


def test_where_units_send_one_record_nothing_more_is_counted() -> None:
    found = chosen(PROFILE, seen(SHAPES["one record each"].workload()), START, SETTING)
    assert found is not None and found.budget == 1


def test_a_public_list_needs_no_threshold() -> None:
    work = SHAPES["many keys"].workload()
    listed = replace(SETTING, keys=tuple(numbered(np.arange(work.keys))))
    found = chosen(PROFILE, seen(work, setting=listed), START, listed)
    assert found is not None
    exact = {}
    for budget in LADDER:
        (look,) = forecast(replace(START, budget=budget), listed, ((work,),))
        exact[budget] = float(look.error[:, 0].sum())
    assert exact[found.budget] <= 1.1 * min(exact.values())


@pytest.mark.parametrize("variance", [QUIET, QUIET * 100])
def test_a_profile_of_noise_alone_chooses_nothing(variance: Fraction) -> None:
    """At most one empty profile in a hundred leads to a choice; false-alarm rate 1e-6."""
    runs, rng = 2_000, np.random.default_rng(41)
    empty = np.empty(0, np.int64)
    noise = rng.normal(0, float(variance) ** 0.5, (runs, PROFILE.buckets)).round().astype(np.int64)
    decided = sum(
        chosen(PROFILE, EpochReleases(one, variance, empty), START, SETTING) is not None
        for one in noise
    )
    assert decided <= binom.isf(1e-6, runs, 0.01)


def test_what_stands_out_of_the_noise_is_seen() -> None:
    table = np.zeros(PROFILE.buckets, np.int64)
    table[3] = int(5 * float(QUIET) ** 0.5)
    law = law_of(PROFILE, EpochReleases(table, QUIET, np.empty(0, np.int64)))
    assert np.flatnonzero(law.units).tolist() == [3]


def test_no_bucket_of_noise_outweighs_the_units() -> None:
    """300 units send a record each; with noise of four units 99 of 100 epochs choose at most 2."""
    runs, rng, variance = 100, np.random.default_rng(43), QUIET * 16
    table = np.zeros(PROFILE.buckets, np.int64)
    table[0] = 300 * STEPS
    noise = rng.normal(0, float(variance) ** 0.5, (runs, PROFILE.buckets)).round().astype(np.int64)
    budgets = [
        found.budget
        for one in table + noise
        if (found := chosen(PROFILE, EpochReleases(one, variance, COUNTS), START, SETTING))
    ]
    assert len(budgets) == runs
    assert sum(budget > 2 for budget in budgets) <= binom.isf(1e-6, runs, 0.01)


@pytest.mark.parametrize("counts", [[], [5], [-3, 0, 2], [900, 30, 30, 30, 1]])
def test_any_released_counts_will_do(counts: list[int]) -> None:
    table = np.zeros(PROFILE.buckets, np.int64)
    table[3] = 500 * STEPS
    found = chosen(PROFILE, EpochReleases(table, QUIET, np.array(counts, np.int64)), START, SETTING)
    assert found is not None
    assert all(np.isfinite(x) and x >= 0 for x in found.expected.values())
    assert found.expected[found.budget] == min(found.expected.values())


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"selection": "rounds", "bound": "records"}, "selection"),
        ({"bound": "per-key", "per_key": 2}, "bound"),
    ],
)
def test_what_one_number_does_not_decide_is_refused(given: dict[str, object], names: str) -> None:
    work = SHAPES["one record each"].workload()
    with pytest.raises(ParameterError, match=names):
        chosen(PROFILE, seen(work), replace(START, **given), SETTING)  # type: ignore[arg-type]


def test_a_bound_of_records_ends_where_the_profile_ends() -> None:
    found = chosen(
        PROFILE, seen(SHAPES["many keys"].workload()), replace(START, bound="records"), SETTING
    )
    assert found is not None
    assert max(found.expected) == PROFILE.most
    assert found.budget <= PROFILE.most

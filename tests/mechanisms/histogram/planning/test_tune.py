"""Proposed parameters are near the best on data of the same shape, for three shapes.

Covers: mechanisms/histogram/planning/proposal.py
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.histogram.mechanism import Histogram
from hushstream.mechanisms.histogram.planning import tune as histogram_propose
from hushstream.mechanisms.histogram.planning.play import Run, Workload, play
from hushstream.mechanisms.histogram.planning.tune import plays, propose, resolved
from hushstream.mechanisms.histogram.rounds.mechanism import Rounds
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.histogram.tumbling import build
from hushstream.mechanisms.noise import STEADY, KeyedNoise

SETTING = Setting(Fraction(4), Fraction(1, 10**7), 4)
FIXED = HistogramParameters(delay=0)
QUICK = Setting(Fraction(4), Fraction(1, 10**4), 2)

FINE = [  # budget, weight, factorisation, share of δ for selection, last trigger's share of it
    *itertools.product(
        (1.0, 2.0, 4.0, 8.0, 16.0, 32.0), (0.0, 0.3, 0.5), ("terminal", "final"), (0.5,), (0.5,)
    ),
    *itertools.product((12.0, 26.0), (0.35,), ("final",), (0.15, 0.85), (0.15, 0.85)),
    *itertools.product((1.5, 12.0, 26.0), (0.0, 0.25), ("final",), (0.5,), (0.5,)),
]
GRID = [one for one in FINE if one[0] * (one[1] or 1) ** 2 > 0.04]


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few candidates, for tests that ask which are tried and not how good they are."""
    for name, values in (
        ("BUDGETS", (1.0, 4.0)), ("WEIGHTS", (0.0, 0.5)), ("SHARES", (0.3,)),
        ("FACTORIZATIONS", ("terminal", "toeplitz")), ("PER_KEY", (1, 3)), ("AROUND", ()),
        ("FINALISTS", 2),
    ):  # fmt: skip
        monkeypatch.setattr(histogram_propose, name, values)


@cache
def made(parameters: HistogramParameters, setting: Setting = SETTING) -> Histogram | Rounds:
    return build(parameters, setting)


@pytest.fixture(autouse=True)
def built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calibrations are shared between tests."""
    monkeypatch.setattr(histogram_propose, "build", made)


def keyed(name: str) -> KeyedNoise:
    return KeyedNoise(
        b"p" * 32,
        charge=bytes(32),
        mechanism="m",
        config=b"",
        pipeline="p",
        window=name,
        nonces=STEADY,
    )


def planned(number: int) -> KeyedNoise:
    return keyed(f"plan {number}")


def drawn(shape: str, seed: int, users: int = 5_000) -> Workload:
    rng = np.random.default_rng(seed)
    keys = users // 10
    zipf = (np.arange(keys) + 3.0) ** -1.3
    if shape == "one record each":
        unit = np.arange(users)
        key = rng.choice(keys, users, p=zipf / zipf.sum())
    elif shape == "many keys each":
        unit = np.repeat(np.arange(users // 2), rng.geometric(0.15, users // 2))
        key = rng.choice(keys, len(unit), p=zipf / zipf.sum())
    else:  # repeats one key
        unit = np.repeat(np.arange(users // 2), rng.geometric(0.25, users // 2))
        own = rng.choice(keys, users, p=zipf / zipf.sum())
        key = own[unit]
    order = rng.permutation(len(unit))
    return Workload(unit[order].astype(np.int32), key[order].astype(np.int32), users, keys)


OTHERS = ("one record each", "many keys each")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "shape", ["repeats one key", *(pytest.param(s, marks=pytest.mark.thorough) for s in OTHERS)]
)
def test_the_proposal_is_within_a_tenth_of_the_best(shape: str) -> None:
    """Candidates vary budget, weight, factorisation and split; the data is of the same shape."""
    found = propose(FIXED, SETTING, [[drawn(shape, 1)]], planned)
    real = drawn(shape, 2)

    def error(parameters: HistogramParameters) -> float:
        runs = [Run(made(parameters, SETTING), real, keyed(name)) for name in ("real", "also real")]
        return sum(float(play(run).last[0]) for run in runs)

    every = [
        error(
            replace(
                FIXED, budget=q, adaptive_weight=w, factorization=factor,
                threshold_delta_share=share, last_share=last,
            )
        )
        for q, w, factor, share, last in GRID
    ]  # fmt: skip
    mine = error(found.parameters)
    assert mine <= 1.1 * min(every)
    assert mine < 0.8 * max(every)  # the choice matters
    assert len(found.outcomes) <= plays(FIXED, SETTING)
    best = min(one.score for one in found.outcomes.values())
    assert found.outcomes[found.parameters].score <= 1.05 * best


@pytest.mark.usefixtures("coarse")
def test_every_kind_of_histogram_gets_settings_that_it_accepts() -> None:
    work = drawn("many keys each", 3, 600)
    public = replace(QUICK, keys=tuple(b"%d" % i for i in range(work.keys)))
    sums = replace(QUICK, columns=(("x", 0, 10),), grids=(Fraction(1),))
    value = (work.key[:, None] % 11).astype(np.int64)
    cases = [
        (FIXED, public, work, {"budget", "factorization"}),
        (replace(FIXED, selection="rounds"), QUICK, work,
         {"budget", "factorization", "threshold_delta_share", "last_share"}),
        (replace(FIXED, bound="per-key", budget=6, per_key=2), QUICK, work,
         {"budget", "per_key", "factorization", "threshold_delta_share", "last_share"}),
        (replace(FIXED, aggregate="keys"), QUICK, work,
         {"budget", "factorization", "threshold_delta_share", "last_share"}),
        (replace(FIXED, min_users=3), replace(sums, horizon=1), work._replace(value=value),
         {"budget", "adaptive_weight", "threshold_delta_share", "count_share"}),
    ]  # fmt: skip
    for parameters, setting, sample, settings in cases:
        found = propose(parameters, setting, [[sample]], planned)
        assert set(found.settings) == settings
        build(found.parameters, setting)
        assert found.parameters.min_users == parameters.min_users
        assert found.parameters.bound == parameters.bound
        scores = [one.score for one in found.outcomes.values()]
        assert min(scores) < max(scores) and np.isfinite(scores).all()
        if parameters.bound == "per-key" or parameters.selection == "rounds":
            assert float(found.parameters.budget or 0).is_integer()


@pytest.mark.usefixtures("coarse")
def test_what_hardly_matters_stays_as_it_was_given() -> None:
    one_each = drawn("one record each", 7, 300)
    given = replace(FIXED, budget=1, adaptive_weight=0, last_share=0.4, factorization="terminal")
    strong = replace(QUICK, epsilon=Fraction(50))  # hardly any noise: no setting gains anything
    found = propose(given, strong, [[one_each]], planned)
    assert found.parameters == found.given == resolved(given, strong)
    assert found.given.last_share == 0.4


@pytest.mark.usefixtures("coarse")
def test_windows_of_an_epoch_share_the_bound() -> None:
    """Two windows of one epoch share the bound; two epochs of one window each do not."""
    work = drawn("many keys each", 5, 2000)
    twice = [work, work._replace(window=1)]
    together = propose(FIXED, QUICK, [twice], planned)
    apart = propose(FIXED, QUICK, [[work], [work]], planned)
    one = replace(together.given, budget=4.0, adaptive_weight=0.0)
    assert together.outcomes[one].score > 1.1 * apart.outcomes[one].score


@pytest.mark.usefixtures("coarse")
def test_the_mean_over_triggers_is_another_goal() -> None:
    work = drawn("many keys each", 6, 3000)
    last = propose(FIXED, QUICK, [[work]], planned)
    mean = propose(FIXED, QUICK, [[work]], planned, "mean", repeats=2)
    for found, name in ((last, "last"), (mean, "mean")):
        outcome = found.outcomes[found.parameters]
        assert outcome.score == pytest.approx(float(getattr(outcome, name)[0]) / len(work.unit))
    assert mean.outcomes[mean.given].released > 0


def test_parameters_that_clash_are_refused() -> None:
    work = drawn("one record each", 7, 50)
    with pytest.raises(ParameterError, match="budget"):
        propose(replace(FIXED, bound="records", budget=1.5), QUICK, [[work]], planned)


def test_long_windows_try_what_needs_no_dense_matrix() -> None:
    for horizon, names in ((1024, {"terminal", "final", "toeplitz", "blt", "honaker"}),
                           (1025, {"blt", "normalized"}), (16385, set())):  # fmt: skip
        found = histogram_propose._free(FIXED, replace(SETTING, horizon=horizon))
        assert set(found["factorization"]) == names

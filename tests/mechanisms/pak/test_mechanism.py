"""PAK as a whole: the warm-up's sum, the audit of published flaws, costs, optimiser, settings.

Covers: mechanisms/pak/optimise.py, mechanisms/pak/settings.py
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hushstream.errors import ContractError, ParameterError
from hushstream.mechanisms import accounting, factorization
from hushstream.mechanisms.contract import Setting
from hushstream.mechanisms.in_memory import Memory, Trace, run
from hushstream.mechanisms.noise import STEADY, KeyedNoise, zero
from hushstream.mechanisms.pak.counter import HierarchyPrefix, MatrixPrefix, TreePrefix
from hushstream.mechanisms.pak.mechanism import Pak, RankQuantile
from hushstream.mechanisms.pak.optimise import ThresholdProblem, optimise
from hushstream.mechanisms.pak.settings import PakParameters, build, kind_of, mean_error
from hushstream.mechanisms.parts.thresholds.smooth_quantile import SmoothQuantile
from hushstream.mechanisms.slots.relearning import Exceedance
from hushstream.mechanisms.tables import RowTable

SETTING = Setting(Fraction(1), Fraction(1, 10**6), 20, columns=(("x", 0, 50),))
SMALL = PakParameters(warmup=4, expected=50, counter="tree", factor=1.0, tail=0.05)


def keyed(window: str) -> KeyedNoise:
    return KeyedNoise(
        b"q" * 32,
        charge=b"c" * 32,
        mechanism="pak",
        config=b"",
        pipeline="p",
        window=window,
        nonces=STEADY,
    )


def stream(mechanism: Pak, time: list[int], value: list[float]) -> Trace:
    n = len(time)
    coded = mechanism.encode({"time": np.array(time), "value": np.array(value)})
    trigger = mechanism.slots.closing(np.array(time))
    return Trace(
        trigger, np.arange(n), coded.keys, coded.key, coded.value, np.ones(n, np.int8)
    )  # fmt: skip


def warm_sum(mechanism: Pak, values: list[float], noise: object) -> tuple[int, int, float]:
    """The warm-up's released sum, the threshold, and the variance of the sum."""
    trace = stream(mechanism, [i % 4 for i in range(len(values))], values)
    every = run(Memory(mechanism, noise), trace)  # type: ignore[arg-type]
    out = next(itertools.islice(every, 3, None))
    return int(out.value[0, 0]), int(out.public["threshold"][0]), float(out.variance[0, 0])


def test_the_warmup_is_clipped_at_the_threshold_that_scales_its_noise() -> None:
    """A hostile record moves the exact sum by at most τ; clipped at B it would move it by B."""
    mechanism = replace(build(SMALL, SETTING), chooser=Fixed(7))
    base = [5.0] * 30
    exact, tau, variance = warm_sum(mechanism, base, zero)
    assert tau == 7 and exact == 150
    for value in (-100.0, 3.0, 50.0, 1e9):
        moved, _, again = warm_sum(mechanism, [*base, value], zero)
        assert abs(moved - exact) <= tau and again == variance
        unclipped = min(max(value, 0.0), 50.0)
        assert (unclipped > tau) == (value > tau)
    rest = 1 - mechanism_split(mechanism)
    assert variance == pytest.approx(2 * (7 / float(rest)) ** 2, rel=0.01)


class Fixed:
    """A chooser that always takes one threshold."""

    def __init__(self, theta: int) -> None:
        self.place = build(SMALL, SETTING).slots.thresholds.index(theta)

    def choose(self, histogram: np.ndarray, noise: object, t: int) -> int:
        return self.place


def mechanism_split(mechanism: Pak) -> Fraction:
    assert mechanism.sum_epsilon is not None
    return 1 - mechanism.sum_epsilon


def test_noise_of_the_warmup_sum_has_the_stated_scale() -> None:
    mechanism = replace(build(SMALL, SETTING), chooser=Fixed(7))
    exact, _, variance = warm_sum(mechanism, [5.0] * 30, zero)
    drawn = [warm_sum(mechanism, [5.0] * 30, keyed(str(i)))[0] - exact for i in range(300)]
    ratio = np.mean(np.square(drawn)) / variance
    assert 0.7 < ratio < 1.4
    assert not 0.7 < ratio * 9 / 4 < 1.4 and not 0.7 < ratio * 4 / 9 < 1.4


def test_shares_of_epsilon() -> None:
    """ε1 + ε2 in the warm-up, ε after it; if the sum is kept back, the threshold gets all of ε."""
    for bound in (1, 3):
        parameters = replace(SMALL, bound=bound, split=0.25)
        made = build(parameters, SETTING)
        assert isinstance(made.chooser, RankQuantile) and isinstance(made.counter, TreePrefix)
        assert made.sum_epsilon is not None
        assert bound * (made.chooser.epsilon + made.sum_epsilon) == 1
        assert made.chooser.epsilon * 4 * bound == 1 and made.counter.epsilon * bound == 1
        kept = build(replace(parameters, publish_warmup=False), SETTING)
        assert isinstance(kept.chooser, RankQuantile)
        assert kept.sum_epsilon is None and kept.chooser.epsilon * bound == 1
        assert made.cost().epsilon == 1 and made.cost().delta < Fraction(1, 2**80)


@pytest.mark.parametrize("values", [np.full(400, 37), np.zeros(400, int)])
def test_values_that_are_alike_are_cut_at_once(values: np.ndarray) -> None:
    """No threshold above the values cuts any; a rank rule would pick any of those."""
    made = build(PakParameters(warmup=4, expected=50), replace(SETTING, epsilon=Fraction(4)))
    assert isinstance(made.chooser, Exceedance)
    thresholds = made.slots.thresholds
    counts = np.bincount(np.searchsorted(thresholds, values), minlength=len(thresholds))
    found = [thresholds[made.chooser.choose(counts, keyed(str(i)), 1)] for i in range(20)]
    assert max(found) <= 1.2 * max(int(values.max()), 1) and min(found) >= values.max()


def test_the_penalty_is_the_noise_of_a_total_in_records() -> None:
    """36·√(3V)·m/n·√(θ/B), where V includes the noise of the warm-up's sum."""
    made = build(PakParameters(warmup=4, expected=50, counter="tree", split=0.5), SETTING)
    assert isinstance(made.chooser, Exceedance) and made.sum_epsilon is not None
    late = made.slots.slots - made.slots.warmup_slots
    steps = np.unique(np.ceil(np.arange(1, 65) * late / 64)).astype(int).tolist()
    noise = np.mean([made.counter.variance(1, 0, step) for step in steps])
    noise += 2 / float(made.sum_epsilon) ** 2
    for theta, penalty in zip(made.slots.thresholds, made.chooser.penalty, strict=True):
        ideal = 36 * (3 * noise * theta / made.slots.top) ** 0.5 * made.slots.warmup_slots / late
        assert ideal - 1.01 < penalty <= ideal + 0.01


@pytest.mark.parametrize(("given", "kind"), [
    ({}, "exceedance"), ({"tail": 0.1}, "noisy-max"), ({"factor": 2.0}, "noisy-max"),
    ({"threshold": "smooth", "tail": 0.1}, "smooth"), ({"threshold": "top"}, "top"),
])  # fmt: skip
def test_a_rank_or_a_factor_asks_for_ranks(given: dict[str, Any], kind: str) -> None:
    parameters = PakParameters(warmup=4, expected=50, **given)
    assert kind_of(parameters) == kind
    rules = {"exceedance": Exceedance, "noisy-max": RankQuantile, "smooth": SmoothQuantile}
    assert isinstance(build(parameters, SETTING).chooser, rules.get(kind, type(None)))
    if kind == "noisy-max":
        with pytest.raises(ParameterError, match="exceedance"):
            kind_of(PakParameters(threshold="exceedance", **given))


@pytest.mark.parametrize("bound", [1, 2, 5])
def test_every_division_of_a_unit_fits_the_budget(bound: int) -> None:
    """The cost holds for every j: j records in the warm-up, k - j in the matrix counter."""
    parameters = replace(SMALL, bound=bound, counter="matrix", threshold="smooth", beta=0.25)
    setting = replace(SETTING, epsilon=Fraction(2))
    made = build(parameters, setting)
    assert isinstance(made.counter, MatrixPrefix) and isinstance(made.chooser, SmoothQuantile)
    factor = factorization.build(made.counter.name, made.counter.horizon)
    for inside in range(bound + 1):
        epsilon, delta = Fraction(0), Fraction(0)
        if inside:
            one = made.chooser.epsilon
            epsilon, delta = accounting.group_approximate(one, made.chooser.delta, inside)
            epsilon += inside * (made.sum_epsilon or 0)
        if inside < bound:
            shift = (bound - inside) ** 2 * factor.sensitivity2 * 4**factor.bits
            left = made.cost().delta - delta if inside == 0 or bound > 1 else Fraction(1)
            loss = accounting.gaussian_cost(
                shift, made.counter.variance_at_one, (bound - inside) * factor.noises
            )
            epsilon += accounting.total([loss], left * (1 - Fraction(1, 2**30)))[0]
            delta += left
        assert epsilon <= 2 * (1 + Fraction(1, 10**6)) and delta <= setting.delta


def test_the_default_counter_has_the_least_error() -> None:
    made = build(replace(SMALL, counter="auto"), SETTING)
    others = [
        build(replace(SMALL, counter=name), SETTING) for name in ("tree", "hierarchy", "matrix")
    ]
    errors = [mean_error(one.counter, 16) for one in others]
    assert mean_error(made.counter, 16) == min(errors)
    longer = replace(SETTING, horizon=4004, delta=Fraction(1, 1000))
    assert isinstance(build(replace(SMALL, counter="auto"), longer).counter, MatrixPrefix)
    strong = replace(SETTING, epsilon=Fraction(20))
    assert not isinstance(build(replace(SMALL, counter="tree"), strong).counter, HierarchyPrefix)


@pytest.mark.thorough
def test_the_optimiser_finds_what_gains() -> None:
    """Much data and a small tail favour a threshold; little data or a tail up to B favours B."""
    problem = ThresholdProblem(25_000_000, 1440, Fraction(1), Fraction(1, 2**20), Fraction(20))

    def with_b(one: ThresholdProblem) -> float:
        return float(one.noise(one.records) * one.top)

    for smooth in (False, True):
        choice = optimise(replace(problem, smooth=smooth), [50_000])
        assert with_b(problem) / choice.error > 3
        assert 1 <= choice.rank < 50_000 and choice.factor >= 1 and 0 < choice.split < 1
    free = optimise(problem)
    assert free.error <= optimise(problem, [free.records]).error * (1 + 1e-9)
    wide = replace(problem, scale=Fraction(1440), records=50_000)
    assert optimise(wide, [5000]).error >= with_b(wide)
    assert optimise(replace(problem, published=False), [50_000]).split == 1
    with pytest.raises(ParameterError, match="beta"):
        optimise(replace(problem, smooth=True, beta=Fraction(1, 10**30)), [50_000])


def test_the_raised_quantile() -> None:
    chooser = RankQuantile(Fraction(1), 3, Fraction(3, 2), (1, 2, 4, 8, 16))
    assert chooser.choose(np.array([9, 9, 5, 2, 0]), zero, 3) == 3  # r·4 = 6, rounded up to 8
    assert chooser.choose(np.array([0, 0, 0, 0, 9]), zero, 3) == 4
    drawn = [chooser.choose(np.array([90, 90, 50, 4, 1]), keyed(str(i)), 3) for i in range(200)]
    assert len(set(drawn)) > 1 and math.isclose(np.median(drawn), 3, abs_tol=1)


def test_settings_that_clash_are_named() -> None:
    for parameters, setting, name in (
        (replace(SMALL, threshold="guess"), SETTING, "threshold"),
        (replace(SMALL, counter="abacus"), SETTING, "counter"),
        (replace(SMALL, tail=1.5), SETTING, "tail"),
        (replace(SMALL, split=-0.5), SETTING, "split"),
        (SMALL, replace(SETTING, delta=Fraction(0)), "delta"),
        (replace(SMALL, threshold="smooth", beta=1e-7), SETTING, "beta"),
        (SMALL, replace(SETTING, columns=(("x", 1, 50),)), "columns"),
    ):
        with pytest.raises(ParameterError, match=name):
            build(parameters, setting)


def test_lost_state_stops_the_stream() -> None:
    made = Memory(build(SMALL, SETTING), keyed("lost"))
    for _ in range(5):
        made.trigger()
    made.row_tables[0] = RowTable(made.mechanism.traits)
    with pytest.raises(ContractError, match="missing"):
        made.trigger()


@pytest.mark.parametrize(("counter", "horizon"), [("matrix", 20_000), ("hierarchy", 1_100_000)])
def test_a_counter_that_cannot_count_so_many_slots_is_named(counter: str, horizon: int) -> None:
    parameters = PakParameters(warmup=4, expected=50, counter=counter)
    with pytest.raises(ParameterError, match=rf'counter = .{counter}.: .*take counter = "tree"'):
        build(parameters, replace(SETTING, horizon=horizon))

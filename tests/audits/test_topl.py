"""Audits of what reports reveal, and the published flaws that they must catch.

An audit sees samples of two neighbours (two values of one report), picks an event on one half of
them and bounds epsilon from below on the other half (Clopper and Pearson, 1934). It never claims
more than the truth but with the stated false-alarm rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hushstream.client import Budget, Client, ReportStore, Survey, parse
from hushstream.client.survey import NARROW, RANGE, VALUE
from hushstream.mechanisms.topl import fit as local
from scipy.stats import beta

ALARM = 1e-6
N = 40_000
Sampler = Callable[[float, np.random.Generator], np.ndarray]


def lower_bound(first: np.ndarray, second: np.ndarray) -> float:
    """Epsilon that the samples prove, with confidence 1 - ALARM: the best of many events."""
    half = len(first) // 2
    edges = np.quantile(np.concatenate([first[:half], second[:half]]), np.linspace(0, 1, 201))
    edges = np.unique(np.concatenate([edges, [first[:half].min(), second[:half].min()]]))
    events: list[Callable[[np.ndarray], np.ndarray]] = []
    for edge in edges:
        events += [lambda x, e=edge: x < e, lambda x, e=edge: x >= e]
    pairs = [(first, second), (second, first)]
    best = max(
        ((event, a, b) for event in events for a, b in pairs),
        key=lambda choice: proved(choice[0](choice[1][:half]), choice[0](choice[2][:half])),
    )
    return proved(best[0](best[1][half:]), best[0](best[2][half:]))


def proved(likely: np.ndarray, rare: np.ndarray) -> float:
    k, m, n = int(likely.sum()), int(rare.sum()), len(likely)
    low = beta.ppf(ALARM / 2, k, n - k + 1) if k else 0.0
    high = beta.ppf(1 - ALARM / 2, m + 1, n - m) if m < n else 1.0
    return math.log(low / high) if low else -math.inf


def audit(sampler: Sampler, values: tuple[float, float]) -> float:
    generator = np.random.default_rng(7)
    return lower_bound(*(sampler(value, generator) for value in values))


def ours(group: int, epsilon: str = "2") -> Sampler:
    survey = Survey(Fraction(epsilon), Fraction(100), "s", buckets=64, levels=64)

    def sampler(value: float, generator: np.random.Generator) -> np.ndarray:
        drawn = generator.integers(0, 1 << 64, (N, 3), dtype=np.uint64)
        codes = local.simulate(survey, np.full(N, value), np.full(N, group), 64, drawn)
        if group == RANGE:
            return codes.astype(float)
        says = np.array([float(survey.estimate(j, 64)) for j in range(survey.hybrid.outputs)])
        return says[codes]

    return sampler


@pytest.mark.parametrize("group", [RANGE, VALUE])
@pytest.mark.parametrize("values", [(0.0, 100.0), (0.0, 1e9), (-50.0, 60.0)])
def test_reports_pass_the_audit(group: int, values: tuple[float, float]) -> None:
    assert audit(ours(group), values) <= 2


@pytest.mark.parametrize("group", [RANGE, NARROW])
@pytest.mark.parametrize("values", [(0.0, 100.0), (0.0, 1e9), (-50.0, 60.0), (20.0, 21.0)])
def test_reports_of_two_rounds_pass_the_audit(group: int, values: tuple[float, float]) -> None:
    """On the scale of octaves, and within a range that lies below one of the values."""
    survey = Survey(Fraction(2), Fraction(100), "s", buckets=64, levels=64, rounds=2)

    def sampler(value: float, generator: np.random.Generator) -> np.ndarray:
        drawn = generator.integers(0, 1 << 64, (N, 3), dtype=np.uint64)
        codes = local.simulate(survey, np.full(N, value), np.full(N, group), 50, drawn)
        return codes.astype(float)

    assert 0 <= audit(sampler, values) + 1 <= 3


@pytest.mark.parametrize("values", [(0, 100), (-(10**9), 3), (10**9, 0), (21, 20)])
def test_narrow_reports_pass_the_audit(values: tuple[int, int]) -> None:
    """The device's own code; no output of one value is more than e^2 times as likely as of another.

    Exactly, over all outcomes of the one draw that a report makes.
    """
    survey = Survey(Fraction(2), Fraction(100), "s", buckets=16, levels=4, rounds=2)
    for perturb in (survey.perturb_range, lambda v, u: survey.perturb_narrow(v, 12, u)):
        outputs = []
        for value in values:
            drawn = [perturb(value, lambda n, p=p: p) for p in _draws(survey)]
            assert all(0 <= code < survey.square_wave.outputs for code in drawn)
            outputs.append(dict(zip(_draws(survey), drawn, strict=True)))
        first, second = (_weights(survey, one) for one in outputs)
        for code in range(survey.square_wave.outputs):
            assert first[code] <= second[code] * math.exp(2) * (1 + 1e-9)


def _draws(survey: Survey) -> list[int]:
    """One outcome of the draw for each run of outcomes that give the same output."""
    wave = survey.square_wave
    inside = [k * wave.high for k in range(wave.width)]
    return inside + [wave.width * wave.high + k * wave.low for k in range(wave.inputs - 1)]


def _weights(survey: Survey, outputs: dict[int, int]) -> dict[int, int]:
    """How many outcomes give each output."""
    wave, made = survey.square_wave, dict.fromkeys(range(survey.square_wave.outputs), 0)
    for place, code in outputs.items():
        made[code] += wave.high if place < wave.width * wave.high else wave.low
    return made


@pytest.mark.parametrize("group", [RANGE, VALUE])
def test_the_audit_sees_most_of_epsilon_and_catches_half_of_it(group: int) -> None:
    """Reports made at epsilon 2 but declared as 1 are caught."""
    assert audit(ours(group), (0.0, 100.0)) > 1


def piecewise(value: float, generator: np.random.Generator, moving: bool) -> np.ndarray:
    """Textbook Piecewise at epsilon 2 on [0, 100], in real numbers.

    With ``moving`` the lower end of the domain is overwritten by that of the drawn window before
    the output is scaled back, so that the output's range depends on the raw value.
    """
    root = math.exp(1)
    c, v = (root + 1) / (root - 1), value / 50 - 1
    left = (c + 1) / 2 * v - (c - 1) / 2
    inside = generator.random(N) < root / (root + 1)
    near = left + generator.random(N) * (c - 1)
    far = -c + generator.random(N) * (c + 1)
    drawn = np.where(inside, near, np.where(far < left, far, far + c - 1))
    low = left if moving else 0.0
    return (drawn + 1) / 2 * (100 - low) + low


def test_piecewise_with_a_data_dependent_range_is_caught() -> None:
    generator = np.random.default_rng(0)
    moved = [piecewise(value, generator, True).min() for value in (0.0, 100.0)]
    assert moved == pytest.approx([-61.6, -56.6], abs=0.1)
    assert audit(lambda v, g: piecewise(v, g, True), (0.0, 100.0)) > 2
    assert audit(lambda v, g: piecewise(v, g, False), (0.0, 100.0)) <= 2


def test_square_wave_without_clipping_is_caught() -> None:
    survey = Survey(Fraction(2), Fraction(100), "s", buckets=64)
    wave = survey.square_wave

    def unclipped(value: float, generator: np.random.Generator) -> np.ndarray:
        drawn = generator.integers(0, 1 << 64, (N, 2), dtype=np.uint64)
        level = np.full(N, int(value * 64 / 100))
        return local._draw_window(wave, level, drawn).astype(float)

    assert audit(unclipped, (0.0, 180.0)) > 2
    assert audit(ours(RANGE), (0.0, 180.0)) <= 2


@pytest.mark.thorough
def test_fresh_noise_on_every_retry_is_caught_and_a_stored_report_is_not() -> None:
    """Sixteen attempts at sending, averaged."""
    survey = Survey(Fraction(1), Fraction(100), "s", 1 << 32, buckets=16, levels=16)
    user = next(str(i) for i in range(99) if survey.group(str(i)) == VALUE)
    generator = np.random.default_rng(5)

    def uniform(n: int) -> int:
        return int(generator.integers(0, n, dtype=np.uint64))

    def attempts(value: float, keep: bool) -> np.ndarray:
        out = []
        with ReportStore(":memory:", Budget(Fraction(1_000_000))) as store:
            client = Client(survey, store, uniform)
            for person in range(300):
                slots = [person] * 16 if keep else range(person * 16, person * 16 + 16)
                sent = [parse(client.report(user, slot, value, 16), survey) for slot in slots]
                out.append(sum(float(survey.estimate(one.code, 16)) for one in sent) / 16)
        return np.array(out)

    for keep in (False, True):
        epsilon = lower_bound(attempts(0.0, keep), attempts(100.0, keep))
        assert (epsilon <= 1) == keep

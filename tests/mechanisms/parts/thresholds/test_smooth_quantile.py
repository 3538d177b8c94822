"""The smooth bound by its definition, the conditions of its proof, and audits of known flaws."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.accounting import normal
from hushstream.mechanisms.noise import STEADY, KeyedNoise, zero
from hushstream.mechanisms.parts.thresholds.smooth_quantile import SmoothQuantile, smooth_bound
from hypothesis import given, settings
from hypothesis import strategies as st

from ....oracles.smooth_quantile import exact_bound, sorted_runs

DELTA = Fraction(1, 2**20)
RATES = st.sampled_from([Fraction(1, 100), Fraction(1, 7), Fraction(1), Fraction(3)])
COLUMNS = st.lists(st.integers(0, 40), min_size=1, max_size=25).map(sorted)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(COLUMNS, st.data(), RATES)
def test_divide_and_conquer_equals_the_definition(
    values: list[int], data: st.DataObject, b: Fraction
) -> None:
    """Few distinct values, so that ties occur."""
    place = data.draw(st.integers(1, len(values)))
    runs = sorted_runs(values, place, 40)
    exact = float(exact_bound(runs, b))
    assert smooth_bound(runs, b) == pytest.approx(exact, rel=2**-44, abs=1e-300)


def plain(values: list[int], place: int, top: int, b: float) -> float:
    """S over 0 ≤ i ≤ P ≤ j ≤ m+1, i < j, as in the paper."""
    x = [0, *values, top]
    return max(
        (x[j] - x[i]) * math.exp(-b * (j - i - 1))
        for i in range(place + 1)
        for j in range(place, len(x))
        if i < j
    )


def test_constant_data() -> None:
    c, top, m, place, b = 30, 100, 12, 9, 0.2
    expected = max(
        c * math.exp(-b * (place - 1)), (top - c) * math.exp(-b * (m - place)),
        top * math.exp(-b * m),
    )  # fmt: skip
    runs = sorted_runs([c] * m, place, top)
    assert smooth_bound(runs, Fraction(1, 5)) == pytest.approx(expected, rel=1e-12)
    for c in (0, 20, 100):
        single = sorted_runs([c], 1, 100)
        expected = max(c, 100 - c, 100 * math.exp(-b))
        assert smooth_bound(single, Fraction(1, 5)) == pytest.approx(expected, rel=1e-12)


def test_the_nearest_partner_counts() -> None:
    """The jump right above P counts in full, not times e^-b: 60 zeros, 40 thousands, P = 60."""
    values = [0] * 60 + [1000] * 40
    runs = sorted_runs(values, 60, 1000)
    assert smooth_bound(runs, Fraction(1, 100)) == pytest.approx(1000, rel=1e-12)
    # The published code leaves out this partner, so its bound is too small by e^-b = 0.99.
    x = [0, *values, 1000]
    short = max(
        (x[min(60 + t, 101)] - x[max(60 + t - k - 1, 0)]) * math.exp(-0.01 * k)
        for k in range(60)
        for t in range(k + 1)
    )
    assert short == pytest.approx(990.05, abs=0.01)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(COLUMNS, st.data(), RATES)
def test_neighbours_differ_by_at_most_the_smooth_factor(
    values: list[int], data: st.DataObject, b: Fraction
) -> None:
    """Neighbours by replaced values, and by records added or removed as the histogram counts."""
    place = data.draw(st.integers(1, len(values)))
    changed = values.copy()
    changed[data.draw(st.integers(0, len(values) - 1))] = data.draw(st.integers(0, 40))
    one, other = (smooth_bound(sorted_runs(sorted(x), place, 40), b) for x in (values, changed))
    assert one <= math.exp(b) * other * (1 + 1e-12)
    assert one == pytest.approx(plain(values, place, 40, float(b)), rel=1e-9)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.lists(st.integers(0, 4), min_size=6, max_size=6), st.integers(1, 12), st.data())
def test_bound_and_quantile_under_add_and_remove(
    counts: list[int], rank: int, data: st.DataObject
) -> None:
    """S is b-smooth and bounds how far the quantile moves."""
    chooser = SmoothQuantile(Fraction(1), DELTA, rank, (2, 3, 5, 9, 20, 50))
    more = np.array(counts)
    more[data.draw(st.integers(0, 5))] += 1
    place, bound = chooser.sensitivity(np.array(counts))
    moved, other = chooser.sensitivity(more)
    factor = Fraction(math.exp(float(chooser.b)) * (1 + 1e-12))
    assert bound <= factor * other and other <= factor * bound
    assert abs(place - moved) <= min(bound, other)


def test_absent_records_are_zeros() -> None:
    chooser = SmoothQuantile(Fraction(1), DELTA, 5, (10, 20, 100))
    assert chooser.sensitivity(np.array([0, 2, 1]))[0] == 0
    assert chooser.sensitivity(np.array([2, 2, 1]))[0] == 10
    assert chooser.sensitivity(np.array([0, 0, 9]))[0] == 100


def test_the_constants() -> None:
    chooser = SmoothQuantile(Fraction(1), DELTA, 250, (720, 1440), beta=Fraction(6, 1000))
    log = 20 * math.log(2)
    assert float(chooser.a) == pytest.approx(0.5, rel=1e-4)
    assert float(chooser.b) == pytest.approx(1 / (2 * log), rel=1e-4)
    assert float(chooser.kappa) == pytest.approx(1.4812, abs=2e-4)
    assert float(chooser.offset) == pytest.approx(math.log(1 / 0.012), rel=1e-9)
    # Rounding errors are paid from ε and δ, and conditions are rounded to the safe side.
    assert chooser.a < Fraction(1, 2) and chooser.b < 1 / (2 * Fraction(log))


def test_unsound_conditions_are_refused() -> None:
    thresholds = (720, 1440)
    SmoothQuantile(Fraction(7, 2), Fraction(1, 100), 5, thresholds, beta=Fraction(1, 2))
    for epsilon, delta, beta, name in (
        (Fraction(6), Fraction(1, 100), Fraction(1, 2), "epsilon"),
        (Fraction(1), DELTA, Fraction(1, 10**7), "beta"),  # c ≥ 1: κ would be -7.5
        (Fraction(1), DELTA, Fraction(1, 10**6), "beta"),  # κ = 27.7
        (Fraction(1), Fraction(3, 4), Fraction(1, 10), "delta"),
    ):
        with pytest.raises(ParameterError, match=name):
            SmoothQuantile(epsilon, delta, 5, thresholds, beta=beta)
    with pytest.raises(ParameterError, match="too fine"):
        SmoothQuantile(Fraction(1, 10**4), DELTA, 5, tuple(range(1, 2**22)), Fraction(10))


def test_without_noise_the_threshold_is_the_raised_quantile() -> None:
    thresholds = tuple(range(1, 101))
    chooser = SmoothQuantile(Fraction(2), DELTA, 300, thresholds, Fraction(3, 2), Fraction(1, 2))
    histogram = np.full(100, 20)
    place, bound = chooser.sensitivity(histogram)
    assert place == 86
    assert chooser.offset == 0 and bound > 0
    assert thresholds[chooser.choose(histogram, zero, 1)] == 100
    lower = SmoothQuantile(Fraction(2), DELTA, 300, thresholds, Fraction(1), Fraction(1, 2))
    assert thresholds[lower.choose(histogram, zero, 1)] == 86


def laplace_delta(epsilon: float, slide: float, stretch: float) -> float:
    """δ at ε between Lap(1) and slide + e^stretch·Lap(1), both ways, by integration."""
    z = np.linspace(-400, 400, 4_000_001)
    step = z[1] - z[0]
    scale = math.exp(stretch)
    p = 0.5 * np.exp(-np.abs(z))
    q = 0.5 / scale * np.exp(-np.abs(z - slide) / scale)
    return float(max(
        np.maximum(p - math.exp(epsilon) * q, 0).sum() * step,
        np.maximum(q - math.exp(epsilon) * p, 0).sum() * step,
    ))  # fmt: skip


def gauss_delta(epsilon: float, slide: float, stretch: float) -> float:
    """δ at ε between N(0, 1) and slide + e^stretch·N(0, 1), both ways, by integration."""
    z = np.linspace(-60, 60, 1_200_001)
    step, scale = z[1] - z[0], math.exp(stretch)
    p = np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    q = np.exp(-(((z - slide) / scale) ** 2) / 2) / math.sqrt(2 * math.pi) / scale
    return float(max(
        np.maximum(p - math.exp(epsilon) * q, 0).sum() * step,
        np.maximum(q - math.exp(epsilon) * p, 0).sum() * step,
    ))  # fmt: skip


def test_laplace_noise_is_admissible_and_the_printed_gaussian_is_not() -> None:
    delta, log = float(DELTA), 20 * math.log(2)
    for epsilon in (0.5, 1.0, 2.0):
        chooser = SmoothQuantile(Fraction(epsilon), DELTA, 9, (1, 9), beta=Fraction(1, 2))
        assert laplace_delta(epsilon, float(chooser.a), float(chooser.b)) <= delta * (1 + 1e-3)
    a, b = 1 / math.sqrt(log), 1 / (2 * log)
    assert gauss_delta(1.0, a, 0.0) > 10 * delta  # sliding alone
    assert gauss_delta(1.0, a, b) > 500 * delta


def exact_law(chooser: SmoothQuantile, histogram: np.ndarray) -> list[float]:
    """P(τ = each threshold) by the distribution function of the noise."""
    place, bound = chooser.sensitivity(histogram)
    spread = chooser.kappa * bound / chooser.a

    def below(x: float) -> float:
        return 0.5 * math.exp(x) if x < 0 else 1 - 0.5 * math.exp(-x)

    cuts = [
        float((Fraction(theta) / chooser.factor - place) / spread - chooser.offset)
        for theta in chooser.thresholds[:-1]
    ]
    edges = [0.0, *(below(cut) for cut in cuts), 1.0]
    return [b - a for a, b in itertools.pairwise(edges)]


def test_the_released_threshold_is_private_on_neighbours() -> None:
    """Exact laws of τ for many pairs, add/remove and replace: δ at ε stays below δ."""
    generator = np.random.default_rng(3)
    thresholds = (1, 2, 4, 8, 16, 32, 64)
    chooser = SmoothQuantile(Fraction(1), Fraction(1, 10**4), 4, thresholds, beta=Fraction(1, 4))
    worst = 0.0
    for _ in range(300):
        histogram = generator.integers(0, 5, 7)
        other = histogram.copy()
        other[generator.integers(7)] += 1
        if generator.random() < 0.5 and histogram.sum():
            other[generator.choice(np.flatnonzero(histogram))] -= 1
        p, q = np.array(exact_law(chooser, histogram)), np.array(exact_law(chooser, other))
        worst = max(worst, np.maximum(p - math.e * q, 0).sum(), np.maximum(q - math.e * p, 0).sum())
    assert worst <= 1e-4


@pytest.mark.thorough
def test_the_drawn_thresholds_follow_the_law() -> None:
    thresholds = (1, 2, 4, 8, 16, 32, 64)
    chooser = SmoothQuantile(Fraction(2), Fraction(1, 1000), 4, thresholds, beta=Fraction(1, 4))
    histogram, runs = np.array([3, 4, 2, 5, 3, 2, 1]), 3000
    drawn = np.zeros(7)
    for i in range(runs):
        noise = KeyedNoise(
            b"s" * 32,
            charge=b"c" * 32,
            mechanism="m",
            config=b"",
            pipeline="p",
            window=str(i),
            nonces=STEADY,
        )
        drawn[chooser.choose(histogram, noise, 1)] += 1
    law = np.array(exact_law(chooser, histogram))
    spread = np.sqrt(law * (1 - law) / runs) + 1e-9
    assert (np.abs(drawn / runs - law) < 4.5 * spread).all()


def test_the_weights_do_not_depend_on_a_mathematical_library() -> None:
    runs = sorted_runs([0, 5, 9], 2, 10)
    with localcontext(normal.precision(30)):
        weight = float((-Decimal(1) / 3).exp())
    assert smooth_bound(runs, Fraction(1, 3)) >= 5 * weight


@pytest.mark.parametrize("epsilon", [Fraction(1, 4), Fraction(1, 2), Fraction(1)])
def test_a_draw_of_one_scale_moves_the_threshold_by_the_scale_of_the_proof(
    epsilon: Fraction,
) -> None:
    """Each unit of noise moves it by κ·S·2/ε, from a centre that is raised by G such steps."""
    every = tuple(range(1, 4001))
    rule = SmoothQuantile(epsilon, Fraction(1, 1000), 400, every, beta=Fraction(1, 4))
    histogram = np.zeros(len(every), np.int64)
    histogram[9:49] = 20

    class Planted:
        def laplace(self, purpose, key, index, scale, first):
            return np.full((1, 1), scale.numerator * drawn // scale.denominator)

    place, bound = rule.sensitivity(histogram)
    for drawn in (0, 1, 2):
        moved = rule.kappa * bound * 2 / epsilon * (drawn + rule.offset)
        assert 0 < moved < 1000
        chosen = every[rule.choose(histogram, Planted(), 1)]
        assert chosen == pytest.approx(float(place + moved), abs=1.01)


def _above(epsilon: float, b: float) -> float:
    """δ at ε between a density and the same density narrowed by e^b, on a fine grid."""
    z, step = np.linspace(0, 200, 4_000_001, retstep=True)
    plain, narrow = np.exp(-z), np.exp(b - z * math.exp(b))
    return float(np.maximum(plain - math.exp(epsilon) * narrow, 0).sum() * step)


@pytest.mark.parametrize(("epsilon", "waste", "gain"), [(0.1, 735, 1.77), (1, 59, 1.37)])
def test_the_page_says_what_the_bound_of_a_dilation_wastes(
    epsilon: float, waste: float, gain: float
) -> None:
    """e^-L bounds the exact δ e^-z (1 - e^-b), z = (ε/2 + b)/(e^b - 1): a larger b would do."""
    delta = float(DELTA)
    b = epsilon / 2 / math.log(1 / delta)

    def exact(b: float) -> float:
        return math.exp(-(epsilon / 2 + b) / math.expm1(b)) * -math.expm1(-b)

    assert _above(epsilon / 2, b) == pytest.approx(exact(b), rel=1e-3)
    assert delta / exact(b) == pytest.approx(waste, rel=0.01)
    assert exact(b * (gain - 0.01)) < delta < exact(b * (gain + 0.01))

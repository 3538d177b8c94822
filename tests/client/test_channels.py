"""Exact properties of the local channels, enumerated from their tables.

Covers: client/sampling.py
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hushstream.client.channels import (
    LOW,
    Hybrid,
    TwoPoint,
    Window,
    exp_above,
    exp_below,
    high_weight,
    hybrid,
    piecewise,
    square_wave,
)
from hushstream.client.sampling import PARTS, below, round_randomly
from hushstream.client.survey import Survey
from hypothesis import given, settings
from hypothesis import strategies as st

EPSILONS = [Fraction(text) for text in ("1/1000", "1/10", "1/2", "61/100", "1", "2", "5", "16")]
each = pytest.mark.parametrize("epsilon", EPSILONS, ids=str)


def channels(epsilon: Fraction, inputs: int) -> list[Window | TwoPoint | Hybrid]:
    made = hybrid(epsilon, inputs)
    return [square_wave(epsilon, inputs), made.piecewise, made.two_point, made]


def exact_exp(x: Fraction) -> Decimal:
    with localcontext() as context:
        context.prec = 80
        return (Decimal(x.numerator) / Decimal(x.denominator)).exp()


@each
def test_bounds_of_the_exponential_enclose_it_tightly(epsilon: Fraction) -> None:
    low, high = exp_below(epsilon), exp_above(epsilon)
    with localcontext() as context:
        context.prec = 80
        exact = exact_exp(epsilon)
        assert Decimal(low.numerator) / Decimal(low.denominator) <= exact
        assert Decimal(high.numerator) / Decimal(high.denominator) >= exact
    assert high - low < Fraction(1, 1 << 126)


@each
@pytest.mark.parametrize("inputs", [2, 3, 9, 40])
def test_no_column_ratio_exceeds_e_to_the_epsilon(epsilon: Fraction, inputs: int) -> None:
    for channel in channels(epsilon, inputs):
        columns = zip(*map(channel.weights, range(inputs)), strict=True)
        live = [column for column in columns if any(column)]
        assert min(map(min, live)) > 0
        worst = max(Fraction(max(column), min(column)) for column in live)
        assert worst <= exp_below(epsilon) <= exp_above(epsilon)
        # and nearly all of epsilon is used
        assert float(worst) > 1 + (math.exp(epsilon) - 1) * (1 - 1e-4)


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(2)], ids=str)
def test_no_column_ratio_exceeds_it_at_the_default_resolution(epsilon: Fraction) -> None:
    for channel in channels(epsilon, 513):
        rows = [channel.weights(level) for level in range(513)]
        live = [column for column in zip(*rows, strict=True) if any(column)]
        assert max(Fraction(max(c), min(c)) for c in live) <= exp_below(epsilon)


@each
@pytest.mark.parametrize("inputs", [2, 9, 40])
def test_rows_sum_to_the_total(epsilon: Fraction, inputs: int) -> None:
    for channel in channels(epsilon, inputs):
        for level in range(inputs):
            weights = channel.weights(level)
            assert len(weights) == channel.outputs
            assert sum(weights) == channel.total


@each
@pytest.mark.parametrize("inputs", [2, 3, 33])
def test_means_are_the_value_exactly(epsilon: Fraction, inputs: int) -> None:
    for channel in channels(epsilon, inputs):
        for level in range(inputs):
            weights = enumerate(channel.weights(level))
            mean = sum((w * channel.decode(j) for j, w in weights), Fraction(0)) / channel.total
            assert mean == Fraction(2 * level, inputs - 1) - 1


@each
def test_two_point_variance_is_the_formula(epsilon: Fraction) -> None:
    channel = TwoPoint(21, high_weight(epsilon))
    reach = (math.exp(epsilon) + 1) / (math.exp(epsilon) - 1)
    assert float(channel.reach) == pytest.approx(reach, rel=2e-4)
    alone = Hybrid(piecewise(epsilon, 21), channel, Fraction(0))
    for level in range(21):
        value = Fraction(level, 10) - 1
        assert alone.variance(level) == channel.reach**2 - value**2


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_piecewise_variance_is_near_the_formula(epsilon: float) -> None:
    channel = piecewise(Fraction(epsilon), 801)
    alone = Hybrid(channel, TwoPoint(801, channel.high), Fraction(1))
    root = math.exp(epsilon / 2)
    for level in (0, 200, 400, 700, 800):
        value = level / 400 - 1
        formula = value**2 / (root - 1) + (root + 3) / (3 * (root - 1) ** 2)
        assert float(alone.variance(level)) == pytest.approx(formula, rel=0.01)


@pytest.mark.parametrize("epsilon", [0.3, 0.5, 1.0, 2.0, 4.0])
def test_hybrid_worst_variance_is_near_the_formula_and_below_its_parts(epsilon: float) -> None:
    made = hybrid(Fraction(epsilon), 401)
    worst = float(max(made.variance(level) for level in (0, 100, 200, 300, 400)))
    reach = (math.exp(epsilon) + 1) / (math.exp(epsilon) - 1)
    root = math.exp(epsilon / 2)
    formula = reach**2
    if epsilon > 0.61:
        formula = (reach**2 + (root + 3) / (3 * (root - 1))) / root
    assert worst == pytest.approx(formula, rel=0.01)
    alone = 1 / (root - 1) + (root + 3) / (3 * (root - 1) ** 2)
    assert worst <= min(reach**2, alone) * 1.001


def test_square_wave_at_epsilon_one() -> None:
    e = math.e
    half = (e - e + 1) / (2 * e * (e - 2))
    assert half == pytest.approx(0.25608, abs=5e-6)
    high = e / (2 * half * e + 1)
    assert 2 * half * high + high / e == pytest.approx(1)
    channel = square_wave(Fraction(1), 4000)
    assert (channel.width - 1) / 2 / 4000 == pytest.approx(half, abs=1 / 4000)
    inside = channel.high * channel.width / channel.total
    assert inside == pytest.approx(2 * half * high, abs=1e-3)
    assert channel.low * 4000 / channel.total == pytest.approx(high / e, abs=1e-3)


@each
def test_outputs_stay_within_fixed_bounds(epsilon: Fraction) -> None:
    made = hybrid(epsilon, 65)
    decoded = [made.decode(j) for j in range(made.outputs)]
    fine = decoded[: made.piecewise.outputs]
    assert fine[0] == -fine[-1] and max(map(abs, fine)) == fine[-1]
    root = math.exp(epsilon / 2)
    assert decoded[-1] == -decoded[-2] == made.two_point.reach
    if epsilon <= 5:  # one bucket is the narrowest possible window
        assert float(fine[-1]) == pytest.approx((root + 1) / (root - 1), rel=0.05)


def enumerated(channel: Window | TwoPoint, level: int) -> list[int]:
    """Number of uniform integers that lead to each output."""
    counts = [0] * channel.outputs
    for place in range(channel.total):
        counts[channel.draw(level, lambda n, place=place: place)] += 1
    return counts


@pytest.mark.parametrize("width", [1, 2, 5])
@pytest.mark.parametrize("inputs", [2, 3, 6])
def test_draws_follow_the_weights_exactly(inputs: int, width: int) -> None:
    for channel in (Window(inputs, width, 7, 3), TwoPoint(inputs, 7, 3)):
        for level in range(inputs):
            assert enumerated(channel, level) == channel.weights(level)


def test_hybrid_draws_follow_the_weights_exactly() -> None:
    made = Hybrid(Window(3, 2, 5, 2), TwoPoint(3, 5, 2), Fraction(2, 3))
    for level in range(3):
        counts = [Fraction(0)] * made.outputs
        for branch in range(3):
            size = made.piecewise.total if branch < 2 else made.two_point.total
            for place in range(size):
                feed = iter([branch, place])
                counts[made.draw(level, lambda n, feed=feed: next(feed))] += Fraction(1, 3 * size)
        assert counts == [Fraction(weight, made.total) for weight in made.weights(level)]


@given(st.fractions(0, 50))
def test_random_rounding_has_the_exact_mean_to_half_a_part(exact: Fraction) -> None:
    """Bisection counts the draws that round up, of 2^64."""
    asked: list[int] = []

    def rounded(drawn: int) -> int:
        return round_randomly(exact, lambda n: asked.append(n) or drawn)

    low, high, floor = 0, PARTS, rounded(PARTS - 1)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if rounded(middle) > floor else (low, middle)
    assert abs(floor + Fraction(low, PARTS) - exact) <= Fraction(1, 2 * PARTS)
    assert {rounded(0) - floor, rounded(PARTS - 1) - floor} <= {0, 1}
    assert set(asked) == {PARTS}


VALUES = [
    0,
    100,
    50,
    Fraction(100, 3),
    1e-300,
    33.3,
    math.pi,
    Fraction(10**40 + 1, 10**40),
    -5,
    1e9,
]


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(2)])
def test_every_value_draws_the_same(monkeypatch: pytest.MonkeyPatch, epsilon: Fraction) -> None:
    """Ranges, their order and numbers of bits are the same for all values and both answers."""
    survey = Survey(epsilon, Fraction(100), "s", buckets=32, levels=16)
    for share in (Fraction(0), Fraction(1, 3), Fraction(1, 2), Fraction(999, 1000)):
        patterns = {tuple(drawn(monkeypatch, survey, value, share)) for value in VALUES}
        assert len(patterns) == 1 and len(next(iter(patterns))) >= 7


def drawn(
    monkeypatch: pytest.MonkeyPatch, survey: Survey, value: object, share: Fraction
) -> list[object]:
    """Ranges asked for, then bits drawn, if each draw is ``share`` of its range."""
    asked: list[object] = []

    def uniform(n: int) -> int:
        asked.append(n)
        return int(n * share)

    def bits(k: int) -> int:
        asked.append(f"{k} bits")
        return int((1 << k) * share / 2)  # below half of any range: never refused

    monkeypatch.setattr("hushstream.client.sampling.randbits", bits)
    for given_ in ((uniform,), ()):
        survey.perturb_range(value, *given_)
        survey.perturb_value(value, 7, *given_)
    return asked


def test_uniform_integers_reject_without_bias(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = iter([7, 6, 5, 4])
    monkeypatch.setattr("hushstream.client.sampling.randbits", lambda bits: next(feed))
    assert below(5) == 4  # 7, 6 and 5 are refused
    assert below(1) == 0  # nothing is drawn
    with pytest.raises(ValueError, match="n = 0"):
        below(0)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 1 << 80))
def test_uniform_integers_stay_in_range(n: int) -> None:
    assert 0 <= below(n) < n


def test_low_weight_resolves_the_smallest_epsilon() -> None:
    assert high_weight(Fraction(1, 1000)) > LOW

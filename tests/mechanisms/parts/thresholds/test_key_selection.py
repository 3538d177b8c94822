"""Thresholds: the union bound they must satisfy, and the test itself."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.parts.thresholds.key_selection import (
    Exposure,
    first_crossing,
    shares,
    thresholds,
)

LEVELS = [3.0, 5.0, 4.0, 2.5]


def quantile(t: int, beta: Fraction) -> Fraction:
    """Upper-tail quantile of N(0, LEVELS[t-1]²)."""
    return Fraction(-LEVELS[t - 1] * NormalDist().inv_cdf(float(beta)))


def crossing(level: float, margin: float) -> float:
    return 0.5 * math.erfc(margin / level / math.sqrt(2))


def splits(budget: int, keys: int) -> list[tuple[int, ...]]:
    """All ways for one unit to spread its quadratic budget over a few keys of its own."""
    most = math.isqrt(budget)
    every = itertools.combinations_with_replacement(range(most + 1), keys)
    return [m for m in every if 0 < sum(one * one for one in m) <= budget]


@pytest.mark.parametrize("budget,last", [(1, 0.5), (12, 0.5), (12, 0.1), (7, 0.9)])
def test_no_way_to_spread_the_budget_beats_delta(budget: int, last: float) -> None:
    delta = Fraction(1, 1000)
    exposure = Exposure(Fraction(budget), math.isqrt(budget))
    least = thresholds(shares(4, delta, Fraction(str(last))), exposure, quantile, steps=256) / 256
    worst = max(
        sum(
            crossing(level, at - m)
            for level, at in zip(LEVELS, least, strict=True)
            for m in spread
            if m
        )
        for spread in splits(budget, 7)
    )
    assert worst <= float(delta) * (1 + 1e-6)
    assert worst > 0.4 * float(delta)  # and not wasteful


def test_thresholds_without_the_union_over_triggers_fail() -> None:
    """Published thresholds hold for one trigger; over T they fail up to T times as often."""
    delta, exposure = Fraction(1, 1000), Exposure(Fraction(1), 1)
    marginal = thresholds([delta] * 4, exposure, quantile, steps=256) / 256
    total = sum(crossing(level, at - 1) for level, at in zip(LEVELS, marginal, strict=True))
    assert total > 3.9 * float(delta)


def test_a_least_number_of_units_moves_every_threshold() -> None:
    exposure, beta = Exposure(Fraction(1), 1), shares(4, Fraction(1, 100))
    plain = thresholds(beta, exposure, quantile, steps=256)
    moved = thresholds(beta, exposure, quantile, min_units=5, steps=256)
    assert (moved - plain == 4 * 256).all()


def test_shares_add_up() -> None:
    for horizon in (1, 2, 7):
        beta = shares(horizon, Fraction(1, 10**9), Fraction(1, 3))
        assert len(beta) == horizon and sum(beta) == Fraction(1, 10**9)
    with pytest.raises(ParameterError):
        shares(0, Fraction(1, 2))
    with pytest.raises(ParameterError):
        thresholds([Fraction(0)], Exposure(Fraction(1), 1), quantile)


def test_first_crossing_is_the_first() -> None:
    rng = np.random.default_rng(0)
    count, noise = rng.integers(0, 9, 200), rng.integers(-9, 9, (200, 6))
    bar = np.arange(12, 6, -1)
    got = first_crossing(count, noise, bar)
    for row in range(200):
        hits = [u for u in range(6) if count[row] + noise[row, u] >= bar[u]]
        assert got[row] == (hits[0] if hits else -1)
    assert first_crossing(count, noise[:, :0], bar[:0]).tolist() == [-1] * 200


def decided(least: np.ndarray, gate: int, others: int, net: int) -> float:
    """Probability that a key is shown if a unit's ``net`` records flip its gate, else 0."""
    count = others + net
    if (count >= gate) == (others >= gate):
        return 0.0
    margins = zip(LEVELS, least, strict=True)
    return sum(crossing(level, bar - count) for level, bar in margins)


@pytest.mark.parametrize("budget,gate", [(1, 1), (9, 1), (9, 3), (16, 6)])
def test_a_unit_rarely_opens_or_closes_a_gate_whatever_others_hold(budget: int, gate: int) -> None:
    """With deletions a unit also affects the gate of keys that other units have touched."""
    delta, most = Fraction(1, 1000), math.isqrt(budget)
    exposure = Exposure(Fraction(budget), most)
    least = thresholds(shares(4, delta), exposure, quantile, min_units=gate, steps=256) / 256
    for m in range(1, most + 1):
        nets = range(-m, m + 1)
        worst = max(decided(least, gate, s, net) for s in range(-20, 40) for net in nets)
        assert 0 < worst <= float(delta) * m * m / budget * (1 + 1e-6)
    low = thresholds(shares(4, delta), exposure, quantile, min_units=1, steps=256) / 256
    unmoved = max(decided(low, gate, s, most) for s in range(-20, 40))
    assert gate == 1 or unmoved > float(delta)  # thresholds that ignore the gate fail

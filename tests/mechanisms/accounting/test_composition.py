"""Composition of several epochs' charges: limits hold, and no sum is below what `total` proves."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.accounting import gdp_delta, gdp_mu, total
from hushstream.mechanisms.accounting.composition import GRID, Spent, charge_of, room, within
from hushstream.mechanisms.accounting.costs import add, fits
from hushstream.mechanisms.contract import Cost
from hypothesis import given, settings
from hypothesis import strategies as st

NANO = Fraction(1, 10**9)
# ε = 1, δ = 1e-9 an epoch, half of δ for keys.
EPOCH = charge_of(Fraction(1), NANO, Cost(gdp_mu(1, NANO / 2) ** 2, Fraction(0), NANO / 2))
PURE = charge_of(Fraction(1), Fraction(0), Cost(Fraction(0), Fraction(1)))

costs = st.builds(
    Cost,
    st.fractions(0, 1, max_denominator=1000),
    st.fractions(0, Fraction(1, 10), max_denominator=1000),
    st.fractions(0, NANO, max_denominator=10**12),
)
charges = st.builds(charge_of, st.just(Fraction(4)), st.just(2 * NANO), costs)


def test_thirty_epochs_cost_less_than_six_and_a_limit_of_thirty_lasts_for_years():
    month = Spent().plus(EPOCH, 30)
    assert 5.5 < month.composed() < 5.6 and month.epsilon == 30 and month.delta == 30 * NANO
    assert room(Spent(), EPOCH, Fraction(30), None, 10_000) == 579


@given(st.lists(charges, min_size=1, max_size=6), st.integers(1, 40))
def test_the_composed_cost_is_that_of_the_list_rounded_up(parts, times):
    spent = Spent()
    for one in parts:
        spent = spent.plus(one, times)
    listed = [one.joint for one in parts for _ in range(times)]
    assert (spent.joint, spent.epochs) == (add(listed), len(listed))
    proved = min(total(listed, spent.delta)[0], spent.epsilon)
    assert proved <= spent.composed() <= proved + 2 * GRID


@given(st.lists(costs, min_size=1, max_size=8), st.fractions(0, 8, max_denominator=64))
def test_what_fits_is_what_the_total_proves(parts, epsilon):
    delta = 20 * NANO
    joint, squares = add(parts), sum((part.epsilon**2 for part in parts), Fraction(0))
    proved = total(parts, delta)[0]
    near = Fraction(1, 2**30)  # the total is rounded up
    if fits(joint, squares, epsilon, delta):
        assert proved <= epsilon + near
    else:
        assert proved > epsilon - near


@settings(max_examples=40)
@given(charges, st.fractions(4, 60, max_denominator=4), st.booleans(), st.integers(0, 5))
def test_the_room_ends_where_one_more_epoch_would_pass_a_limit(one, limit, bounded, before):
    limits = limit, (20 * NANO if bounded else None)
    spent = Spent().plus(one, before)
    left = room(spent, one, *limits, 10_000)
    assert left == 0 or within(spent.plus(one, left), *limits)
    assert left == 10_000 or not within(spent.plus(one, left + 1), *limits)


def test_pure_costs_add_up_and_limits_are_exact():
    assert Spent().plus(PURE, 5).composed() == 5
    assert room(Spent(), PURE, Fraction(30), None, 100) == 30
    tenth = charge_of(Fraction(1, 10), Fraction(0), Cost(Fraction(0), Fraction(1, 10)))
    assert room(Spent(), tenth, Fraction(1), None, 100) == 10  # in doubles, the sum is below 1
    assert room(Spent(), tenth, Fraction(999, 1000), None, 100) == 9
    assert room(Spent(), EPOCH, None, 7 * NANO, 100) == 7
    assert room(Spent(), EPOCH, None, None, 100) == 100


def test_nothing_is_proved_below_the_failures_that_were_charged():
    month = Spent().plus(EPOCH, 30)
    with pytest.raises(ParameterError, match="less than what was charged"):
        month.composed(29 * NANO)
    assert month.composed(60 * NANO) < month.composed()
    assert Spent().composed() == 0
    assert not fits(month.joint, month.squares, Fraction(30), month.joint.delta)
    assert not fits(month.joint, month.squares, Fraction(30), Fraction(1))


@pytest.mark.thorough
def test_a_limit_on_the_curve_itself_would_not_hold_where_terms_differ():
    """An adaptive choice of the next term gains more than any fixed plan that the curve allows.

    After Gaussian releases of μ₁² the rest of (ε, δ) buys a pure step of e, or Gaussian ones up to
    μ². The adversary sees the loss so far, which is N(μ₁²/2, μ₁²), and then takes the better one.
    """
    epsilon, mu1, mu = 2.0, 0.55, float(gdp_mu(2, Fraction(1, 1000)))
    delta = float(gdp_delta(2, Fraction(mu)))
    pure = next(
        float(e) for e in np.linspace(epsilon, 0, 4001)
        if gdp_delta(Fraction(epsilon - e), Fraction(mu1)) <= delta
    )  # fmt: skip
    loss, width = np.linspace(-4, 6, 20_001, retstep=True)
    density = np.exp(-((loss - mu1**2 / 2) ** 2) / (2 * mu1**2)) / math.sqrt(2 * math.pi) / mu1
    with_pure = np.maximum(1 - np.exp(epsilon - loss - pure), 0)
    rest = math.sqrt(mu**2 - mu1**2)
    later = np.linspace(-8, 8, 401)
    more = (later[1] - later[0]) * np.exp(-(later**2) / 2) / math.sqrt(2 * math.pi)
    after = loss[:, None] + rest**2 / 2 + rest * later
    with_gaussian = np.maximum(1 - np.exp(epsilon - after), 0) @ more
    planned = [float((density * one).sum() * width) for one in (with_pure, with_gaussian)]
    chosen = float((density * np.maximum(with_pure, with_gaussian)).sum() * width)
    assert max(planned) < 1.01 * delta < 1.05 * delta < chosen

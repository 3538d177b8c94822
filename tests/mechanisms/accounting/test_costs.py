"""Accounting: oracles, agreement with dp-accounting, safe rounding.

Covers: mechanisms/accounting/_conversions.py, mechanisms/accounting/normal.py
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting.dp_event import GaussianDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hushstream.errors import ParameterError
from hushstream.mechanisms import accounting
from hushstream.mechanisms.accounting import normal, total
from hushstream.mechanisms.contract import Cost
from hypothesis import given, settings
from hypothesis import strategies as st

EPSILONS = st.floats(1e-3, 50)
DELTAS = st.floats(1e-15, 0.2)


def exact_delta(epsilon: Fraction, mu: Fraction) -> mpmath.mpf:
    with mpmath.workdps(120):
        e, m = (mpmath.mpf(x.numerator) / x.denominator for x in (epsilon, mu))
        return mpmath.ncdf(-e / m + m / 2) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2)


def test_oracle_of_the_default_budget() -> None:
    assert float(accounting.gdp_mu(6, Fraction(5, 10**10))) == pytest.approx(0.95818, abs=5e-6)


@pytest.mark.parametrize("horizon", [(1, 1), (2, 2), (7, 3), (8, 4), (100, 7), (1024, 11)])
def test_tree_levels(horizon: tuple[int, int]) -> None:
    assert accounting.tree_levels(horizon[0]) == horizon[1]


@pytest.mark.parametrize("x", [-40, -8, -2, -0.5, 0, 0.3, 1.99, 2, 2.5, 6, 37, 300])
@pytest.mark.parametrize("digits", [60, 160])
def test_tail_encloses_the_truth(x: float, digits: int) -> None:
    with mpmath.workdps(400):
        truth = mpmath.erfc(mpmath.mpf(x) / mpmath.sqrt(2)) / 2
        low, high = (mpmath.mpf(str(b)) for b in normal.tail(Fraction(x), digits))
        assert low <= truth <= high
        assert high - low <= mpmath.mpf(10) ** -18 * (1 + x * x) * truth


@settings(deadline=None, max_examples=30)
@given(EPSILONS, DELTAS)
def test_calibrated_mu_is_safe_and_tight(epsilon: float, delta: float) -> None:
    mu = accounting.gdp_mu(epsilon, delta)
    assert exact_delta(Fraction(epsilon), mu) <= mpmath.mpf(delta)
    assert exact_delta(Fraction(epsilon), mu * Fraction(1000001, 1000000)) > mpmath.mpf(delta)
    assert accounting.gdp_delta(epsilon, mu) <= Fraction(delta)


@settings(deadline=None, max_examples=30)
@given(st.floats(0.01, 8), DELTAS)
def test_reported_epsilon_is_safe_and_tight(mu: float, delta: float) -> None:
    epsilon = accounting.gdp_epsilon(mu, delta)
    if epsilon:
        assert exact_delta(epsilon, Fraction(mu)) <= mpmath.mpf(delta)
        assert exact_delta(epsilon * Fraction(999999, 10**6), Fraction(mu)) > mpmath.mpf(delta)
    else:
        assert exact_delta(Fraction(0), Fraction(mu)) <= mpmath.mpf(delta)


@pytest.mark.parametrize(
    ("epsilon", "mu"), [(0, 1e-300), (1e-9, 1e-6), (1, 5e-324), (100, 3), (700, 30), (0, 30)]
)
def test_delta_is_an_upper_bound_in_the_tails(epsilon: float, mu: float) -> None:
    found = accounting.gdp_delta(epsilon, mu)
    assert 0 < found <= 1
    with mpmath.workdps(700):
        truth = exact_delta(Fraction(epsilon), Fraction(mu)) if mu > 1e-9 else mpmath.mpf(0)
        assert mpmath.mpf(found.numerator) / found.denominator >= truth


@pytest.mark.parametrize(("mu", "delta"), [(0.3, 1e-6), (1, 1e-9), (2.5, 1e-5)])
def test_agrees_with_dp_accounting(mu: float, delta: float) -> None:
    event = GaussianDpEvent(1 / mu)
    exact = PLDAccountant().compose(event).get_epsilon(delta)
    renyi = RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    ours = float(accounting.gdp_epsilon(mu, delta))
    assert ours == pytest.approx(exact, rel=1e-3)
    assert ours <= renyi.compose(event).get_epsilon(delta) * 1.0001
    assert ours <= float(accounting.zcdp_epsilon(mu**2 / 2, delta))


def test_composition_agrees_with_dp_accounting() -> None:
    sigmas, delta = (3.0, 4.0, 5.0), 1e-7
    accountant = PLDAccountant()
    for sigma in sigmas:
        accountant.compose(GaussianDpEvent(sigma))
    costs = [Cost(mu2=Fraction(1 / sigma) ** 2) for sigma in sigmas]
    assert float(total(costs, delta)[0]) == pytest.approx(accountant.get_epsilon(delta), rel=1e-3)


@settings(deadline=None, max_examples=30)
@given(EPSILONS, DELTAS)
def test_zcdp_round_trip(epsilon: float, delta: float) -> None:
    rho = accounting.zcdp_rho(epsilon, delta)
    log = math.log(1 / delta)
    assert float(rho) == pytest.approx((math.sqrt(log + epsilon) - math.sqrt(log)) ** 2, rel=1e-6)
    assert accounting.zcdp_epsilon(rho, delta) <= Fraction(epsilon)


# --- discrete Gaussians -------------------------------------------------------------------------


def discrete(s2: float, reach: int) -> np.ndarray:
    z = np.arange(-reach, reach + 1)
    weight = np.exp(-z * z / (2 * s2))
    return weight / weight.sum()


@pytest.mark.parametrize(
    ("s", "shifts"), [(1.5, (1,)), (2.0, (1, 2)), (4.0, (3, 1)), (9.0, (4, 4))]
)
def test_discrete_gaussian_is_covered_by_its_cost(s: float, shifts: tuple[int, ...]) -> None:
    """The exact δ of joint discrete releases stays below what `total` claims, nearly tightly."""
    law = discrete(s * s, 200)
    loss_law = {0.0: 1.0}
    for d in shifts:
        z = np.arange(-200, 201)
        loss = (d * d - 2 * z * d) / (2 * s * s)
        joint: dict[float, float] = {}
        for (l0, p0), (l1, p1) in product(loss_law.items(), zip(loss, law, strict=True)):
            if p0 * p1 > 1e-30:
                key = round(l0 + l1, 9)
                joint[key] = joint.get(key, 0.0) + p0 * p1
        loss_law = joint
    losses, mass = np.array(list(loss_law)), np.array(list(loss_law.values()))
    cost = accounting.gaussian_cost(sum(d * d for d in shifts), Fraction(s) ** 2, len(shifts))
    for delta in (1e-3, 1e-6, 1e-9):
        epsilon = float(total([cost], delta)[0])
        true = float((mass * -np.expm1(np.minimum(epsilon - losses, 0))).sum())
        assert true <= delta * (1 + 1e-6)
    fine = accounting.gaussian_cost(4**10 * 5, Fraction(s * 2**10) ** 2 * 5, 100)
    assert fine.epsilon < Fraction(1, 1000)


def test_lemma_bounds_the_ratio_to_rounded_noise() -> None:
    for s in (0.5, 1.0, 3.0, 10.0):
        law = discrete(s * s, 60)
        edges = np.array([math.erfc(-(z - 0.5) / (s * math.sqrt(2))) / 2 for z in range(-60, 62)])
        rounded = np.diff(edges)
        seen = rounded[60 - int(4 * s) : 61 + int(4 * s)]
        ratio = law[60 - int(4 * s) : 61 + int(4 * s)] / seen
        assert ratio.max() <= 1 / (1 - 1 / (24 * s * s)) * (1 + 1e-9)


def test_continuous_accounting_alone_would_be_wrong() -> None:
    """On a coarse grid the true δ exceeds the continuous Gaussian's δ(ε, μ), so slack is needed."""
    s, d = 1.0, 1
    z = np.arange(-60, 61)
    loss = (d * d - 2 * z * d) / (2 * s * s)
    worst = 0.0
    for epsilon in np.linspace(0.5, 8, 200):
        true = float((discrete(s * s, 60) * -np.expm1(np.minimum(epsilon - loss, 0))).sum())
        worst = max(worst, true / float(accounting.gdp_delta(epsilon, d / s)))
    assert worst > 1.05


@settings(deadline=None, max_examples=25)
@given(
    st.floats(0.2, 20),
    st.floats(1e-12, 1e-3),
    st.integers(1, 100),
    st.sampled_from([8, 12, 16]),
    st.integers(1, 20_000),
)
def test_calibrated_variance_fits(e: float, delta: float, q: int, bits: int, n: int) -> None:
    shift = Fraction(q * 4**bits)
    variance = accounting.gaussian_variance(e, delta, shift, n) if bits > 8 else None
    if variance is None:
        cost = accounting.gaussian_cost(shift, shift * 100 + n, n)
        assert total([cost], delta)[0] > 0
        return
    assert total([accounting.gaussian_cost(shift, variance, n)], delta)[0] <= Fraction(e)
    ideal = float(shift) / float(accounting.gdp_mu(e, delta)) ** 2
    assert ideal * (1 - 1e-9) <= float(variance) <= ideal * 1.02


@pytest.mark.parametrize("s", [1.5, 6.0])
@pytest.mark.parametrize("weights", [(1.0,), (1.0, 1.0), (0.5, 2.0), (1.0, -0.25, 0.75)])
def test_sum_tail_is_sound(s: float, weights: tuple[float, ...]) -> None:
    """Against the exact law of the weighted sum."""
    sums = {0: 1.0}
    reach = int(11 * s)
    for w in weights:
        law = dict(zip(range(-reach, reach + 1), discrete(s * s, reach), strict=True))
        grown: dict[int, float] = {}
        for (a, p), (z, r) in product(sums.items(), law.items()):
            grown[a + int(4 * w) * z] = grown.get(a + int(4 * w) * z, 0.0) + p * r
        sums = grown
    norm2, norm1 = sum(w * w for w in weights), sum(map(abs, weights))
    for beta in (0.2, 1e-2, 1e-4, 1e-7):
        x = float(accounting.sum_tail(beta, Fraction(s) ** 2, norm2, norm1, len(weights)))
        assert sum(p for a, p in sums.items() if a / 4 >= x) <= beta


def test_sum_tail_beats_the_sub_gaussian_bound() -> None:
    variance, beta = Fraction(13 * 4**12), 1e-12
    ours = accounting.sum_tail(beta, variance, 9, 60, 1000)
    sub = math.sqrt(2 * float(variance) * 9 * math.log(1 / beta))
    assert float(ours) < 0.96 * sub
    plain = float(accounting.normal_quantile(beta)) * math.sqrt(float(variance) * 9)
    assert float(ours) == pytest.approx(plain, rel=1e-3)


@settings(deadline=None, max_examples=30)
@given(st.floats(1e-300, 0.499))
def test_quantile_is_safe_and_tight(beta: float) -> None:
    z = accounting.normal_quantile(beta)
    with mpmath.workdps(60):
        point = mpmath.mpf(z.numerator) / z.denominator
        assert mpmath.erfc(point / mpmath.sqrt(2)) / 2 <= mpmath.mpf(beta)
        assert mpmath.erfc(point * (1 - mpmath.mpf(2) ** -35) / mpmath.sqrt(2)) / 2 > beta


# --- composition and filters --------------------------------------------------------------------


def test_pure_parts_add_to_the_gaussian_epsilon() -> None:
    gaussian, pure = Cost(mu2=Fraction(1)), Cost(epsilon=Fraction(1, 10))
    alone, delta = total([gaussian], 1e-6)
    assert delta == Fraction(1e-6)
    joint = total([gaussian, pure], 1e-6)[0]
    assert joint <= alone + Fraction(1, 10)
    assert joint > alone


def test_many_small_pure_parts_use_zcdp() -> None:
    parts = [Cost(epsilon=Fraction(1, 100))] * 1000
    assert float(total(parts, 1e-6)[0]) == pytest.approx(
        0.05 + 2 * math.sqrt(0.05 * math.log(1e6)), rel=1e-6
    )
    assert total(parts, 0) == (10, 0)


def test_coupling_deltas_leave_less_for_the_gaussian() -> None:
    parts = [Cost(mu2=Fraction(1), delta=Fraction(5, 10**10))]
    assert total(parts, Fraction(1, 10**9))[0] == accounting.gdp_epsilon(1, Fraction(5, 10**10))
    with pytest.raises(ParameterError):
        total(parts, Fraction(5, 10**10))


def test_group_privacy() -> None:
    epsilon, delta = accounting.group_approximate(0.5, 1e-9, 4)
    assert epsilon == 2
    assert float(delta) == pytest.approx(1e-9 * math.expm1(2) / math.expm1(0.5), rel=1e-12)
    assert delta >= Fraction(1e-9) * Fraction(math.expm1(2) / math.expm1(0.5) * (1 - 1e-15))


def test_parameters_are_checked() -> None:
    for call in (
        lambda: accounting.gdp_mu(-1, 0.1),
        lambda: accounting.gdp_mu(1, 1),
        lambda: accounting.gdp_mu(float("nan"), 0.1),
        lambda: accounting.gdp_delta(1, 0),
        lambda: accounting.gdp_epsilon(1, 0),
        lambda: accounting.zcdp_rho(0, 0.1),
        lambda: accounting.gaussian_cost(1, Fraction(1, 2), 1),
        lambda: accounting.gaussian_cost(1, 100, 10**6),
        lambda: accounting.gaussian_variance(20, 0.01, 1, 10**5),
        lambda: accounting.sum_tail(0.1, 1, 1, 1, 100),
        lambda: accounting.normal_quantile(0),
        lambda: accounting.group_approximate(1, 1e-9, 0),
        lambda: accounting.tree_levels(0),
    ):
        with pytest.raises(ParameterError):
            call()


def test_pure_parts_beside_a_gaussian_one_count_by_their_squares() -> None:
    """Bun & Steinke 2016: ε-DP is ε²/2-zCDP, and zCDP adds up."""
    parts = [Cost(mu2=Fraction(1, 100)), *[Cost(epsilon=Fraction(1, 20))] * 400]
    rho = (Fraction(1, 100) + 400 * Fraction(1, 400)) / 2
    assert total(parts, Fraction(1, 10**6))[0] == accounting.zcdp_epsilon(rho, Fraction(1, 10**6))


def test_the_pure_part_of_rounding_grows_with_the_releases() -> None:
    few, many = (accounting.gaussian_cost(Fraction(9), Fraction(100), n).epsilon for n in (5, 50))
    assert many - few > 4 * 45 / (24 * Fraction(100))


def test_what_leaves_nothing_is_refused() -> None:
    for delta in (1, Fraction(3, 2)):
        with pytest.raises(ParameterError):
            total([Cost(epsilon=Fraction(1))], delta)
    with pytest.raises(ParameterError, match="too coarse"):
        accounting.sum_tail(Fraction(1, 10), 1, 1, 1, 13)

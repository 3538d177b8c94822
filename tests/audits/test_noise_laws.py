"""Draws through the whole path follow their exact laws, and agree with OpenDP's.

Every statistic of ours is one fixed number; OpenDP draws from the system, and its tests have a
false-alarm rate of 10⁻⁹.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest
from hushstream.mechanisms.noise import statistical_distance
from numpy.typing import NDArray
from scipy import stats

from ..mechanisms.noise.test_keyed import I64, NOISE, ONE, many
from ..oracles.noise import Law, gaussian_law, laplace_law, variance_of

LAWS: list[tuple[str, Fraction]] = [
    ("gauss", Fraction(1, 2)),
    ("gauss", Fraction(1)),
    ("gauss", Fraction(200, 7)),
    ("gauss", Fraction(10**4)),
    ("laplace", Fraction(1, 3)),
    ("laplace", Fraction(1)),
    ("laplace", Fraction(25, 2)),
    ("laplace", Fraction(300)),
]
each_law = pytest.mark.parametrize(("kind", "parameter"), LAWS, ids=lambda x: str(x))


def law(kind: str, parameter: Fraction) -> Law:
    if kind == "gauss":
        return gaussian_law(parameter, int(20 * float(parameter) ** 0.5) + 5)
    return laplace_law(parameter, int(60 * parameter) + 40)


def p_value(drawn: I64, expected: Law) -> float:
    """Chi-square over values, the rare ones of either side together."""
    values = np.array(list(expected))
    share = np.array([float(p) for p in expected.values()])
    common = np.flatnonzero(share * len(drawn) >= 10)
    low, high = values[common[0]], values[common[-1]]
    seen = np.bincount(np.clip(drawn, low - 1, high + 1) - low + 1, minlength=high - low + 3)
    below, above = share[values < low].sum(), share[values > high].sum()
    wanted = np.concatenate([[below], share[common], [above]]) * len(drawn)
    seen, wanted = _merged(seen.astype(float), wanted)
    return float(stats.chisquare(seen, wanted * seen.sum() / wanted.sum()).pvalue)


def _merged(seen: NDArray[np.float64], wanted: NDArray[np.float64]) -> tuple:
    for end in (0, -1):
        if wanted[end] < 10:
            inner = 1 if end == 0 else -2
            seen[inner] += seen[end]
            wanted[inner] += wanted[end]
            seen, wanted = np.delete(seen, end), np.delete(wanted, end)
    return seen, wanted


@each_law
def test_frequencies_follow_the_law(kind: str, parameter: Fraction) -> None:
    assert p_value(many(kind, parameter), law(kind, parameter)) > 1e-3


@each_law
@pytest.mark.parametrize("factor", [Fraction(2, 3), Fraction(3, 2)])
def test_a_wrong_scale_is_told_apart(kind: str, parameter: Fraction, factor: Fraction) -> None:
    wrong = parameter * (factor**2 if kind == "gauss" else factor)
    assert p_value(many(kind, parameter, 20_000), law(kind, wrong)) < 1e-9


@each_law
def test_moments_match_exact_sums(kind: str, parameter: Fraction) -> None:
    drawn, exact = many(kind, parameter).astype(float), law(kind, parameter)
    variance = variance_of(exact)
    fourth = float(sum(p * value**4 for value, p in exact.items()))
    assert abs(drawn.mean()) < 4 * (variance / len(drawn)) ** 0.5
    spread = ((fourth - variance**2) / len(drawn)) ** 0.5
    assert abs((drawn**2).mean() - variance) < 4 * spread


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(2), Fraction(40)])
def test_laplace_meets_its_closed_forms(scale: Fraction) -> None:
    a = float((-Decimal(scale.denominator) / scale.numerator).exp())
    drawn = many("laplace", scale, 1_000_000)
    at_zero, variance = (1 - a) / (1 + a), 2 * a / (1 - a) ** 2
    assert abs((drawn == 0).mean() - at_zero) < 4 * (at_zero * (1 - at_zero) / len(drawn)) ** 0.5
    assert drawn.var() == pytest.approx(variance, rel=0.01)
    tail = a**20 * 2 * a / (1 + a)  # P(|z| > 20)
    count = int((np.abs(drawn) > 20).sum())
    assert stats.binomtest(count, len(drawn), tail).pvalue > 1e-3


@pytest.mark.parametrize("variance", [Fraction(1), Fraction(100), Fraction(2**19)], ids=str)
def test_gaussian_tails(variance: Fraction) -> None:
    sigma = float(variance) ** 0.5
    drawn = np.abs(many("gauss", variance, 2_000_000))
    exact = gaussian_law(variance, int(9 * sigma) + 1) if sigma < 100 else None
    for width in (2, 3, 4):
        at = int(width * sigma)
        tail = (
            float(sum(p for value, p in exact.items() if abs(value) > at))
            if exact
            else 2 * stats.norm.sf((at + 0.5) / sigma)
        )
        assert stats.binomtest(int((drawn > at).sum()), len(drawn), tail).pvalue > 1e-3


@pytest.mark.parametrize("exponent", [6, 12, 18, 28])
def test_huge_gaussians(exponent: int) -> None:
    variance = Fraction(10**exponent)
    drawn = many("gauss", variance)
    assert stats.kstest(drawn / 10 ** (exponent / 2), "norm").pvalue > 1e-3
    for base in (64, 64 * 64):  # the seams of the decomposition
        counts = np.bincount(drawn % base, minlength=base) if variance > base**3 else None
        assert counts is None or stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("scale", [10**4, 10**6, 10**9, 10**15])
def test_huge_laplace(scale: int) -> None:
    drawn = many("laplace", scale)
    assert stats.kstest(drawn / scale, "laplace").pvalue > 1e-3
    if scale > 10**6:
        assert stats.chisquare(np.bincount(drawn % 4096, minlength=4096)).pvalue > 1e-3


@pytest.mark.parametrize("kind", ["gauss", "laplace"])
def test_tiny_scales_draw_zero(kind: str) -> None:
    """At 10⁻⁴ anything else has a probability below 10⁻²⁰⁰⁰."""
    assert not many(kind, Fraction(1, 10**4), 1000).any()
    assert statistical_distance(kind, Fraction(1, 10**4)) <= Fraction(2, 2**128)


def test_bits_are_uniform() -> None:
    words = NOISE.bits("p", ONE, np.arange(200_000), np.ones(200_000, np.int64)).reshape(-1, 2)
    for word in words.T:
        for shift in (0, 24, 56):
            counts = np.bincount(((word >> np.uint64(shift)) & np.uint64(255)).astype(int))
            assert stats.chisquare(counts).pvalue > 1e-3


# --- OpenDP -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def opendp() -> Iterator[None]:
    dp.enable_features("contrib")
    yield
    dp.disable_features("contrib")


@pytest.mark.spread(3)
@pytest.mark.parametrize("scale", [0.5, 7.0, 300.0])
@pytest.mark.parametrize("kind", ["gauss", "laplace"])
@pytest.mark.usefixtures("opendp")
def test_agrees_with_opendp(kind: str, scale: float) -> None:
    space = dp.vector_domain(dp.atom_domain(T=int))
    if kind == "gauss":
        peer = dp.m.make_gaussian(space, dp.l2_distance(T=float), scale=scale)
    else:
        peer = dp.m.make_laplace(space, dp.l1_distance(T=int), scale=scale)
    theirs = np.array(peer([0] * 20_000))
    power = 2 if kind == "gauss" else 1
    assert _two_sample(theirs, many(kind, Fraction(scale) ** power)) > 1e-9
    assert _two_sample(theirs, many(kind, (Fraction(scale) * 3 / 2) ** power)) < 1e-9


def _two_sample(first: I64, second: I64) -> float:
    """Chi-square of homogeneity over forty bins of equal weight."""
    edges = np.unique(np.quantile(second, np.linspace(0.02, 0.98, 40)))
    counts = [
        np.bincount(np.searchsorted(edges, s), minlength=len(edges) + 1) for s in (first, second)
    ]
    table = np.array(counts)[:, np.sum(counts, axis=0) > 0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return float(stats.chi2_contingency(table).pvalue)

"""Samplers: exact distance to the ideal laws, decompositions, range, and what breaks them."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from math import isqrt

import numpy as np
import pytest
from hushstream.mechanisms.noise import _samplers as samplers
from hushstream.mechanisms.noise import _tables as tables
from hushstream.mechanisms.noise import keyed as noise
from hushstream.mechanisms.noise._samplers import Sampler
from hushstream.mechanisms.noise._tables import Table
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ...oracles.noise import gaussian_law, laplace_law, law_of_table, total_variation

Law = dict[int, Fraction]
VARIANCES = [Fraction(1, 10**4), Fraction(1, 30), Fraction(1), Fraction(100, 7), Fraction(10**4)]
SCALES = [Fraction(1, 10**4), Fraction(1, 3), Fraction(1), Fraction(20, 7), Fraction(128)]


def no_ties(stage: int, ties: NDArray[np.intp]) -> NDArray[np.uint64]:
    raise AssertionError(f"{len(ties)} ties at stage {stage}")


def law_of(sampler: Sampler) -> Law:
    """The exact law of a sampler of at most two tables, by enumeration of their values."""
    if len(sampler.stages) == 1:
        return law_of_table(sampler.stages[0])
    fine, rest = ([*law_of_table(t).items()] for t in sampler.stages)
    law: dict[int, int] = {}
    for x, p in rest:
        weight = int(p * (1 << tables.GRID))
        for y, q in fine:
            value = _combined(x, y, sampler.base, sampler.folded)
            law[value] = law.get(value, 0) + weight * q.numerator * (
                (1 << tables.GRID) // q.denominator
            )
    return {value: Fraction(p, 1 << 2 * tables.GRID) for value, p in law.items()}


def _combined(x: int, y: int, base: int, folded: bool) -> int:
    """The recombination, as stated in the module's docstring."""
    if not folded:
        return base * x + y
    return base * x + y if x >= 0 else -1 - (base * (-1 - x) + y)


@pytest.mark.parametrize("variance", [*VARIANCES, Fraction((1 << 18) + 1, 1)], ids=str)
def test_gaussian_is_within_the_stated_distance(variance: Fraction) -> None:
    sampler = samplers.gaussian(variance)
    law = law_of(sampler)
    with localcontext() as context:
        context.prec = 90
        exact = gaussian_law(variance, max(max(law), 15 * isqrt(int(variance) + 1)))
        distance = total_variation(exact, law)
        assert distance <= Decimal(sampler.distance.numerator) / sampler.distance.denominator
    assert sampler.distance <= noise.DELTA_PER_DRAW


@pytest.mark.parametrize("scale", [*SCALES, Fraction(257, 2)], ids=str)
def test_laplace_is_within_the_stated_distance(scale: Fraction) -> None:
    sampler = samplers.laplace(scale)
    law = law_of(sampler)
    with localcontext() as context:
        context.prec = 90
        distance = total_variation(laplace_law(scale, max(max(law), int(90 * scale) + 1)), law)
        assert distance <= Decimal(sampler.distance.numerator) / sampler.distance.denominator
    assert sampler.distance <= noise.DELTA_PER_DRAW


def test_too_fine_a_convolution_is_told_apart() -> None:
    """With a fine stage of variance k²/8 the sum is not Gaussian, and the distance shows it."""
    base, fine = 64, Fraction(64**2, 8)
    variance = Fraction((1 << 18) + 1)
    parts = [samplers.gaussian(fine), samplers.gaussian((variance - fine) / base**2)]
    wrong = Sampler((parts[0].stages[0], parts[1].stages[0]), base, False, Fraction(0))
    with localcontext() as context:
        context.prec = 90
        assert total_variation(gaussian_law(variance, 7700), law_of(wrong)) > Decimal("0.05")


@given(st.fractions(min_value=Fraction(1, 10**4), max_value=10**12))
@settings(max_examples=25, deadline=None)
def test_every_variance_is_served_within_the_bound(variance: Fraction) -> None:
    sampler = samplers.gaussian(variance)
    assert sampler.distance <= noise.DELTA_PER_DRAW
    spread = sum(
        float(sampler.base ** (2 * i)) * _second_moment(t) for i, t in enumerate(sampler.stages)
    )
    if variance > 4:  # then a discrete Gaussian's variance is σ² up to 10⁻³⁰
        assert spread == pytest.approx(float(variance), rel=1e-9)


def _second_moment(table: Table) -> float:
    return float(sum(p * value * value for value, p in law_of_table(table).items()))


@given(st.fractions(min_value=Fraction(1, 10**4), max_value=10**9))
@settings(max_examples=25, deadline=None)
def test_every_scale_is_served_within_the_bound(scale: Fraction) -> None:
    assert samplers.laplace(scale).distance <= noise.DELTA_PER_DRAW


def test_largest_parameters_stay_within_bound_and_integers() -> None:
    gauss, laplace = (
        samplers.gaussian(noise.LARGEST_VARIANCE),
        samplers.laplace(noise.LARGEST_SCALE),
    )
    for sampler in (gauss, laplace):
        assert sampler.distance <= noise.DELTA_PER_DRAW
        assert _extreme(sampler) < 1 << 62


def _extreme(sampler: Sampler) -> int:
    tops = [max(-t.offset, t.offset + len(t.high)) for t in sampler.stages]
    return sum(top * sampler.base**i for i, top in enumerate(tops))


@pytest.mark.parametrize("parameter", [Fraction(2**19), Fraction(10**12), Fraction(10**15)])
def test_gaussian_words_combine_as_stated(parameter: Fraction) -> None:
    sampler = samplers.gaussian(parameter)
    words, values = _words(sampler)
    expected = sum(v * sampler.base**i for i, v in enumerate(values))
    np.testing.assert_array_equal(sampler.draw(words, no_ties), expected)


@pytest.mark.parametrize("scale", [Fraction(10**3), Fraction(10**9)])
def test_laplace_digits_combine_as_stated(scale: Fraction) -> None:
    sampler = samplers.laplace(scale)
    words, values = _words(sampler)
    *digits, rest = values
    low = sum(d * sampler.base**i for i, d in enumerate(digits))
    top = sampler.base ** len(digits)
    expected = np.where(rest >= 0, top * rest + low, -1 - (top * (-1 - rest) + low))
    np.testing.assert_array_equal(sampler.draw(words, no_ties), expected)


def _words(sampler: Sampler) -> tuple[list[NDArray[np.uint64]], list[NDArray[np.int64]]]:
    rng = np.random.default_rng(5)
    words = [rng.integers(0, 2**64, 5000, np.uint64) for _ in sampler.stages]
    values = []
    for table, word in zip(sampler.stages, words, strict=True):
        values.append(table.offset + np.searchsorted(table.high, word, side="right"))
    return words, values


def test_ties_ask_the_word_of_their_own_stage() -> None:
    sampler = samplers.gaussian(Fraction(2**19))
    middle = [len(t.high) // 2 - 5 for t in sampler.stages]  # no other threshold has its high half
    on = [t.high[i] for t, i in zip(sampler.stages, middle, strict=True)]
    words = [np.array([on[0], on[0] + np.uint64(1)]), np.array([on[1] + np.uint64(1), on[1]])]
    asked: list[tuple[int, list[int]]] = []

    def low(stage: int, ties: NDArray[np.intp]) -> NDArray[np.uint64]:
        asked.append((stage, ties.tolist()))
        return sampler.stages[stage].low[[middle[stage]] * len(ties)]

    fine, coarse = (t.offset + i + 1 for t, i in zip(sampler.stages, middle, strict=True))
    expected = fine + 64 * coarse
    assert sampler.draw(words, low).tolist() == [expected, expected]
    assert sorted(asked) == [(0, [0]), (1, [1])]
    below = sampler.draw(words, lambda stage, ties: low(stage, ties) - np.uint64(1))
    assert (below - expected).tolist() == [-1, -64]

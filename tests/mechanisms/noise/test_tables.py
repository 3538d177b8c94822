"""Tables: fixed-point exponentials, exact probabilities, guide and ties."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hushstream.mechanisms.noise._tables import (
    BITS,
    GRID,
    Table,
    build,
    exp_minus,
    gaussian_weights,
    powers,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ...oracles.noise import exp_decimal, law_of_table

Words = NDArray[np.uint64]
ONE = 1 << GRID


def never(ties: NDArray[np.intp]) -> Words:
    raise AssertionError(f"{len(ties)} ties where none can be")


def given_low(low: Words) -> Callable[[NDArray[np.intp]], Words]:
    return lambda ties: low[ties]


def ranks(table: Table, uniforms: list[int]) -> list[int]:
    """The definition: offset plus the number of thresholds at or below U."""
    thresholds = table.thresholds()
    return [table.offset + sum(t <= u for t in thresholds) for u in uniforms]


def drawn(table: Table, uniforms: list[int]) -> list[int]:
    high = np.array([u >> 64 for u in uniforms], np.uint64)
    low = np.array([u & (2**64 - 1) for u in uniforms], np.uint64)
    return table.draw(high, given_low(low)).tolist()


@given(st.fractions(min_value=0, max_value=400))
@settings(max_examples=200, deadline=None)
def test_exp_is_right_to_one_unit(x: Fraction) -> None:
    with localcontext() as context:
        context.prec = 140
        assert abs(Decimal(exp_minus(x)) - exp_decimal(x) * 2**BITS) <= 1


@pytest.mark.parametrize("variance", [Fraction(1, 7), Fraction(5), Fraction(3001, 2)])
def test_gaussian_weights_lose_no_more_than_stated(variance: Fraction) -> None:
    weights = gaussian_weights(variance)
    with localcontext() as context:
        context.prec = 140
        for z, weight in enumerate(weights):
            exact = exp_decimal(z * z / (2 * variance)) * 2**BITS
            assert abs(exact - weight) <= (z + 1) * (z + 2)
        left_out = exp_decimal(len(weights) ** 2 / (2 * variance))
    assert left_out < Decimal(2) ** -159


@given(st.fractions(min_value=Fraction(1, 1000), max_value=3), st.integers(1, 60))
@settings(max_examples=50, deadline=None)
def test_powers_lose_no_more_than_stated(x: Fraction, limit: int) -> None:
    terms = list(powers(x, 1 << BITS, limit))
    assert len(terms) <= limit
    with localcontext() as context:
        context.prec = 140
        for i, term in enumerate(terms):
            assert abs(exp_decimal(x * i) * 2**BITS - term) <= 2 * i + 2


weights_lists = st.lists(st.integers(0, 10**6), min_size=1, max_size=40).filter(any)


@given(weights_lists, st.integers(-1000, 1000))
@settings(deadline=None)
def test_probabilities_are_the_weights_rounded_to_the_grid(weights: list[int], offset: int) -> None:
    table = build(offset, weights)
    exact = {offset + i: Fraction(w, sum(weights)) for i, w in enumerate(weights)}
    rounded = law_of_table(table)
    assert sum(rounded.values()) == 1
    assert set(rounded) <= set(exact)
    distance = sum(abs(p - rounded.get(z, 0)) for z, p in exact.items()) / 2
    assert distance <= table.distance


@given(weights_lists, st.lists(st.integers(0, ONE - 1), max_size=50))
@settings(deadline=None)
def test_draw_is_the_inverse_of_the_distribution_function(
    weights: list[int], uniforms: list[int]
) -> None:
    table = build(-3, weights)
    near = [t + d for t in table.thresholds() for d in (-1, 0, 1)]  # all ties
    inside = [u for u in [*uniforms, *near, 0, ONE - 1] if 0 <= u < ONE]
    assert drawn(table, inside) == ranks(table, inside)


def test_ties_are_decided_by_the_second_word_alone() -> None:
    table = build(0, [1, 1, 1])  # thresholds at ⅓ and ⅔ of 2¹²⁸, rounded
    third = ONE // 3
    assert drawn(table, [third, third - 1, third + 1]) == [1, 0, 1]
    high = np.full(3, third >> 64, np.uint64)
    low = np.array([0, 2**64 - 1, table.thresholds()[0] & (2**64 - 1)], np.uint64)
    assert table.draw(high, given_low(low)).tolist() == [0, 1, 1]


def test_ties_where_thousands_of_thresholds_share_a_word() -> None:
    weights = [1] * 3000 + [1 << 100] + [1] * 3000  # the light ones weigh 2⁻¹⁰⁰ each
    table = build(-3000, weights)
    assert len({t >> 64 for t in table.thresholds()}) == 2
    uniforms = [t + d for t in table.thresholds()[::97] for d in (-1, 0)]
    assert drawn(table, uniforms) == ranks(table, uniforms)


def test_second_word_is_asked_for_on_ties_only() -> None:
    table = build(0, [3, 5, 7])
    ties = {t >> 64 for t in table.thresholds()}
    words = [w + d for w in ties for d in (-1, 1)] + [0, 2**64 - 1, 2**63]
    high = np.array(words, np.uint64)
    assert table.draw(high, never).tolist() == ranks(table, [w << 64 for w in words])


def test_guide_leaves_only_buckets_with_thresholds_open() -> None:
    table = build(0, list(range(1, 500)))
    width = 1 << (65 - len(table.guide).bit_length())
    held = {t >> 64 for t in table.thresholds()}
    open_buckets = {h // width for h in held}
    assert set(np.flatnonzero(table.guide == -(2**15)).tolist()) == open_buckets


def test_values_without_probability_are_left_out() -> None:
    table = build(10, [0, 0, 1, 1 << 140, 0])
    assert table.offset == 13
    assert law_of_table(table) == {13: 1}
    assert drawn(table, [0, ONE - 1]) == [13, 13]


@pytest.mark.parametrize("variance", [Fraction(1, 50), Fraction(1), Fraction(12345, 7)])
def test_gaussian_table_is_symmetric(variance: Fraction) -> None:
    right = gaussian_weights(variance)
    table = build(1 - len(right), right[:0:-1] + right)
    probabilities = law_of_table(table)
    assert all(probabilities[-z] == p for z, p in probabilities.items())
    assert all(a <= b for a, b in pairwise(table.thresholds()))

"""Searches that begin at a guess: the same result as without one, in far fewer evaluations.

Covers: mechanisms/accounting/_conversions.py
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import pytest
from hushstream.mechanisms.accounting import _conversions, normal
from hypothesis import given
from hypothesis import strategies as st

GUESSES = [0.0, -1.0, math.inf, math.nan, 1e-300, 1e300]


@given(
    edge=st.fractions(Fraction(1, 10**6), 10**6),
    off=st.sampled_from([0.0, 1e-16, 1e-12, 1e-9, 1e-3, 1.0, -1e-12, -1e-3, -0.9]),
)
def test_no_guess_changes_what_is_found(edge: Fraction, off: float) -> None:
    for near in [*GUESSES, float(edge) * (1 + off)]:
        assert normal.least(lambda x: x >= edge, near=near) == normal.least(lambda x: x >= edge)
        found = normal.greatest(lambda x: x <= edge, near=near)
        assert found == normal.greatest(lambda x: x <= edge)


@pytest.mark.parametrize("edge", [Fraction(1), Fraction(1, 2), Fraction(4), 4 - Fraction(1, 2**50)])
def test_neither_do_guesses_at_powers_of_two(edge: Fraction) -> None:
    for near in (float(edge), float(edge) * (1 - 1e-15), float(edge) * (1 + 1e-15)):
        assert normal.least(lambda x: x >= edge, near=near) == normal.least(lambda x: x >= edge)
        assert normal.least(lambda x: x > edge, near=near) == normal.least(lambda x: x > edge)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Fraction]]:
    """Every ε for which an upper bound of δ was computed."""
    seen: list[Fraction] = []
    real = _conversions._delta_high

    def counted(epsilon: Fraction, mu: Fraction) -> object:
        seen.append(epsilon)
        return real(epsilon, mu)

    monkeypatch.setattr(_conversions, "_delta_high", counted)
    yield seen


@pytest.mark.parametrize("delta", ["1/5", "1/1000", "1/1000000000", "1e-30"])
@pytest.mark.parametrize("epsilon", ["0", "0.001", "0.3", "1", "8", "90"])
def test_conversions_find_the_same_with_a_tenth_of_the_work(
    epsilon: str, delta: str, asked: list[Fraction], monkeypatch: pytest.MonkeyPatch
) -> None:
    eps, limit = Fraction(epsilon), Fraction(delta)
    mu = _conversions.gdp_mu.__wrapped__(eps, limit)
    back = _conversions.gdp_epsilon.__wrapped__(mu, limit)
    assert eps <= limit or len(asked) < 30
    quick = len(asked)
    monkeypatch.setattr(_conversions, "_near", lambda *_: 0.0)
    assert _conversions.gdp_mu.__wrapped__(eps, limit) == mu
    assert _conversions.gdp_epsilon.__wrapped__(mu, limit) == back
    assert len(asked) - quick >= 40


def test_quantiles_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    betas = [Fraction(1, n) for n in (3, 4, 5, 40, 10**6, 10**30)]
    found = [normal.quantile_up.__wrapped__(beta) for beta in betas]
    monkeypatch.setattr(normal, "_around", lambda *_: None)
    assert [normal.quantile_up.__wrapped__(beta) for beta in betas] == found

"""Bounds proposed from the distribution of records per unit."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.parts.bounds.maps import predicted, proposed


def law(*sent: int) -> np.ndarray:
    return np.bincount(np.array(sent))


def test_one_record_of_everybody_needs_neither_bound_nor_number() -> None:
    best = proposed(law(1), 20_000, Fraction(1), 1)
    assert (best.bound, best.debias, best.share_cut) == (1, False, 0.0)


def test_units_alike_are_counted_whole() -> None:
    """The noise relative to the count is the same at every bound, so cutting gains nothing."""
    best = proposed(law(20), 5_000, Fraction(1), 1)
    assert (best.bound, best.debias, best.share_cut) == (20, False, 0.0)


def test_heavy_tails_get_a_small_bound_and_a_large_cap() -> None:
    sent = np.minimum(np.ceil(6 * (np.random.default_rng(3).pareto(1.4, 5_000) + 0.2)), 400)
    best = proposed(np.bincount(sent.astype(int)), 5_000, Fraction(1), 1)
    assert best.debias
    assert best.bound <= 4
    assert best.cap >= 50
    assert best.share_cut > 0.5


def test_more_noise_never_raises_the_bound() -> None:
    mixed = law(*[1] * 50, *[5] * 30, *[40] * 20)
    bounds = [proposed(mixed, 10_000, Fraction(1, e), 4).bound for e in (1, 10, 100)]
    assert bounds == sorted(bounds, reverse=True)


def test_arguments_are_checked() -> None:
    for arguments in ((0, Fraction(1), 1), (5, Fraction(0), 1), (5, Fraction(1), 0)):
        with pytest.raises(ParameterError):
            proposed(law(1), *arguments)


def test_what_is_predicted_of_the_proposal_is_what_it_was_chosen_by() -> None:
    mixed = law(*[1] * 50, *[5] * 30, *[40] * 20)
    for triggers in (1, 24):
        best = proposed(mixed, 5_000, Fraction(1), triggers)
        cap = best.cap if best.debias else None
        assert predicted(mixed, 5_000, Fraction(1), triggers, best.bound, cap) == best
        others = [predicted(mixed, 5_000, Fraction(1), triggers, b, None) for b in (1, 8, 64)]
        assert all(best.error <= other.error for other in others)


def test_a_cap_below_the_bound_is_refused() -> None:
    with pytest.raises(ParameterError, match="cap"):
        predicted(law(5), 10, Fraction(1), 1, 4, 3)
    with pytest.raises(ParameterError, match="bound"):
        predicted(law(5), 10, Fraction(1), 1, 0, None)

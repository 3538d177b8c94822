"""Numbers as the live page writes them, and the budget in one sentence."""

from __future__ import annotations

from typing import Any

import pytest
from hushstream.reading.live.terminal.words import about, apart, budget, estimate, fixed

SPENT: dict[str, Any] = {
    "epsilon": 1.0, "delta": 1e-6, "total": 4.0, "limit": None, "left": None, "charged": 4,
    "refused": 0, "shared": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(0, 3, "0"), (-0.5, 3, "-0.5"), (123_456, 2, "123,456"), (2e-7, 3, "2e-7"), (99.96, 3, "100")],
)
def test_about_has_about_so_many_digits(value: float, digits: int, text: str) -> None:
    assert about(value, digits) == text


def test_numbers_that_differ_are_told_apart_and_equal_ones_are_not() -> None:
    assert apart([40.9, 40.85, 40.8]) == ["40.9", "40.85", "40.8"]
    assert apart([1.0, 1.0], 2) == ["1", "1"] and apart([]) == []
    assert len(set(apart([1e9, 1e9 + 1e-6, 1e9 + 2e-6]))) == 3


def test_an_estimate_is_as_exact_as_its_error() -> None:
    assert estimate([0.123456, 0.01, 0.1, 0.15]) == ("0.123", "±0.027")
    assert estimate([7.0, 0.0, 7.0, 7.0]) == ("7", "±0") and estimate(None) == ("–", "")
    assert fixed(-0.001, 2) == "0.00"


def test_the_budget_says_what_is_spent_and_left() -> None:
    assert budget(SPENT, "user") == (
        "Budget: ε=1, δ=1e-6 per user and epoch. 4 epochs charged, ε=4 in all; no limit is set."
    )
    none = budget(SPENT | {"charged": 0, "total": 0.0}, "user")
    assert none.endswith("0 epochs charged, ε=0 in all; the limit is not known yet.")
    told = budget(SPENT | {"limit": 10.0, "left": 6.0, "refused": 1}, "user")
    assert told.endswith("in all, of at most 10; ε=6 left. 1 epoch refused.")
    shared = {"name": "people", "members": ["a", "b"], "total": 7.5}
    told = budget(SPENT | {"limit": 10.0, "left": 2.5, "shared": shared}, "user")
    assert "Shared budget people, of a and b together: ε=7.5 in all, of at most 10; ε=2.5" in told

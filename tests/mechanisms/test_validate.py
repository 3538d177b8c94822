"""Checks of parameters: valid values are returned, others refused with name and value."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest
from hushstream.errors import ParameterError
from hushstream.mechanisms.validate import (
    at_least,
    between,
    non_negative,
    one_of,
    positive,
    without_unset,
)

Check = Callable[[Any], Any]
CHECKS: dict[str, Check] = {
    "positive": lambda value: positive("x", value),
    "non_negative": lambda value: non_negative("x", value),
    "at_least": lambda value: at_least("x", value, 2),
    "between": lambda value: between("x", value, 0, 1),
    "one_of": lambda value: one_of("x", value, ("a", "b")),
}


@pytest.mark.parametrize(
    ("check", "value"),
    [
        ("positive", 1), ("positive", Fraction(1, 3)), ("non_negative", 0), ("at_least", 2),
        ("between", 0), ("between", 1.0), ("one_of", "b"),
    ],
)  # fmt: skip
def test_what_is_allowed_is_returned(check: str, value: object) -> None:
    assert CHECKS[check](value) is value


@pytest.mark.parametrize(
    ("check", "value"),
    [
        ("positive", 0), ("positive", math.nan), ("positive", math.inf), ("non_negative", -1),
        ("non_negative", math.nan), ("at_least", 1), ("at_least", 2.0), ("at_least", True),
        ("between", -0.1), ("between", 1.1), ("between", math.nan), ("one_of", "c"),
    ],
)  # fmt: skip
def test_everything_else_is_refused_by_name_and_value(check: str, value: object) -> None:
    with pytest.raises(ParameterError) as caught:
        CHECKS[check](value)
    assert str(caught.value).startswith(f"x = {value!r}: must ")


@dataclass(frozen=True)
class Settings:
    """Settings, one of which was added later."""

    old: int = 1
    new: int = 2


def test_a_younger_setting_is_named_only_where_it_is_set() -> None:
    assert without_unset(Settings(), ("new",)) == {"old": 1}
    assert without_unset(Settings(new=3), ("new",)) == {"old": 1, "new": 3}

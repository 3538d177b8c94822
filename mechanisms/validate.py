"""Checks of public parameters; each failure names the parameter and its value."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import fields
from fractions import Fraction
from typing import Any, TypeVar

from ..errors import ParameterError

Number = TypeVar("Number", int, float, Fraction)


def positive(name: str, value: Number) -> Number:
    """Return ``value`` if it is finite and > 0, else raise `ParameterError`."""
    if not (math.isfinite(value) and value > 0):
        raise ParameterError(name, value, "must be positive and finite")
    return value


def non_negative(name: str, value: Number) -> Number:
    """Return ``value`` if it is finite and ≥ 0, else raise `ParameterError`."""
    if not (math.isfinite(value) and value >= 0):
        raise ParameterError(name, value, "must not be negative and must be finite")
    return value


def at_least(name: str, value: int, least: int) -> int:
    """Return ``value`` if it is an integer ≥ ``least``, else raise `ParameterError`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ParameterError(name, value, f"must be an integer of at least {least}")
    return value


def between(name: str, value: Number, low: float, high: float) -> Number:
    """Return ``value`` if low ≤ value ≤ high, else raise `ParameterError`."""
    if not (math.isfinite(value) and low <= value <= high):
        raise ParameterError(name, value, f"must lie between {low} and {high}")
    return value


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    """Return ``value`` if it is one of ``allowed``, else raise `ParameterError`."""
    if value not in allowed:
        raise ParameterError(name, value, f"must be one of {', '.join(allowed)}")
    return value


def without_unset(parameters: Any, later: Collection[str]) -> dict[str, Any]:
    """The settings under which a pipeline is charged, for a dataclass's ``pinned``.

    Args:
        parameters: a dataclass whose fields have defaults.
        later: settings that earlier versions did not have. They are listed only where they differ
            from their default, so that a pipeline without them keeps its charged hash.
    """
    given = {one.name: (getattr(parameters, one.name), one.default) for one in fields(parameters)}
    return {n: value for n, (value, usual) in given.items() if n not in later or value != usual}


def rational(name: str, value: float) -> Fraction:
    """The exact value of the decimal that a person wrote; 0.3 is 3/10."""
    exact = Fraction(str(positive(name, value)))
    if exact.denominator > 10**6:
        raise ParameterError(name, value, "must have at most six decimals")
    return exact

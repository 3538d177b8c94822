"""Checks of public parameters; each failure names the parameter and its value."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TypeVar

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

"""Exact sums that do not wrap: rules for sums that exceed 64 bits.

An integer that wraps has no bounded sensitivity: one more record turns 2^63 - 1 into -2^63. Three
rules keep every release within what its mechanism's cost pays for. Numbers of records need none of
them: a log's offsets have 63 bits, so the records of a window do not reach 2^63.

1. *A micro-batch is clamped once.* The exact total x of all rows of a key and column, from any
   number of parts, becomes ``cut(x)``, within ±`LARGEST` (`totals`). It is a function of the
   records alone, since they are first added up exactly: with records of both signs, clamping on the
   way would make the result depend on their order. *Cost:* |cut(x) - cut(x')| ≤ |x - x'|, so
   clamping does not increase what a unit moves in micro-batch t. Released through prefix sums BC,
   its shift is Σ_t δ_t·c_t with c_t a column of C, and its norm at most Σ_t |δ_t|·max ‖c‖, from
   which sensitivities are computed: the unit's records times the largest column norm.

2. *Sums of non-negative numbers are clamped at every addition* (`plus`, `times`): values in slots.
   ``min(M, min(M, a) + b) = min(M, a + b)`` for a, b ≥ 0, so any order and any sharding give
   min(M, exact sum). *Cost:* none, since no release shows the clamping: with M = `LARGEST`, noise
   of less than 2^61 (`ranges.check`) and a result that is clamped to ±`HELD` = ±2^62 after its
   noise, ``hold(M + z) = hold(x + z) = 2^62`` for every x ≥ M. The release is that of unbounded
   integers, and its clamping is post-processing.

3. *Running totals of signed numbers are never clamped before their noise.* They are kept modulo
   2^64, noise is added modulo 2^64, and only the result is read as a number and clamped to ±`HELD`:
   a function of x + z alone, post-processing, whatever x is. Clamping before the noise would not be
   free. If other units' records push a total beyond the limit and back, one unit's effect would
   vanish and return, each time as one more shift of a later draw: ``cut(Σ x)`` has no bounded
   sensitivity under prefix sums, and that of ``s ← cut(s + x)`` is up to √2 times the declared one.
   The price: a total that leaves ±2^63 is worthless, though as private as any other.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]

LARGEST = (1 << 63) - 1
"""The largest exact sum; the least one is its negative."""
HELD = 1 << 62
"""The largest released number; the least one is its negative."""

_HALF = 32
_LOW = (1 << _HALF) - 1


def totals(row: NDArray[np.intp], values: I64, rows: int) -> I64:
    """(rows,) or (rows, c) exact sums by row, each clamped once.

    Args:
        row: (n,) row of each of fewer than 2^31 values.
        values: (n,) or (n, c), within ±`LARGEST`.
        rows: number of rows.

    >>> totals(np.array([0, 0, 0]), np.array([LARGEST, 1, -2]), 1).tolist() == [LARGEST - 1]
    True
    """
    out = np.zeros((rows, *values.shape[1:]), np.int64)
    if len(values) * _peak(values) <= LARGEST:
        np.add.at(out, row, values)
        return out
    high, low = np.zeros_like(out), np.zeros_like(out)
    np.add.at(high, row, values >> _HALF)
    np.add.at(low, row, values & _LOW)
    high += low >> _HALF
    end = 1 << (_HALF - 1)
    out = (np.clip(high, -end, end - 1) << _HALF) + (low & _LOW)
    return np.where(
        high >= end, LARGEST, np.where(high < -end, -LARGEST, np.maximum(out, -LARGEST))
    )


def total(values: I64) -> int:
    """The sum of non-negative numbers, at most `LARGEST`."""
    if len(values) * _peak(values) <= LARGEST:
        return int(values.sum())
    exact: int = sum(values.tolist())
    return min(exact, LARGEST)


def plus(first: I64, second: I64 | np.int64) -> I64:
    """Sums of pairs of numbers within ±`LARGEST`, clamped to ±`LARGEST`.

    >>> plus(np.array([LARGEST, 3]), np.array([1, 4])).tolist() == [LARGEST, 7]
    True
    """
    added = first + second  # wrapped if both have the sign that it lacks
    wrapped = ((first ^ added) & (second ^ added)) < 0
    if wrapped.any():
        added = np.where(wrapped, np.where(first < 0, -LARGEST, LARGEST), added)
    out: I64 = np.maximum(added, -LARGEST)
    return out


def times(counts: I64, factor: int) -> I64:
    """Products of non-negative numbers and a non-negative factor, at most `LARGEST`.

    >>> times(np.array([1 << 33, 2]), 1 << 30).tolist() == [LARGEST, 1 << 31]
    True
    """
    most = LARGEST // max(factor, 1)
    if _peak(counts) <= most:
        return counts * factor
    return np.where(counts > most, LARGEST, np.minimum(counts, most) * factor)


def nearest(value: Fraction) -> int:
    """Nearest integer, halves upwards, which commutes with adding integers."""
    return (2 * value.numerator + value.denominator) // (2 * value.denominator)


def hold(value: int) -> int:
    """A released number, clamped to ±`HELD`: it is noisy already, so clamping costs nothing."""
    return max(-HELD, min(HELD, value))


def held(values: I64) -> I64:
    """`hold` of each."""
    return np.clip(values, -HELD, HELD)


def combined(values: I64, factor: int, others: I64) -> I64:
    """``values + factor·others`` of released numbers, exact, then clamped to ±`HELD`.

    >>> combined(np.array([5, 5]), -(1 << 31), np.array([2, 1 << 60])).tolist()
    [-4294967291, -4611686018427387904]
    """
    if _peak(values) < HELD and _peak(others) * abs(factor) < HELD:
        return held(values + factor * others)
    pairs = zip(values.tolist(), others.tolist(), strict=True)
    return np.array([hold(one + factor * other) for one, other in pairs], np.int64)


def _peak(values: NDArray[Any]) -> int:
    """The largest magnitude."""
    return max(int(values.max()), -int(values.min())) if values.size else 0

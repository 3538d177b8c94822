"""Exact evaluation of correlated noise on a public grid: the same integers on every machine.

The release at trigger t is S + (Bz)_t rounded to a public grid, S an exact integer and z integers
in units of 2^-bits. It must be a function of S and z alone: if last bits depended on the order of a
machine's additions, a replay would differ, and a rounding that is only nearly right would not be
post-processing of the private y = Cx + z. As S is an integer, it is enough to round (Bz)_t.

1. Rows of B that are small rationals (trees, first triggers) are evaluated in exact integers.
2. All others are evaluated in doubles, with the error bound
   |error| ≤ ‖z‖₂·(slack_t + (w+4)·2^-53·‖B_t‖₂): the distance of the row of doubles from the exact
   row, and the rounding of an inner product of w terms in any order (Higham 2002, §3.1).
3. Where a grid point lies within the bound (about one value in 10^9), Cw = z is solved in integers
   of growing precision with directed error bounds until the floor is certain; a tie, which no
   precision can decide, is solved in rationals.
"""

from __future__ import annotations

import operator
from fractions import Fraction

import numpy as np

from ...errors import ContractError, ParameterError
from ..columns import F64, I64
from .endless import FINE
from .matrix import Factorization
from .tree import Row

_ROWS = 2048  # rows of noise at a time: the doubles of a block stay near the core
# OpenBLAS gives larger products to all cores (its `interface/gemm.c`). In slightly larger ones the
# threads wait for each other longer than they compute.
_ONE_CORE = 1 << 18
_FEWEST = 128  # rows of a block: below, the steps around a product cost more than the product
_EXACT = 2**53
_SHORT = 16  # up to this many terms, gathering them is faster than a matrix product
_PRECISIONS = (96, 192, 384, 768)


def floors(factor: Factorization, triggers: I64, z: I64, steps: int = 1) -> I64:
    """(r, k) integers ⌊steps·(Bz)_t⌋, exactly.

    >>> from hushstream.mechanisms.factorization.matrix import build
    >>> z = np.array([[4096, 0, 2048], [-1, 0, 0]])
    >>> floors(build("tree", 2), np.array([1, 2]), z, 4).tolist()
    [[4, 2], [-1, 0]]

    Args:
        triggers: (k,) within 1…T.
        z: (r, w) noise in units of 2^-bits: the leading w coordinates, at least as many as the
            triggers depend on.
        steps: grid points per record, a power of two up to 2^bits.

    Raises:
        ContractError: a trigger lies outside the horizon, coordinates are missing, or the noise is
            too large for exact doubles.
        ParameterError: ``steps`` is not such a power of two.
    """
    if steps < 1 or steps & (steps - 1) or steps > 1 << factor.bits:
        raise ParameterError("steps", steps, f"must be a power of two up to 2^{factor.bits}")
    if len(triggers) and not 1 <= triggers.min() <= triggers.max() <= factor.horizon:
        raise ContractError(f"triggers must lie between 1 and {factor.horizon}")
    if len(triggers) and z.shape[1] < factor.width[triggers - 1].max():
        raise ContractError(f"{z.shape[1]} noise coordinates do not reach the last trigger")
    out = np.empty((len(z), len(triggers)), np.int64)
    simple, dense = _split(factor, triggers, z)
    rest = dense if simple else slice(None)  # a slice, where it can be one, is copied faster
    short = {column: row for column, row in simple.items() if len(row[0]) <= _SHORT}
    long = {column: row for column, row in simple.items() if len(row[0]) > _SHORT}
    for column, (numerators, denominator) in short.items():
        total = (z[:, list(numerators)] * np.array(list(numerators.values()))).sum(axis=1)
        out[:, column] = total // (denominator * ((1 << factor.bits) // steps))
    rows = _block(z.shape[1] * len(triggers))
    for begin in range(0, len(z), rows):
        block = z[begin : begin + rows]
        out[begin : begin + rows, rest] = _dense(factor, triggers[rest], block, steps)
        if long:
            out[begin : begin + rows, list(long)] = _rational(
                list(long.values()), block, (1 << factor.bits) // steps
            )
    return out


def _block(cost: int) -> int:
    """Rows of a block, given the multiplications per row: one core's product if possible."""
    fit = _ONE_CORE // max(cost, 1)
    return min(fit, _ROWS) if fit >= _FEWEST else _ROWS


def _split(factor: Factorization, triggers: I64, z: I64) -> tuple[dict[int, Row], I64]:
    """Columns whose sums are exact integers in doubles, and all others."""
    largest = int(max(z.max(initial=0), -z.min(initial=0)))
    simple: dict[int, Row] = {}
    for column, trigger in enumerate(triggers.tolist()):
        row = factor.rational(trigger)
        if row and largest * sum(row[0].values()) < _EXACT and row[1] << factor.bits < _EXACT:
            simple[column] = row
    dense = [column for column in range(len(triggers)) if column not in simple]
    return simple, np.array(dense, np.int64)


def _rational(rows: list[Row], z: I64, scale: int) -> I64:
    """(r, k) ⌊Σ numerator·z/(denominator·scale)⌋; all partial sums are integers below 2^53."""
    width = 1 + max((max(row[0]) for row in rows), default=-1)
    weights = np.zeros((width, len(rows)))
    for column, (numerators, _) in enumerate(rows):
        weights[list(numerators), column] = list(numerators.values())
    totals: I64 = (z[:, :width].astype(np.float64) @ weights).astype(np.int64)
    return totals // np.array([denominator * scale for _, denominator in rows], np.int64)


def _dense(factor: Factorization, triggers: I64, z: I64, steps: int) -> I64:
    if len(triggers) == 0 or len(z) == 0:
        return np.empty((len(z), len(triggers)), np.int64)
    width = int(factor.width[triggers - 1].max())
    noise, scale = z[:, :width].astype(np.float64), steps * 2.0**-factor.bits
    value = (noise @ factor.rows(triggers)[:, :width].T) * scale
    bound = _bounds(factor, triggers, noise) * scale
    if not (_size(z) < _EXACT and _size(value) < _EXACT / 4):
        raise ContractError("noise is too large for exact doubles")
    whole = np.floor(value)
    out: I64 = whole.astype(np.int64)
    value -= whole  # rounded, if at all, to no other side of a bound
    near = (value <= bound) | (value >= 1 - bound)
    if near.any():
        for row, column in np.argwhere(near):
            out[row, column] = _certain(factor, int(triggers[column]), z[row].tolist(), steps)
    return out


def _size(numbers: I64 | F64) -> float:
    return max(float(numbers.max()), -float(numbers.min()))


def _bounds(factor: Factorization, triggers: I64, noise: F64) -> F64:
    """(k,) bounds of the error of the products, in grid units, for the largest row of noise."""
    at = triggers - 1
    terms = factor.slack[at] + (factor.width[at] + 4) * 2.0**-53 * factor.row_norms[at]
    largest = np.einsum("ij,ij->i", noise, noise).max()
    return np.asarray(np.sqrt(largest) * 1.001 * terms)


def _certain(factor: Factorization, trigger: int, z: list[int], steps: int) -> int:
    """⌊steps·(Bz)_t⌋ of one row of noise, by integers of growing precision."""
    row = factor.rational(trigger)
    if row:
        total = sum(weight * z[place] for place, weight in row[0].items())
        return total * steps // (row[1] << factor.bits)
    if factor.total is not None:
        whole, error = factor.total(z[:trigger])
        shift = FINE + factor.bits
        low, high = ((whole + sign * error) * steps >> shift for sign in (-1, 1))
        if low == high:
            return low
    # Known coordinates are 0, and so is w before the first unknown one. A key that has just become
    # public has a single unknown coordinate, which often gives a tie.
    begin = next((place for place, one in enumerate(z[:trigger]) if one), trigger)
    C, z = factor.block(begin, trigger), z[begin:trigger]
    for precision in _PRECISIONS:
        # The remainders of the divisions, 0 ≤ r_j < C_jj < 2^(bits+1), move it by |B_t·r|/2^bits.
        error = 2 * int(factor.norm1(trigger)) + 2
        total = sum(_solve(C, z, precision))
        low, high = ((total + sign * error) * steps >> precision for sign in (-1, 1))
        if low == high:
            return low
    return _tie(C, z, steps)


def _solve(C: list[list[int]], z: list[int], precision: int) -> list[int]:
    """w with Cw ≈ z, in units of 2^-precision, each rounded down."""
    w: list[int] = []
    for j, row in enumerate(C):
        rest = (z[j] << precision) - sum(map(operator.mul, row, w))
        w.append(rest // row[j])
    return w


def _tie(C: list[list[int]], z: list[int], steps: int) -> int:
    w: list[Fraction] = []
    for j, row in enumerate(C):
        w.append((z[j] - sum(map(operator.mul, row, w), Fraction(0))) / row[j])
    return int(sum(w, Fraction(0)) * steps // 1)

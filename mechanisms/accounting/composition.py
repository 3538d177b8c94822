"""Composition over epochs: the joint cost of several charges, and how many a limit allows.

A unit with records in many epochs is exposed to the releases of all of them.

*Theorem.* Fix a number N of epochs before the first release, and let every epoch be charged the
same cost (μ², e, c): Gaussian releases whose squared shifts, in units of their noise, sum to at
most μ² on every path; pure steps whose losses sum to e; and a coupling that fails with
probability c. However many of the N epochs are run, even if earlier releases decide that, the whole
is (ε, δ) differentially private for adding or removing all records of one unit in *all* epochs,
with the ε that `costs.total` gives for N entries (μ², e, c) and any δ > N·c.

*Proof.* Given the past, a release of a later epoch is one more Gaussian release whose shift and
noise variance are predictable. In units of the noise, the squares of the shifts add up to at most
Nμ² on every path, whatever stops the sequence. So the theorem of `costs` holds for the releases of
all epochs in their order, with Nμ² for μ². Its slack for discrete noise is a sum over the releases
that a unit touches, each with its own noise, so it adds up as the pure parts do. The probability
that the coupling of any epoch fails is at most Nc. ∎

The three sums must be bounded separately. A limit on the (ε, δ) of what has been spent would *not*
hold where terms differ: an adversary who sees a large loss after Gaussian releases could spend the
rest on pure ones, and otherwise on Gaussian ones, and gain more than either fixed plan. Here all
terms are equal, so a number of epochs bounds all three sums. It is a filter in the sense of Smith
and Thakurta (2022, "Fully adaptive composition for Gaussian differential privacy"), and of Feldman
and Zrnic (2021) for zero-concentrated privacy; public terms fix N, so the smaller of the two holds.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from ...errors import ParameterError
from ..contract import Cost
from .costs import fits

MANY = 1 << 20  # epochs, over a hundred years of hours: counting stops there
GRID = Fraction(1, 1 << 24)
"""A step of ε: the joint cost of several epochs is rounded up to a multiple of it."""


class Spent(NamedTuple):
    """The charges of some epochs of one privacy unit and relation, added up.

    Attributes:
        epochs: number of charges.
        epsilon, delta: their sums: the unit's loss by basic composition.
        joint: the sum of the costs of their mechanisms.
        squares: the sum of the squares of the pure parts.
    """

    epochs: int = 0
    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    joint: Cost = Cost()
    squares: Fraction = Fraction(0)

    def plus(self, other: Spent, times: int = 1) -> Spent:
        """Add further charges, ``times`` each."""
        joint = (mine + times * more for mine, more in zip(self.joint, other.joint, strict=True))
        return Spent(
            self.epochs + times * other.epochs,
            self.epsilon + times * other.epsilon,
            self.delta + times * other.delta,
            Cost(*joint),
            self.squares + times * other.squares,
        )

    def composed(self, delta: Fraction | None = None) -> Fraction:
        """ε of all these charges together at their summed δ, rounded up; never above ``epsilon``.

        Args:
            delta: δ of the whole, instead of the sum.

        Raises:
            ParameterError: δ is less than the sum, which the sum of ε needs.
        """
        if delta is not None and delta < self.delta:
            raise ParameterError("delta", delta, "is less than what was charged")
        return _composed(self, self.delta if delta is None else delta)


def charge_of(epsilon: Fraction, delta: Fraction, cost: Cost) -> Spent:
    """One epoch: its ε and δ, and the cost of its mechanism."""
    return Spent(1, epsilon, delta, cost, cost.epsilon**2)


def within(spent: Spent, limit_epsilon: Fraction | None, limit_delta: Fraction | None) -> bool:
    """Whether charges stay within limits on the whole; without a limit they do.

    A limit on ε alone holds at the summed δ of the charges.
    """
    limit = spent.delta if limit_delta is None else limit_delta
    plain = limit_epsilon is None or spent.epsilon <= limit_epsilon
    if plain and spent.delta <= limit:
        return True
    return limit_epsilon is not None and fits(spent.joint, spent.squares, limit_epsilon, limit)


@lru_cache(maxsize=1024)
def room(
    spent: Spent,
    one: Spent,
    limit_epsilon: Fraction | None,
    limit_delta: Fraction | None,
    most: int,
) -> int:
    """Count how many further epochs stay within limits.

    Args:
        limit_epsilon, limit_delta: limits on the whole; None: there is none.
    """
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if within(spent.plus(one, middle), limit_epsilon, limit_delta):
            low = middle
        else:
            high = middle - 1
    return low


@lru_cache(maxsize=4096)
def _composed(spent: Spent, delta: Fraction) -> Fraction:
    """The least multiple of `GRID` that fits, or the sum."""

    def holds(steps: int) -> bool:
        return fits(spent.joint, spent.squares, steps * GRID, delta)

    most = math.ceil(spent.epsilon / GRID)
    if not most or not holds(most):
        return spent.epsilon
    # The guess only saves time: the least multiple is found from any guess.
    high = min(max(math.ceil(_guess(spent, delta) / GRID), 1), most)
    low, step = high - 1, 1
    while not holds(high):
        low, high, step = high, min(high + step, most), 4 * step
    step = 1
    while low > 0 and holds(low):
        low, high, step = max(low - step, 0), low, 4 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return min(spent.epsilon, high * GRID)


def _guess(spent: Spent, delta: Fraction) -> float:
    """Approximate ε of the Gaussian and the pure parts, in floating point."""
    mu, left = math.sqrt(spent.joint.mu2), float(delta - spent.joint.delta)
    low, high = 0.0, float(spent.epsilon)
    for _ in range(48 if mu else 0):
        middle = (low + high) / 2
        first, second = (math.erfc((middle / mu + s * mu / 2) / math.sqrt(2)) / 2 for s in (-1, 1))
        loss = first - (math.exp(middle + math.log(second)) if second else 0.0)
        low, high = (low, middle) if loss <= left else (middle, high)
    return high + float(spent.joint.epsilon)

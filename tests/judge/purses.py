"""What each unit has left over many epochs, if the budget has a cap for each unit.

A unit may spend f times its bound. The configuration alone determines f: it is the largest multiple
of 1/4096 for which f times the squared shifts, the pure part (counted twice) and the δ of an epoch
stay within the cap. Pipelines that share the cap have the same f, from the cost of their epochs
together. With debiasing, an epoch that counts anything of a unit also costs the part of the bound
that covers these counters.
"""

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any, NamedTuple

from .gaussian import DIGITS, gdp, root

GRID = 4096


class Costs(NamedTuple):
    """Cost of an epoch in which a unit spends its whole bound: μ², pure part, δ."""

    mu2: Fraction
    pure: Fraction
    delta: Fraction


def together(costs: Iterable[Costs]) -> Costs:
    """The sum of costs."""
    nothing = Fraction(0)
    return Costs(*(sum(part, nothing) for part in zip(*costs, strict=True)))


class Purses:
    """What is left of each unit's cap in each period.

    Args:
        cap: ``per_unit`` of the configuration; None if there is no cap.
        epoch: length of an epoch in microseconds.
        bound: amount that a unit may spend in an epoch.
        costs: costs of the whole bound, and of debiasing's counters.
        joint: cost of the whole bounds of all pipelines that share the cap.
    """

    def __init__(
        self,
        cap: dict[str, Any] | None,
        epoch: int,
        bound: int,
        costs: Sequence[Costs],
        joint: Costs,
    ) -> None:
        self.none = cap is None
        self.left: dict[tuple[int, Any], int] = {}
        self.opened: set[Any] = set()  # (epoch, unit) pairs with anything counted
        if cap is None:
            return
        limit = Fraction(cap["epsilon"]), Fraction(cap["delta"])
        self.most = int(part(joint, *limit) * bound)
        shares = [max(b / a for a, b in zip(costs[0], one, strict=True)) for one in costs[1:]]
        self.opening = math.ceil(sum(shares) * bound)
        self.epochs = cap["period"] and cap["period"] // epoch

    def _of(self, place: Any) -> tuple[int, Any]:
        epoch, unit = place
        return (epoch // self.epochs if self.epochs else 0), unit

    def room(self, place: Any) -> float:
        """What a unit's purse lets it spend in an epoch; -1 if nothing of the unit may count."""
        if self.none:
            return math.inf
        price = self.opening * (place not in self.opened)
        left = self.left.setdefault(self._of(place), self.most)
        return left - price if left >= price else -1

    def pay(self, place: Any, price: int) -> None:
        """Pay for what counts of a unit in an epoch; the first payment also opens the epoch."""
        if self.none:
            return
        price += self.opening * (place not in self.opened)
        self.opened.add(place)
        self.left[self._of(place)] -= price
        assert self.left[self._of(place)] >= 0


def part(costs: Costs, epsilon: Fraction, delta: Fraction) -> Fraction:
    """The largest f for which a unit that spends f times its bound loses at most (ε, δ)."""
    low, high = 0, GRID
    while fits(times(costs, high), epsilon, delta):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if fits(times(costs, middle), epsilon, delta):
            low = middle
        else:
            high = middle
    return Fraction(low, GRID)


def times(costs: Costs, parts: int) -> Costs:
    """The cost for a unit that spends so many 1/4096 of its bound."""
    return Costs(*(Fraction(parts, GRID) * one for one in costs))


def fits(costs: Costs, epsilon: Fraction, delta: Fraction, squares: Fraction | None = None) -> bool:
    """Whether these costs together are (ε, δ).

    Args:
        costs: those of all parts, added up.
        squares: of the parts' pure parts, added up; None: there is one part.
    """
    mu2, pure, lost = costs
    left = delta - lost
    if mu2 == 0 and pure <= epsilon and left >= 0:
        return True
    if left <= 0:
        return False
    rho = (mu2 + (pure**2 if squares is None else squares)) / 2
    with localcontext(DIGITS):
        log = Fraction(-(Decimal(left.numerator) / left.denominator).ln())
    if rho + 2 * root(rho * log) <= epsilon:
        return True
    if pure >= epsilon:
        return False
    first, second = gdp(epsilon - pure, root(mu2))
    return first - second <= left and first <= 5 * second

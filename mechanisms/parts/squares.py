"""Sums of squares of a value column, for variances; both together cost no more than the column.

With u the clipped value less the middle of its interval, -r ≤ u ≤ r, a record adds u to the column
and q(u) = ⌈u²/step⌉ - top to its square, where top = ⌈r²/step⌉. ``step`` is 1 up to r² = `TOP`;
for wider intervals it keeps ``top`` below `TOP`.

*Lemma.* u²/(step·top) + q(u)²/top² ≤ 1. *Proof.* With v = ⌈u²/step⌉/top: 0 ≤ v ≤ 1, the first term
is at most v, and the second is (1 - v)², so the sum is at most v + (1 - v)² = 1 - v(1 - v) ≤ 1,
with equality at the middle (v = 0) and at the ends (v = 1). ∎

So if the column has noise of variance s²·step·top and its square noise of variance s²·top², a
record's joint shift has a squared length of at most 1/s², as the column alone has at an end of its
interval: a record that moves one of them far moves the other little. By the triangle inequality m
records of a unit have at most m²/s², in one micro-batch or several. An uncentred square would be
moved as far as the column at the same time, and both would need twice the variance.

Squares are rounded up, by less than r²/`TOP`.
"""

from __future__ import annotations

from typing import NamedTuple

from ..columns import I64

TOP = 1 << 24


class Square(NamedTuple):
    """The square of a value column."""

    name: str  # of the column
    column: int  # its index among the value columns
    step: int  # squared grid steps in one step of the square
    top: int  # square of half the interval, in these steps; subtracted from each square

    def of(self, centred: I64) -> I64:
        """q(u) of each u."""
        return -(-(centred * centred) // self.step) - self.top

    @property
    def sizes2(self) -> tuple[int, int]:
        """Squared sizes of column and square whose joint shift is at most 1."""
        return self.step * self.top, self.top**2


def square_of(name: str, column: int, reach: int) -> Square:
    """The square of a column that one record moves by at most ``reach`` grid steps.

    >>> square_of("x", 0, 5)
    Square(name='x', column=0, step=1, top=25)
    """
    step = -(-(reach**2) // TOP)
    return Square(name, column, step, -(-(reach**2) // step))


def square_steps(low: int, high: int) -> tuple[int, int, int]:
    """(middle, step, top) of an interval, in grid steps, as in releases."""
    middle = (low + high) // 2
    made = square_of("", 0, max(high - middle, middle - low, 1))
    return middle, made.step, made.top

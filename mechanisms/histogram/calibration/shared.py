"""Value columns of some records alone, which share one sensitivity where no record is in two.

A column of a condition takes a value v with |v| ≤ r from a record that fulfils it, and 0 from any
other, which is no part of it at all. So it is not centred, unless the column that counts its
records is there too: v is then x - middle of a record inside, and still 0 of one outside; the noisy
count of the column moves the sum back.

*Lemma.* Let no record be in two of the columns 1..j of a group, and let column i have noise of
variance s²·r_i². Then one unit, added or removed, has on all of them together the effect that it
has on one column of reach 1 with variance s². *Proof.* Divide each column by r_i. Of each record
the vector of all columns then has one entry of size at most 1, in the record's own column, and
length at most 1. So m records of a key, in one micro-batch or over several and in whatever columns
they fall, c_1 + … + c_j ≤ m of them in each, move the vector by at most c_1 + … + c_j ≤ m in
length, by the triangle inequality; by no more, in time, than m records of one column move the
products with C (‖Σ_t C_t x_t‖ ≤ Σ_t ‖C_t‖·‖x_t‖). All that follows uses m² alone: Σ m² over keys
and lanes, which the contribution bound limits. Noise of the columns is independent and of one
variance after the division, so a shift of length m is one of a single Gaussian by m. The draws that
a unit touches are no more than of one column, since a record touches those of its own alone, and a
variance s²·r_i² ≥ s² costs no more on the grid. ∎

*Squares.* A column with a square (`parts.squares`) takes (u, q(u)) from a record that fulfils its
condition, and (0, 0) from any other, although q(0) = -top. With r_i² = step·top for the column and
variance s²·top² for its square, such a pair, divided by √(step·top) and top, has length at most 1
by the lemma there. So the vector of all columns and squares of a group has, of each record, entries
in one pair alone, of length at most 1, and the proof above holds word for word. A column and the
one that counts its records take values of the same records: they are never in one group.

m is of a unit's records in all columns together, and not of those in one: with m = 2 the shifts
(2, 0) and (1, 1) have length 2 and √2. Without the premise a record could be in all j columns, and
m records move the vector by m·√j: then each column is a group of its own, with a share of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple


class SharedNoise(NamedTuple):
    """Noise that some columns have together.

    Attributes:
        sizes2: squared reach of what each share of the budget is for: a column of its own, or one
            of reach 1 that stands for a group.
        need: (c,) which of these each column has.
        times: (c,) factor of its variance for each column.
    """

    sizes2: tuple[Fraction, ...]
    need: tuple[int, ...]
    times: tuple[Fraction, ...]

    @classmethod
    def of(cls, apart: Sequence[Sequence[int]], sizes2: Sequence[int]) -> SharedNoise:
        """Shares of columns with squared reaches ``sizes2``; ``apart`` has the groups' places.

        >>> SharedNoise.of([(0, 2)], [1, 4, 9]).need
        (0, 1, 0)
        """
        group = {place: tuple(members) for members in apart for place in members}
        first: dict[tuple[int, ...], int] = {}
        kinds = [group.get(place, (place,)) for place in range(len(sizes2))]
        for kind in kinds:
            first.setdefault(kind, len(first))
        lone = [len(kind) == 1 for kind in first]
        sizes = [
            Fraction(sizes2[kind[0]] if alone else 1)
            for kind, alone in zip(first, lone, strict=True)
        ]
        times = [
            Fraction(1 if len(kind) == 1 else size2)
            for kind, size2 in zip(kinds, sizes2, strict=True)
        ]
        return cls(tuple(sizes), tuple(first[kind] for kind in kinds), tuple(times))

    def variances(self, bought: Sequence[Fraction]) -> tuple[Fraction, ...]:
        """(c,) variances of all columns, of those of the shares."""
        pairs = zip(self.need, self.times, strict=True)
        return tuple(bought[need] * times for need, times in pairs)

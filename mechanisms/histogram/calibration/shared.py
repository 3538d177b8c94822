"""Value columns that hold only some records; if no record is in two, they share one sensitivity.

A column with a condition takes a value v with |v| ≤ r from a record that fulfils the condition, and
0 from any other, which is no part of the column. So the column is not centred, unless its records
are counted in a column as well: then v is x - middle for a record inside and still 0 for one
outside, and the noisy count moves the sum back.

*Lemma.* Let no record be in two of the columns 1..j of a group, and let column i have noise of
variance s²·r_i². Then adding or removing one unit affects all of them together at most as it
affects one column of reach 1 with variance s². *Proof.* Divide each column by r_i. The vector of
all columns then has, for each record, one entry of size at most 1, in the record's own column, and
length at most 1. So m records of a key, in one micro-batch or several and however they fall into
the columns, c_1 + … + c_j ≤ m, move the vector by at most c_1 + … + c_j ≤ m in length, by the
triangle inequality; and over time they move the products with C no further than m records of one
column do (‖Σ_t C_t x_t‖ ≤ Σ_t ‖C_t‖·‖x_t‖). All that follows uses m² alone: Σ m² over keys and
lanes, which the contribution bound limits. The noises of the columns are independent and have equal
variance after the division, so a shift of length m is a shift of a single Gaussian by m. A unit
touches no more draws than with one column, since a record touches only those of its own column, and
a variance s²·r_i² ≥ s² costs no more on the grid. ∎

*Squares.* A column with a square (`parts.squares`) takes (u, q(u)) from a record that fulfils its
condition, and (0, 0) from any other, although q(0) = -top. With r_i² = step·top for the column and
variance s²·top² for its square, such a pair, divided by √(step·top) and top, has length at most 1
by the lemma there. So the vector of all columns and squares of a group has, for each record,
entries in one pair alone, of length at most 1, and the proof above holds word for word. A column
and the one that counts its records take values from the same records, so they are never in one
group.

m counts a unit's records in all columns together, not in each: with m = 2 the shifts (2, 0) and
(1, 1) have length 2 and √2. Without the premise a record could be in all j columns, and m records
would move the vector by m·√j: then each column is a group with its own share.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple


class SharedNoise(NamedTuple):
    """Shares of the noise budget, each for one column or a group of columns.

    Attributes:
        sizes2: squared reach per share: of a single column, or 1 for a group.
        need: (c,) index of each column's share.
        times: (c,) factor of each column on the variance of its share.
    """

    sizes2: tuple[Fraction, ...]
    need: tuple[int, ...]
    times: tuple[Fraction, ...]

    @classmethod
    def of(cls, apart: Sequence[Sequence[int]], sizes2: Sequence[int]) -> SharedNoise:
        """Shares of columns with squared reaches ``sizes2``; ``apart`` lists the groups' indices.

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
        """(c,) variances of all columns, from those of the shares."""
        pairs = zip(self.need, self.times, strict=True)
        return tuple(bought[need] * times for need, times in pairs)

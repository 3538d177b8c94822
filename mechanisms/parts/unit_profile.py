"""The profile of an epoch's units: how many there are by records and by concentration on keys.

Each unit lies in one bucket of a fixed public grid. Its row is the number n of its records, at most
``most``, in buckets 1, 2, 3–4, 5–8, …; its column is s/n for s = Σ m², the sum over (window, key)
pairs of squared numbers of records, in buckets 1, (1, 2], (2, 4], …: how concentrated they are.
These two numbers suffice to see what a contribution bound would cut.

A slice sends the signed change of the grid: a unit leaves one bucket and enters another. The
changes of all slices and shards add up to the number of units in each bucket at the end of the
epoch. Only these final numbers are released, once.

Guarantee, for neighbours that differ by all records of one unit in one epoch: the released profile
is a discrete Gaussian release of squared sensitivity 1. *Proof.* The bucket of a unit is a function
of its own records and of public constants: which records are taken depends on what the unit has
left, and pairs are distinguished within the unit. So with and without the unit all others lie in
the same buckets, and the final counts differ by 1 in one bucket, the one in which the unit ends;
those that it passed through received +1 and -1. `UnitProfile.release` reads the final counts alone
and refuses every trigger but the last, so no draw covers two contents. ∎ A profile at every trigger
would change in each bucket that the unit passes, and a count of records by up to ``most``. Under
replacement of a unit by another, two buckets differ: squared sensitivity 2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ...errors import ContractError, ParameterError
from ..accounting import gaussian_cost
from ..accounting.calibration import Need
from ..columns import F64, I64, Batch, Units
from ..contract import Cost, Noise
from ..keys import Keys
from ..validate import at_least
from .bounds.bounding import Bound

NAME = Keys.of([b"profile"])
"""Key in the labels of the draws, which have their own purpose."""

STEPS = 64
"""Grid steps per unit: on a coarser grid, discrete noise would cost more than continuous noise."""

_LARGEST = 1 << 12


class Patterns(NamedTuple):
    """A typical unit of each bucket: ``own`` records to one key, one to each further key."""

    records: F64  # (c,)
    own: F64  # (c,) at least 1


@dataclass(frozen=True)
class UnitProfile:
    """The grid, and its release.

    Attributes:
        most: most records of a unit that are counted, a power of two.

    Raises:
        ParameterError: ``most`` is no power of two between 2 and 4,096.

    >>> profile = UnitProfile(4)
    >>> profile.buckets, profile.place(np.array([0, 1, 3, 3]), np.array([0, 1, 3, 9])).tolist()
    (6, [-1, 0, 3, 5])
    """

    most: int = 64

    def __post_init__(self) -> None:
        if at_least("most", self.most, 2) & (self.most - 1) or self.most > _LARGEST:
            rule = f"must be a power of two, at most {_LARGEST}"
            raise ParameterError("most", self.most, rule)

    @property
    def rows(self) -> int:
        """Buckets of records."""
        return self.most.bit_length()

    @property
    def buckets(self) -> int:
        """Cells of the grid: row r has columns 0…r, since s ≤ n²."""
        return self.rows * (self.rows + 1) // 2

    @cached_property
    def bound(self) -> Bound:
        """The bound on counted records."""
        return Bound("records", self.most)

    def place(self, records: I64, squares: I64) -> I64:
        """(u,) the bucket of units with these numbers of records and Σ m²; -1 without records."""
        row = np.searchsorted(1 << np.arange(self.rows), records)
        reach = records[:, None] << np.arange(self.rows)
        column = (reach < squares[:, None]).sum(axis=1)
        return np.where(records > 0, row * (row + 1) // 2 + column, -1).astype(np.int64)

    def of(self, units: Units) -> I64:
        """(u,) the bucket of each unit; -1 before its first record."""
        used = units.used[:, 0].astype(np.int64)
        owner = np.repeat(np.arange(len(units.left)), np.diff(units.start))
        squares = np.zeros(len(units.left), np.int64)
        np.add.at(squares, owner, used * used)
        return self.place(self.most - units.left, squares)

    def absorb(self, units: Units, batch: Batch) -> tuple[Units, I64]:
        """Count a slice's records, in order and however slices are cut; deletions do not count.

        Returns:
            New units, and the (buckets,) signed change of the grid.
        """
        inserted = batch.sign > 0
        some = batch._replace(key=batch.key[inserted], unit=batch.unit[inserted])
        lane = np.zeros(len(batch.keys), np.intp)
        after = self.bound.apply(units, some, lane).units
        return after, self._counts(self.of(after)) - self._counts(self.of(units))

    def _counts(self, bucket: I64) -> I64:
        return np.bincount(bucket[bucket >= 0], minlength=self.buckets).astype(np.int64)

    # The release

    @staticmethod
    def need(share: Fraction) -> Need:
        """A share of a pipeline's μ², for `accounting.calibration.fit`."""
        return Need(Fraction(STEPS**2), share)

    @staticmethod
    def cost(variance: Fraction) -> Cost:
        """The cost to a unit of a release with this variance, in squared steps."""
        return gaussian_cost(STEPS**2, variance, 1)

    def release(
        self, totals: I64, t: int, last: int, variance: Fraction, noise: Noise
    ) -> I64:  # fmt: skip
        """(buckets,) noisy numbers of units, in 1/`STEPS`.

        Args:
            totals: (buckets,) all changes of the epoch added up.
            t: the trigger, in the epoch's last window, of this release.
            last: last trigger of the window.
            variance: variance of the noise, in squared steps.
            noise: noise of that window; the draws have the nonce of its last trigger.

        Raises:
            ContractError: it is not the last trigger, or the totals cannot be numbers of units.
        """
        if t != last:
            raise ContractError(f"a profile is released at trigger {last} alone, not at {t}")
        if totals.shape != (self.buckets,) or totals.min() < 0:
            raise ContractError("the profile's totals are no numbers of units")
        index = np.arange(self.buckets, dtype=np.int64)
        drawn = noise.gauss("profile", NAME, index, variance, np.full(self.buckets, t, np.int64))
        released: I64 = totals * STEPS + drawn[0]
        return released

    def patterns(self) -> Patterns:
        """A unit in the middle of each bucket."""
        row = np.repeat(np.arange(self.rows), np.arange(1, self.rows + 1))
        column = np.concatenate([np.arange(r + 1) for r in range(self.rows)])
        low, high = np.where(row > 0, (1 << np.maximum(row - 1, 0)) + 1, 1), 1 << row
        records = (low + high) / 2
        squares = np.where(column > 0, records * 2.0 ** (column - 0.5), records)
        squares = np.where(column == row, records**2, np.minimum(squares, records**2))
        own = (1 + np.sqrt(1 + 4 * np.maximum(squares - records, 0))) / 2
        return Patterns(records, np.minimum(own, records))


def ends_of(bucket: int) -> tuple[int, int]:
    """The upper ends of a bucket's row and column.

    >>> [ends_of(bucket) for bucket in range(4)]
    [(1, 1), (2, 1), (2, 2), (4, 1)]
    """
    row = (math.isqrt(8 * bucket + 1) - 1) // 2
    return 1 << row, 1 << (bucket - row * (row + 1) // 2)


def profile_of(units: Mapping[tuple[int, int], float], most: int) -> I64:
    """(buckets,) released numbers of units in 1/`STEPS`, from numbers by buckets' upper ends.

    Raises:
        ContractError: they are not the buckets of a grid with ``most``.
    """
    wanted = [ends_of(bucket) for bucket in range(UnitProfile(most).buckets)]
    if set(units) != set(wanted):
        raise ContractError(f"a profile up to {most} records has one number for each bucket")
    return np.array([round(units[ends] * STEPS) for ends in wanted], np.int64)

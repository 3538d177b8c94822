"""Linear sketches of counts: Count-Sketch and Count-Min with public hash functions.

A sketch keeps ``rows`` × ``width`` sums for any number of distinct codes. It is linear:
sketches of parts of a stream add up to the sketch of the whole, and adding noise to every sum
gives a private sketch, since one record changes ``rows`` sums by one each.

A public seed fixes the hash functions before any record is seen. Privacy holds for any fixed
functions; only accuracy relies on their looking random. Choosing a seed after looking at records
would break the guarantee.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...errors import ParameterError
from ..columns import I64
from ..validate import at_least, one_of

U64 = NDArray[np.uint64]
SketchKind = Literal["count", "min"]

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1


@dataclass(frozen=True)
class Sketch:
    """The shape and hash functions of a sketch; its sums are arguments.

    Raises:
        ParameterError: an attribute is out of range.

    >>> sketch = Sketch("count", width=1024, rows=3)
    >>> sums = sketch.add(np.array([5, 9], np.uint64), np.array([7, 2]))
    >>> sketch.estimate(sums, np.array([5, 9, 6], np.uint64)).tolist()
    [7, 2, 0]
    """

    # "count" signs every code at random and estimates by the median of the rows, without bias
    # (Charikar, Chen and Farach-Colton, *Finding Frequent Items in Data Streams*, 2002); "min"
    # takes the minimum of unsigned rows (Cormode and Muthukrishnan, *An Improved Data Stream
    # Summary*, 2005), which noise biases downwards if there are several rows
    kind: SketchKind = "count"
    width: int = 1024  # w, buckets of a row
    rows: int = 1  # j; odd for "count", so that the median is one of the rows
    seed: int = 0  # public, chooses the hash functions

    def __post_init__(self) -> None:
        one_of("sketch", self.kind, ("count", "min"))
        if at_least("width", self.width, 1) >= 2**31:
            raise ParameterError("width", self.width, "must be below 2^31")
        at_least("rows", self.rows, 1)
        if self.kind == "count" and self.rows % 2 == 0:
            raise ParameterError("rows", self.rows, "must be odd, the median is one of the rows")
        if at_least("seed", self.seed, 0) > _MASK:
            raise ParameterError("seed", self.seed, "must be below 2^64")

    @property
    def sums(self) -> int:
        """Number of sums, j·w."""
        return self.rows * self.width

    def hash(self, codes: U64, row: int) -> tuple[NDArray[np.intp], I64]:
        """(m,) index among all sums of each code's sum in ``row``, and (m,) its sign."""
        mixed = _mix(codes ^ _mix(np.array([_row_key(self.seed, row)], np.uint64)))
        bucket = ((mixed >> np.uint64(32)) * np.uint64(self.width)) >> np.uint64(32)
        sign = np.ones(len(codes), np.int64)
        if self.kind == "count":
            sign -= 2 * (mixed & np.uint64(1)).astype(np.int64)
        return bucket.astype(np.intp) + row * self.width, sign

    def add(self, codes: U64, counts: I64) -> I64:
        """(j·w,) exact sums of a stream in which each code occurs ``counts`` times."""
        sums = np.zeros(self.sums, np.int64)
        for row in range(self.rows):
            place, sign = self.hash(codes, row)
            np.add.at(sums, place, sign * counts)
        return sums

    def estimate(self, sums: I64, codes: U64) -> I64:
        """(m,) estimated counts of ``codes`` from (j·w,) sums, exact or noisy."""
        looks = np.empty((self.rows, len(codes)), np.int64)
        for row in range(self.rows):
            place, sign = self.hash(codes, row)
            looks[row] = sums[place] * sign
        middle = self.rows // 2 if self.kind == "count" else 0
        chosen: I64 = np.partition(looks, middle, axis=0)[middle]
        return chosen


def _row_key(seed: int, row: int) -> int:
    return (seed + (row + 1) * _GOLDEN) & _MASK


def _mix(words: U64) -> U64:
    """A bijection of 64-bit words that spreads every bit (the finaliser of SplitMix64)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))

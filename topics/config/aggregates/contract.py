"""Contract of an aggregate, and the names of released columns.

An aggregate states the value columns that it needs summed, the released columns that it consists
of, and how it computes its value and error from these. A mechanism releases ``count`` and
``sum:<field>``; an aggregate only post-processes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple, Protocol

from ....formats.events.fields import NumericField
from ....mechanisms.entry import Objection

COUNT = "count"
"""The released column of the number of records."""


class Estimate(NamedTuple):
    """A released number and the standard deviation of its noise.

    Attributes:
        value: value of the number.
        stddev: standard deviation of its noise.
        within: range of the exact number as long as nothing is deleted; the value always lies
            within it. None: no known range.
        square: the estimate of which this is the square root, and whose interval it uses; None:
            not a root.
    """

    value: Fraction
    stddev: float
    within: tuple[Fraction, Fraction] | None = None
    square: Estimate | None = None


class AnyAggregate(Protocol):
    """The contract of an aggregate. ``kind`` and ``name`` are settings."""

    @property
    def label(self) -> str:
        """Name of the value in releases."""
        ...

    @property
    def columns(self) -> tuple[NumericField, ...]:
        """Value columns that the mechanism must sum."""
        ...

    @property
    def parts(self) -> tuple[str, ...]:
        """Released columns that form the value, in the order of `finish`."""
        ...

    def objections(self) -> Iterator[Objection]:
        """Settings that contradict each other."""
        ...

    def finish(self, parts: Sequence[Estimate]) -> Estimate | None:
        """Compute value and error; None (null in releases) if the parts determine none."""
        ...


def sum_of(field: str) -> str:
    """The released column of a field's sum.

    >>> sum_of("fare")
    'sum:fare'
    """
    return f"sum:{field}"


def square_of(field: str) -> str:
    """The released column of a field's sum of squares.

    >>> square_of("fare")
    'square:fare'
    """
    return f"square:{field}"


def centred_of(field: str) -> str:
    """The released column of a field's sum, centred on the middle of its interval.

    >>> centred_of("fare")
    'centred:fare'
    """
    return f"centred:{field}"


def label_of(kind: str, field: str) -> str:
    """The default name of a value.

    >>> label_of("mean", "trip.fare")
    'mean_trip_fare'
    """
    return f"{kind}_{field.replace('.', '_')}"

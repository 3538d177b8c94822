"""Conditions on a record's own fields, which select the records that a pipeline counts.

They are evaluated before anything else of a record, each record by itself. As in SQL, a missing
field fulfils no condition, not even a negated one, except `Present`. Numbers are compared as
doubles. For n records, ``fulfilled`` returns (n,) whether each fulfils the condition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from dataclasses import field as member
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .texts import Step, changed, matching

Flags = NDArray[np.bool_]


class Fields(Protocol):
    """The fields of n records, column by column."""

    def numbers(self, path: str) -> NDArray[np.float64]:
        """(n,) numbers of a field; NaN if there is none."""

    def among(self, path: str, texts: Sequence[str]) -> tuple[Flags, Flags]:
        """(n,) whether a field is one of ``texts``, and whether it is a text at all."""

    def texts(self, path: str, role: str = "text") -> tuple[list[str], NDArray[np.int64]]:
        """Distinct texts of a field, and (n,) the index of each record's text; -1 if there is none.

        In the role ``unit`` a whole number counts as its text.
        """

    def truths(self, path: str) -> tuple[Flags, Flags]:
        """(n,) whether a field is true, and whether it is false."""

    def present(self, path: str) -> Flags:
        """(n,) whether a field holds a value."""


@dataclass(frozen=True)
class Between:
    """A number within an interval; an end that is None is open to infinity."""

    field: str
    low: Fraction | None = None
    high: Fraction | None = None
    low_open: bool = False
    high_open: bool = False
    role = "number"

    def fulfilled(self, fields: Fields) -> Flags:
        numbers = fields.numbers(self.field)
        good: Flags = ~np.isnan(numbers)
        if self.low is not None:
            low = float(self.low)
            good &= numbers > low if self.low_open else numbers >= low
        if self.high is not None:
            high = float(self.high)
            good &= numbers < high if self.high_open else numbers <= high
        return good


@dataclass(frozen=True)
class NumberIn:
    """A number that is one of some or, if denied, none of them."""

    field: str
    values: tuple[Fraction, ...]
    denied: bool = False
    role = "number"

    def fulfilled(self, fields: Fields) -> Flags:
        numbers = fields.numbers(self.field)
        found = np.isin(numbers, [float(value) for value in self.values])
        return ~found & ~np.isnan(numbers) if self.denied else found


@dataclass(frozen=True)
class TextIn:
    """A text that is one of some or, if denied, none of them."""

    field: str
    values: tuple[str, ...]
    denied: bool = False
    role = "text"

    def fulfilled(self, fields: Fields) -> Flags:
        found, there = fields.among(self.field, self.values)
        return there & ~found if self.denied else found


@dataclass(frozen=True)
class TextFits:
    """A text that fits after some functions or, if denied, does not."""

    field: str
    # the functions, in order; a text that they turn into none fulfils neither
    steps: tuple[Step, ...]
    test: str  # "in" the values, "like" the only value, or "matches" it as a regular expression
    values: tuple[str, ...]
    denied: bool = False
    role = "text"

    def fulfilled(self, fields: Fields) -> Flags:
        texts, place = fields.texts(self.field)
        fits = matching(self.test, self.values)
        found = [t is not None and fits(t) != self.denied for t in changed(texts, self.steps)]
        return np.array([*found, False])[place]


@dataclass(frozen=True)
class TruthIs:
    """A truth value."""

    field: str
    value: bool
    role = "truth"

    def fulfilled(self, fields: Fields) -> Flags:
        true, false = fields.truths(self.field)
        return true if self.value else false


@dataclass(frozen=True)
class Present:
    """A field that holds a text, number or truth value or, if denied, holds none."""

    field: str
    value: bool = True
    role = "scalar"

    def fulfilled(self, fields: Fields) -> Flags:
        there = fields.present(self.field)
        return there if self.value else ~there


@dataclass(frozen=True)
class RowFits:
    """A field whose row in a public table has a value that fulfils the condition ``test``."""

    field: str
    sha256: str  # of the table, with all of its values
    count: int  # its rows
    test: Leaf
    # keys of the rows that fulfil it or, if denied, of those that do not
    keys: frozenset[str] = member(repr=False, compare=False)
    denied: bool  # whether a record without a row fulfils it
    role = "unit"

    def fulfilled(self, fields: Fields) -> Flags:
        texts, place = fields.texts(self.field, self.role)
        return np.array([*((text in self.keys) != self.denied for text in texts), self.denied])[
            place
        ]


@dataclass(frozen=True)
class Every:
    """A conjunction of at least one condition."""

    parts: tuple[Condition, ...]

    def fulfilled(self, fields: Fields) -> Flags:
        out: Flags = np.logical_and.reduce([part.fulfilled(fields) for part in self.parts])
        return out


@dataclass(frozen=True)
class Some:
    """A disjunction of conditions."""

    parts: tuple[Condition, ...]

    def fulfilled(self, fields: Fields) -> Flags:
        out: Flags = np.logical_or.reduce([part.fulfilled(fields) for part in self.parts])
        return out


Leaf = Between | NumberIn | TextIn | TextFits | TruthIs | Present | RowFits
Condition = Leaf | Every | Some


def leaves(condition: Condition | None) -> Iterator[Leaf]:
    """The conditions on single fields within a condition; none for None."""
    if isinstance(condition, Every | Some):
        for part in condition.parts:
            yield from leaves(part)
    elif condition is not None:
        yield condition

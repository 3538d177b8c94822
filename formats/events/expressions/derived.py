"""Computed key columns: parts of a time or text, bands of a number, cases, lookups.

Each is a function of one record and the configuration. If the configuration determines all possible
values, they are its ``domain``: they do not depend on records, so a key of such columns needs no
private selection, and listing its values costs nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from ....mechanisms.columns import I64
from ..times import LATEST
from .conditions import Condition, Fields, Flags
from .looked_up import Lookup, PublicTable, Value, numbers_of
from .texts import Step, changed

QUARTER = 900_000_000  # microseconds; zones change their offsets only at quarters of an hour
MOST = 2.0**53  # bands from 0; beyond that, doubles have gaps
DECIMALS = 9
"""Decimals to which quotients are rounded: 0.3 / 0.1 is 2.9999999999999996, and means 3."""


@dataclass(frozen=True)
class TimePart:
    """A part of the event time: a whole number, or a date as text."""

    part: str  # a name of `PARTS`
    zone: str = "UTC"  # time zone in which it is read

    def values(self, time: I64) -> list[int] | list[str]:
        """(n,) values of (n,) times; a time outside 1970 to 9999 gives an arbitrary value."""
        local = _local(np.clip(time, 0, LATEST - 1), self.zone).astype("M8[us]")
        return PARTS[self.part](local)

    @property
    def domain(self) -> tuple[Value, ...] | None:
        """All values of a recurring part; None for years and dates."""
        return DOMAINS.get(self.part)


@dataclass(frozen=True)
class Band:
    """The band of a number: the multiple of a width at or below it, or the nearest one."""

    field: str  # path of the number
    width: Fraction  # of a band
    nearest: bool = False  # whether to take the nearest multiple; ties go up
    domain: ClassVar[None] = None
    role: ClassVar[str] = "number"

    def values(self, numbers: NDArray[np.float64]) -> list[int | str | None]:
        """(n,) multiples; None if there is none, or if doubles cannot tell them apart.

        They are whole numbers if the width is one, else texts with the decimals of the width.
        """
        with np.errstate(invalid="ignore", over="ignore"):
            quotient = np.round(numbers / float(self.width), DECIMALS)
            steps = np.floor(quotient + 0.5 if self.nearest else quotient)
            good = np.abs(steps) <= MOST
        show = self._shown()
        whole = np.where(good, steps, 0).astype(np.int64).tolist()
        pairs = zip(whole, good.tolist(), strict=True)
        return [show(step) if fine else None for step, fine in pairs]

    def _shown(self) -> Callable[[int], int | str]:
        decimals = decimals_of(self.width)
        unit = int(self.width * 10**decimals)
        if not decimals:
            return lambda step: step * unit
        return lambda step: _decimal(step * unit, decimals)


@dataclass(frozen=True)
class TextPart:
    """A text after some functions."""

    field: str  # path of the text
    steps: tuple[Step, ...]  # the functions, in order
    domain: ClassVar[None] = None
    role: ClassVar[str] = "text"
    missing: ClassVar[None] = None  # records without the text have no key

    def values(self, texts: Sequence[str]) -> list[str | None]:
        """One for each text; None if nothing is left."""
        return changed(texts, self.steps)


@dataclass(frozen=True)
class Cases:
    """A constant: that of the first condition that a record fulfils, or the default."""

    conditions: tuple[Condition, ...]  # in the order in which they are asked
    # JSON of each condition's value, and of the default
    constants: tuple[str, ...]

    def values(self, fields: Fields, size: int) -> list[Value]:
        """(size,) values of ``size`` records."""
        meant = [json.loads(one) for one in self.constants]
        return [meant[place] for place in _first(self.conditions, fields, size).tolist()]

    @property
    def domain(self) -> tuple[Value, ...]:
        """Every constant."""
        return tuple(json.loads(one) for one in dict.fromkeys(self.constants))


@dataclass(frozen=True)
class ChosenNumber:
    """A number: that of the first condition that a record fulfils, or the default.

    A record has exactly one number. Its column is clipped like that of a field, so the clipping
    interval bounds how far one record moves a sum, however many cases there are.
    """

    conditions: tuple[Condition, ...]  # in the order in which they are asked
    # each condition's number or path of one, and the default's
    numbers: tuple[Fraction | str, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """Fields from which some records take their number."""
        return tuple(dict.fromkeys(one for one in self.numbers if isinstance(one, str)))

    def values(
        self, fields: Fields, size: int, read: Callable[[str, Flags], NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        """(size,) numbers of ``size`` records.

        Args:
            read: function from a path, and (size,) whether a record needs its number, to numbers.
        """
        place, out = _first(self.conditions, fields, size), np.zeros(size)
        for path in self.paths:
            wanted = np.isin(place, [n for n, one in enumerate(self.numbers) if one == path])
            out = np.where(wanted, read(path, wanted), out)
        for n, one in enumerate(self.numbers):
            if isinstance(one, Fraction):
                out[place == n] = float(one)
        return out


def _first(conditions: Sequence[Condition], fields: Fields, size: int) -> NDArray[np.intp]:
    """(size,) index of the first condition that each record fulfils; their number if none."""
    chosen = np.full(size, len(conditions), np.intp)
    for place in range(len(conditions) - 1, -1, -1):
        chosen[conditions[place].fulfilled(fields)] = place
    return chosen


@dataclass(frozen=True)
class Attribute:
    """The newest value that a topic of attributes states for a record's unit.

    It is not a function of the record: the first stage adds it to the key. A sample has no such
    topic, so there it is the field of the same path in the record itself.
    """

    field: str  # path in the record that states the attribute
    otherwise: Value  # value of units without the attribute
    domain: ClassVar[None] = None
    role: ClassVar[str] = "scalar"

    def values(self, stated: Sequence[Any]) -> list[Value]:
        """One for each value; no key contains a number with decimals."""
        good = ((isinstance(one, str | int) and one != "") for one in stated)
        return [one if fine else self.otherwise for one, fine in zip(stated, good, strict=True)]


@dataclass(frozen=True)
class AttributeCases(Cases):
    """`Cases` on the attributes of a record's unit.

    As for `Attribute`, the first stage adds the value to the key, and in a sample the conditions
    look at the fields of the same paths in the record itself.
    """


OfUnit = Attribute | AttributeCases
"""Key columns that depend on the unit's attributes."""


@lru_cache(100)
def mapped(table: PublicTable, part: TextPart | Band) -> PublicTable:
    """A table with functions or bands applied to its values; rows left without a value are dropped.

    Raises:
        ValueError: its values are no texts, or no numbers.
    """
    keys = list(table.rows)
    if isinstance(part, Band):
        numbers = numbers_of(table)
        if numbers is None:
            raise ValueError("has values that are no numbers, and bands are of numbers")
        found: Sequence[Value | None] = part.values(np.array([numbers[key] for key in keys]))
    else:
        texts = [value for value in table.rows.values() if isinstance(value, str)]
        if len(texts) < len(keys):
            raise ValueError("has values that are no texts, and functions are of texts")
        found = part.values(texts)
    return PublicTable({k: v for k, v in zip(keys, found, strict=True) if v not in (None, "")})


Derived = TimePart | Band | TextPart | Cases | Lookup | Attribute


def decimals_of(number: Fraction) -> int:
    """Count the decimals of a number; a `ValueError` if there are more than nine.

    >>> decimals_of(Fraction("2.5")), decimals_of(Fraction(10))
    (1, 0)
    """
    for decimals in range(DECIMALS + 1):
        if (number * 10**decimals).denominator == 1:
            return decimals
    raise ValueError(f"{number} must be a decimal number with at most {DECIMALS} decimals")


def _decimal(scaled: int, decimals: int) -> str:
    """
    >>> _decimal(-125, 1), _decimal(5, 2)
    ('-12.5', '0.05')
    """
    sign, digits = "-" * (scaled < 0), str(abs(scaled)).rjust(decimals + 1, "0")
    return f"{sign}{digits[:-decimals]}.{digits[-decimals:]}"


def _local(time: I64, zone: str) -> I64:
    """Wall-clock microseconds of a zone, as if they were UTC."""
    if zone == "UTC":
        return time
    quarters, place = np.unique(time // QUARTER, return_inverse=True)
    where = ZoneInfo(zone)
    offsets = [_offset(quarter * QUARTER, where) for quarter in quarters.tolist()]
    return time + np.array(offsets, np.int64)[place]


def _offset(microseconds: int, zone: ZoneInfo) -> int:
    """The offset of a zone from UTC in microseconds, even for the first and last possible dates."""
    seconds = min(microseconds // 1_000_000, LATEST // 1_000_000 - 2 * 86_400)
    moment = datetime.fromtimestamp(seconds, UTC).astimezone(zone)
    offset = moment.utcoffset()
    return 0 if offset is None else round(offset.total_seconds()) * 1_000_000


def _since(local: NDArray[np.datetime64], unit: str, of: str) -> list[int]:
    """Count the whole units since the start of the current larger unit."""
    fine, coarse = local.astype(f"M8[{unit}]"), local.astype(f"M8[{of}]")
    passed: list[int] = (fine - coarse.astype(f"M8[{unit}]")).astype(np.int64).tolist()
    return passed


def _days(local: NDArray[np.datetime64]) -> I64:
    return local.astype("M8[D]").astype(np.int64)


PARTS: dict[str, Callable[[NDArray[np.datetime64]], list[int] | list[str]]] = {
    "year": lambda t: (t.astype("M8[Y]").astype(np.int64) + 1970).tolist(),
    "quarter": lambda t: (t.astype("M8[M]").astype(np.int64) % 12 // 3 + 1).tolist(),
    "month": lambda t: [n + 1 for n in _since(t, "M", "Y")],
    "day": lambda t: [n + 1 for n in _since(t, "D", "M")],
    "weekday": lambda t: ((_days(t) + 3) % 7 + 1).tolist(),  # 1970-01-01 was a Thursday
    "dayofweek": lambda t: ((_days(t) + 4) % 7 + 1).tolist(),
    "dow": lambda t: ((_days(t) + 4) % 7).tolist(),
    "hour": lambda t: _since(t, "h", "D"),
    "minute": lambda t: _since(t, "m", "h"),
    "date": lambda t: np.datetime_as_string(t, unit="D").tolist(),
}
"""The parts of a time: ``weekday`` counts from Monday, 1, ``dayofweek`` from Sunday, 1, ``dow``
from Sunday, 0; a date is a text such as 2026-11-22."""

DOMAINS: dict[str, tuple[Value, ...]] = {
    "quarter": tuple(range(1, 5)),
    "month": tuple(range(1, 13)),
    "day": tuple(range(1, 32)),
    "weekday": tuple(range(1, 8)),
    "dayofweek": tuple(range(1, 8)),
    "dow": tuple(range(7)),
    "hour": tuple(range(24)),
    "minute": tuple(range(60)),
}
"""All values of the recurring parts."""

"""Public tables: the row that a record's field finds, used as a key column and in conditions.

A table is part of the configuration. So what a record finds depends on that record alone, and
removing a unit does not change what another unit's record finds.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from .conditions import Leaf, RowFits
from .valued import ValueFields

Value = int | str | bool

_DECIMAL = re.compile(r"-?[0-9]{1,17}(\.[0-9]{1,17})?")
_HELD = {"number": "numbers alone", "text": "texts alone", "truth": "truth values alone"}


class Origin(NamedTuple):
    """A topic that states a table, and the two record fields that are its columns."""

    topic: str
    match: str  # path of the value that is compared with a record's field
    take: str  # path of the value


class PublicTable:
    """Values by the text of a field. Two tables are equal if their contents are.

    >>> PublicTable({"1": "Queens", "2": "Bronx"}) == PublicTable({"2": "Bronx", "1": "Queens"})
    True

    Attributes:
        rows: the values.
        sha256: digest of `lines`.
        origin: the topic that it is from; None: a file.
    """

    def __init__(self, rows: Mapping[str, Value], origin: Origin | None = None) -> None:
        self.rows, self.origin = rows, origin
        self.sha256 = hashlib.sha256("\n".join(self.lines()).encode()).hexdigest()

    def lines(self) -> list[str]:
        """A line of JSON for each pair, ordered by key."""
        return [json.dumps([key, self.rows[key]], ensure_ascii=False) for key in sorted(self.rows)]

    @property
    def unread(self) -> bool:
        """Whether its topic was not read yet: a table that was read is never empty."""
        return self.origin is not None and not self.rows

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PublicTable) and self.sha256 == other.sha256

    def __hash__(self) -> int:
        return hash(self.sha256)

    def __repr__(self) -> str:
        return f"PublicTable({self.sha256})"

    @property
    def content(self) -> dict[str, Any]:
        """Digest and size, as the charge has them."""
        return {"sha256": self.sha256, "count": len(self.rows)}


@dataclass(frozen=True)
class Lookup:
    """The value that a public table has for a field, or a default if it has none."""

    field: str  # path of a text or a whole number, which is compared as text
    table: PublicTable
    otherwise: Value  # if the field is missing, or the table lacks it
    role: ClassVar[str] = "unit"

    def values(self, texts: Sequence[str]) -> list[Value]:
        """One for each text."""
        return [self.table.rows.get(text, self.otherwise) for text in texts]

    @property
    def missing(self) -> Value:
        """The value of records without the field."""
        return self.otherwise

    @cached_property
    def domain(self) -> tuple[Value, ...]:
        """Every value of the table, and the default."""
        return domain_of(self.table, self.otherwise)


def domain_of(table: PublicTable, otherwise: Value) -> tuple[Value, ...]:
    """All values that a lookup can give, in order, the default last."""
    apart = {(type(value).__name__, value): value for value in table.rows.values()}
    last = (type(otherwise).__name__, otherwise)
    return (*(apart[one] for one in sorted(apart) if one != last), otherwise)


def numbers_of(table: PublicTable) -> dict[str, float] | None:
    """The values, or decimal texts, as doubles; None if one of them is not a number."""
    found: dict[str, float] = {}
    for key, value in table.rows.items():
        plain = not isinstance(value, bool) and _DECIMAL.fullmatch(str(value))
        if not plain or not math.isfinite(number := float(value)):
            return None
        found[key] = number
    return found


@lru_cache(1000)  # a table may have a million rows, and settings are read repeatedly
def row_fits(field: str, table: PublicTable, test: Leaf) -> RowFits:
    """The condition that the row which a field finds fulfils ``test``.

    A record without a row has no value to compare, so it fulfils ``test`` only if that requires a
    missing value.

    Raises:
        ValueError: the table's values have another type than ``test`` requires.
    """
    keys = list(table.rows)
    values: list[Any] = [table.rows[key] for key in keys]
    if test.role == "number":
        numbers = numbers_of(table)
        values = [None] if numbers is None else [numbers[key] for key in keys]
    types = {"number": float, "text": str, "truth": bool}.get(test.role, object)
    if not all(isinstance(value, types) for value in values):
        raise ValueError(f"is compared as {test.role}, and its values are not {_HELD[test.role]}")
    fits = test.fulfilled(ValueFields(len(values), lambda path, role: values))
    denied = bool(test.fulfilled(ValueFields(1, lambda path, role: [None]))[0])
    kept = np.flatnonzero(fits != denied).tolist()
    return RowFits(field, table.sha256, len(keys), test, frozenset(keys[n] for n in kept), denied)

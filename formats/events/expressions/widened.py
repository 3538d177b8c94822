"""Derived columns beside the fields found by compiled loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from ....mechanisms.columns import I64
from ..scanned import Flags, Scanned
from ..types import FALSE, INTEGER, MISSING, TEXT, TRUE
from .derived import Band, Cases, Derived, TextPart, TimePart
from .filtered import ScannedFields
from .looked_up import Lookup, Value

_KINDS: dict[type, int] = {int: INTEGER, str: TEXT, type(None): MISSING}


class DerivedColumn(NamedTuple):
    """n values as texts, which many rows may share."""

    data: NDArray[np.uint8]  # a buffer with the texts
    # kind, low, high: (n,) as in `Scanned`, within ``data``
    kind: NDArray[np.uint8]
    low: I64
    high: I64


def computed(how: Derived, time: I64, fields: ScannedFields) -> DerivedColumn:
    """Compute a derived column from fields and (n,) event times; a missing value is no field."""
    if isinstance(how, TextPart | Lookup):
        read, number = fields.texts(how.field, how.role)
        return _column([*how.values(read), how.missing], number % (len(read) + 1))
    if isinstance(how, TimePart):
        values: Sequence[Value | None] = how.values(time)
    elif isinstance(how, Cases):
        values = how.values(fields, len(time))
    else:
        assert isinstance(how, Band)  # no loop reads attributes, see `columns.readable`
        values = how.values(fields.numbers(how.field))
    place: dict[tuple[type, Value | None], int] = {}  # in Python True == 1
    number = np.array(
        [place.setdefault((type(value), value), len(place)) for value in values], np.int64
    )
    return _column([value for _, value in place], number)


def _column(values: Sequence[Value | None], number: I64) -> DerivedColumn:
    """The column whose row i has ``values[number[i]]``."""
    texts, kinds = [], []
    for value in values:
        texts.append(_text(value))
        truth = TRUE if value else FALSE
        kinds.append(truth if isinstance(value, bool) else _KINDS[type(value)])
    ends = np.cumsum([0, *map(len, texts)])
    kind = np.array(kinds, np.uint8)[number]
    data = np.frombuffer(b"".join(texts), np.uint8)
    return DerivedColumn(data, kind, ends[:-1][number], ends[1:][number])


def _text(value: Value | None) -> bytes:
    """A value as in the JSON of a key; a text without its quotation marks."""
    text = b"" if value is None else msgspec.json.encode(value)
    return text[1:-1] if isinstance(value, str) else text


class Widened:
    """Findings with further columns after those of the fields."""

    def __init__(self, found: Scanned, columns: Sequence[DerivedColumn]) -> None:
        self._found = found
        begins = np.cumsum([len(found.data), *(len(column.data) for column in columns)])[:-1]
        pairs = list(zip(columns, begins.tolist(), strict=True))
        self.data = np.concatenate([found.data, *(column.data for column in columns)])
        self.kind = np.column_stack([found.kind, *(column.kind for column in columns)])
        self.low = np.column_stack([found.low, *(column.low + at for column, at in pairs)])
        self.high = np.column_stack([found.high, *(column.high + at for column, at in pairs)])
        self.known = found.known

    def integers(self, place: int, wanted: Flags) -> I64:
        """As `Scanned.integers`, of a field."""
        return self._found.integers(place, wanted)

    def numbers(self, place: int, known: Flags) -> NDArray[np.float64]:
        """As `Scanned.numbers`, of a field."""
        return self._found.numbers(place, known)

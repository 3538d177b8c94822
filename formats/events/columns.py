"""Decoding many records at once: compiled loops find the value of each needed field.

They handle every plain record without making an object for it, and leave the others out.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from functools import cache, partial
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...mechanisms.columns import I64
from ...mechanisms.contract import UNIT, Mechanism
from ...mechanisms.keys import Keys
from ..schemas.schema import Known
from .expressions.derived import Derived, OfUnit
from .expressions.filtered import ScannedFields
from .expressions.widened import Widened, computed
from .fields import InputFields, NumericField, PipelineFields
from .keys import MAX_KEY
from .raw import RawRecord, timestamps_of
from .scanned import Flags, Scanned, Scanner
from .times import FACTORS, LATEST
from .types import FALSE, INTEGER, MISSING, NULL, REAL, ROLES, TEXT, TRUE, paths_of
from .views import MAX_UNIT, Decoded, Numbers, UnitTexts, View, encoded, keyed, on_grid

LEAST = 64  # records; with fewer, arrays cost more than objects
_KIND = {"str": (TEXT,), "int": (INTEGER,), "bool": (TRUE, FALSE), "number": (INTEGER, REAL)}
Rows = NDArray[np.intp]


def readable(
    fields: InputFields,
    pipelines: Sequence[PipelineFields],
    mechanisms: Sequence[Mechanism],
    parts: bool,
) -> bool:
    """Whether compiled loops can read all that pipelines and mechanisms need of an input's records.

    ``parts``: whether they find nested fields, not only a record's own.
    """
    paths = paths_of(fields, pipelines)
    return (
        len(fields.unit) == 1
        and fields.time_format in FACTORS
        and (parts or not any("." in path for path in paths))
        and all(p.sign is None for p in pipelines)
        and not any(UNIT in m.traits.inputs for m in mechanisms)
        and not any(isinstance(d, OfUnit) for p in pipelines for d in p.derived.values())
    )


class ColumnDecoder:
    """Decodes lists of events by columns; the format's scanner uses the same paths."""

    def __init__(
        self,
        fields: InputFields,
        pipelines: Sequence[PipelineFields],
        mechanisms: Sequence[Mechanism],
        scanner: Scanner,
    ) -> None:
        self._fields = fields
        self._pipelines, self._mechanisms = pipelines, mechanisms
        paths = sorted(paths_of(fields, pipelines))
        self._derived = sorted({d for p in pipelines for d in p.derived.values()}, key=repr)
        every = [*paths, *self._derived]
        self._place: dict[str | Derived, int] = {one: n for n, one in enumerate(every)}
        self._scanner = scanner
        self._seed = secrets.randbits(62) | 1

    def decode(
        self, records: Sequence[RawRecord], known_ids: Known = MappingProxyType({})
    ) -> tuple[Decoded, Rows]:
        """Decode plain records with schemas in ``known_ids``; also return the rows left out."""
        found = self._scanner.scan(records, known_ids)
        known = found.known
        time = self._times(found, records, known)
        if self._derived:
            found = self._widened(found, time, known)
        (low, high), integer = self._units(found, known)
        every = zip(self._pipelines, self._mechanisms, strict=True)
        # Made when a condition first needs it, once for all conditions.
        asked = cache(partial(ScannedFields, found, self._place, known))
        parts = [self._part(p, m, found, time, known, asked) for p, m in every]
        units = UnitTexts(found.data, low, high, integer, {})
        views = tuple(part.view(known) for part in parts)
        return Decoded(time, units, views, {}), np.flatnonzero(~known)

    def _widened(self, found: Scanned, time: I64, known: Flags) -> Scanned:
        """The findings with derived columns after the fields."""
        read = ScannedFields(found, self._place, known)
        return Widened(found, [computed(one, time, read) for one in self._derived])

    def _is(self, found: Scanned, path: str | Derived, role: str) -> Flags:
        """Rows whose field holds a value that its role allows."""
        kinds = [kind for name in ROLES[role] for kind in _KIND[name]]
        return np.isin(found.kind[:, self._place[path]], kinds)

    def _times(self, found: Scanned, records: Sequence[RawRecord], known: Flags) -> I64:
        factor = FACTORS[self._fields.time_format]
        if self._fields.time_format == "record":
            out = timestamps_of(records)
        else:
            place = self._place[self._fields.time or ""]
            known &= found.kind[:, place] == INTEGER
            out = found.integers(place, known)
        known &= (out >= 0) & (out < LATEST // factor)
        return np.where(known, out, 0) * factor

    def _units(self, found: Scanned, known: Flags) -> tuple[tuple[I64, I64], Flags]:
        path = self._fields.unit[0]
        place = self._place[path]
        low, high = found.low[:, place], found.high[:, place]
        known &= self._is(found, path, "unit") & (high - low <= MAX_UNIT)
        return (low, high), found.kind[:, place] == INTEGER

    def _part(
        self, p: PipelineFields, m: Mechanism, found: Scanned, time: I64, known: Flags,
        asked: Callable[[], ScannedFields],
    ) -> _Part:  # fmt: skip
        """Read what one pipeline needs; rows that it cannot read become unknown."""
        names = {name: path for name in m.traits.inputs if (path := _path(p, name)) is not None}
        floats = {path: self._floats(path, found, known) for path in set(names.values())}
        numbers = [self._numbers(column, found, known, asked) for column in p.columns]
        keys = self._keys(p, found, known) if m.traits.by_record else None
        wanted = None
        if p.where is not None:
            wanted = p.where.fulfilled(asked())
        return _Part(p, m, floats, numbers, names, time, keys, wanted, self._seed)

    def _numbers(
        self, column: NumericField, found: Scanned, known: Flags,
        asked: Callable[[], ScannedFields],
    ) -> Numbers:  # fmt: skip
        """Numbers of a value column, and the rows that are in it."""
        path = column.field
        counted = None if column.where is None else column.where.fulfilled(asked())
        if column.chosen is not None:
            among = np.ones(len(known), bool) if counted is None else counted
            return column.chosen.values(
                asked(),
                len(known),
                lambda path, rows: self._needed(path, found, known, rows & among),
            ), counted
        if path is None:
            return None, counted
        if counted is None:
            return self._floats(path, found, known), None
        return self._needed(path, found, known, counted), counted

    def _needed(
        self, path: str, found: Scanned, known: Flags, wanted: Flags
    ) -> NDArray[np.float64]:
        """Numbers of the rows that need one; 0 in all others."""
        empty = np.isin(found.kind[:, self._place[path]], (MISSING, NULL))
        known &= self._is(found, path, "number") | (empty & ~wanted)
        still = known & wanted
        numbers = found.numbers(self._place[path], still)
        known &= still | ~wanted
        return np.where(still, numbers, 0.0)

    def _floats(self, path: str, found: Scanned, known: Flags) -> NDArray[np.float64]:
        known &= self._is(found, path, "number")
        return found.numbers(self._place[path], known)

    def _keys(self, p: PipelineFields, found: Scanned, known: Flags) -> Keys:
        """The canonical key of each row; meaningful only in rows that stay known."""
        from .key_scan import lengths, texts

        columns = [p.derived.get(path, path) for path in p.key]
        fields = np.array([self._place[path] for path in columns], np.int64)
        for path in columns:
            place = self._place[path]
            empty = (found.kind[:, place] == TEXT) & (found.high[:, place] == found.low[:, place])
            known &= self._is(found, path, "key") & ~empty
        offsets = np.zeros(len(known) + 1, np.int64)
        widths = np.empty(len(known), np.int64)
        lengths(found.kind, found.low, found.high, fields, known, widths)
        known &= widths <= MAX_KEY
        np.cumsum(np.where(known, widths, 0), out=offsets[1:])
        data = np.empty(int(offsets[-1]), np.uint8)
        texts(found.data, found.kind, found.low, found.high, fields, known, offsets, data)
        return Keys(data, offsets)


class _Part(NamedTuple):
    """One pipeline's columns of all rows; meaningful only in known rows."""

    fields: PipelineFields
    mechanism: Mechanism
    floats: dict[str, NDArray[np.float64]]
    numbers: list[Numbers]  # of the value columns
    names: dict[str, str]  # input of the mechanism -> path
    time: I64
    keys: Keys | None
    wanted: Flags | None  # rows that fulfil the pipeline's condition; None: there is none
    seed: int

    def view(self, known: Flags) -> View:
        """The known rows as the pipeline sees them."""
        known = known if self.wanted is None else known & self.wanted
        rows, sign = np.flatnonzero(known), np.ones(len(known), np.int8)
        columns = {
            name: self.floats[self.names[name]] if name in self.names else self.time
            for name in self.mechanism.traits.inputs
        }
        if self.keys is None:
            return encoded(self.mechanism, rows, columns, sign, {})
        value = on_grid(self.fields, len(known), self.numbers)
        keys, key = self._numbered(self.keys, known, rows)
        return keyed(self.fields, self.mechanism, rows, keys, key, columns, value, sign, {})

    def _numbered(self, all_: Keys, known: Flags, rows: Rows) -> tuple[Keys, Rows]:
        from .key_scan import numbered

        first, number = numbered(all_.data, all_.offsets, known, self.seed)
        return all_.take(first), number[rows]


def _path(p: PipelineFields, name: str) -> str | None:
    """Path of a mechanism's input in a record; None for the event time."""
    given = p.inputs or {}
    return None if name == "time" and name not in given else given.get(name, name)

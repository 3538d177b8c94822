"""Decoding of records one by one, with one reason per bad record and no payloads.

A record that the union of all fields refuses is decoded again for each pipeline with only its own
fields, so that no pipeline affects what another counts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from ...mechanisms.columns import I64
from ...mechanisms.contract import UNIT, Mechanism
from ...mechanisms.keys import Keys
from ..schemas.schema import Known
from .expressions.derived import Attribute, AttributeCases, Cases, TextPart, TimePart
from .expressions.looked_up import Lookup
from .expressions.valued import ValueFields, doubles
from .fields import InputFields, NumericField, PipelineFields
from .framed import Columns, FramedReader
from .keys import numbered
from .objects import ObjectReader, Sight
from .raw import RawRecord, timestamps_of
from .reasons import Bad, Reason
from .times import FACTORS, LATEST, fits, iso, scale, scaled
from .types import typed
from .views import MAX_UNIT, Decoded, Flags, Numbers, View, encoded, keyed, on_grid

Readable = Sight | Columns


class Inspected(NamedTuple):
    """Records as read by the input or one of its pipelines; notes faults."""

    sight: Readable
    bad: Bad  # unusable rows
    own: Bad  # rows that this reader cannot use; for the input itself, ``bad``

    @property
    def size(self) -> int:
        return self.sight.size

    @property
    def fields(self) -> ValueFields:
        return ValueFields(self.size, self.column)

    def fault(self, row: int, word: str, path: str) -> None:
        if row not in self.bad:
            self.own.setdefault(row, Reason.at(word, path))

    def column(self, path: str, role: str) -> list[Any]:
        """Values of a path; a value that does not suit the role is a fault."""
        values, faults = self.sight.column(path, role)
        for row, reason in faults.items():
            if row not in self.bad:
                self.own.setdefault(row, reason)
        return values

    def floats(self, path: str, needed: Flags | None = None) -> NDArray[np.float64]:
        """Numbers of a path; ``needed`` rows (None: all) must have one."""
        values = self.column(path, "number")
        floats = doubles(values)
        for row in np.flatnonzero(~np.isfinite(floats)).tolist():
            if needed is None or needed[row]:
                self.fault(row, "missing_value" if values[row] is None else "not_finite", path)
            floats[row] = 0.0
        return floats


class RecordDecoder:
    """Decoder of events into typed columns for an input's pipelines, an object for each record."""

    def __init__(
        self,
        fields: InputFields,
        pipelines: Sequence[PipelineFields],
        mechanisms: Sequence[Mechanism],
        reader: ObjectReader | FramedReader,
    ) -> None:
        self._fields = fields
        self._pipelines, self._mechanisms = pipelines, mechanisms
        self._zone = ZoneInfo(fields.zone)
        self._reader = reader

    def decode(self, records: Sequence[RawRecord], known: Known) -> Decoded:
        """Decode a list of records; arguments as for `Decoder.decode`."""
        values = [r.value for r in records]
        offsets = [r.offset for r in records]
        seen: Sequence[tuple[Readable, Bad]] = self._reader.read(values, offsets, known)
        (sight, bad), *sights = seen
        shared = Inspected(sight, bad, bad)
        time = self._times(shared, records)
        unit = self._units(shared)
        views = []
        readers = zip(self._pipelines, self._mechanisms, sights, strict=True)
        for p, m, (sight, own) in readers:
            own = {row: reason for row, reason in own.items() if row not in bad}
            views.append(self._view(p, m, Inspected(sight, bad, own), time, unit))
        return Decoded(time, unit, tuple(views), bad)

    def _times(self, seen: Inspected, records: Sequence[RawRecord]) -> I64:
        how = self._fields.time_format
        if how == "record":
            values: list[Any] = timestamps_of(records).tolist()
        else:
            role = "text" if how == "iso" else "number"
            values = seen.column(self._fields.time or "", role)
        if how in FACTORS and (quick := scale(values, FACTORS[how])) is not None:
            return quick
        convert = iso(self._zone) if how == "iso" else scaled(FACTORS[how])
        out = np.zeros(len(records), np.int64)
        try:
            out[:] = [convert(v) for v in values]
            wrong = np.flatnonzero((out < 0) | (out >= LATEST))
        except (TypeError, ValueError, OverflowError):
            wrong = np.array([r for r, v in enumerate(values) if not fits(convert, v, out, r)])
        for row in wrong.tolist():
            word = "missing_time" if values[row] is None else "bad_time"
            seen.fault(row, word, self._fields.time or "")
        return out

    def _units(self, seen: Inspected) -> list[Any]:
        columns = [seen.column(path, "unit") for path in self._fields.unit]
        units: list[Any] = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        # Characters of four bytes: a symbol or a number may be longer than its record.
        quick = len(columns) == 1 and max(map(len, map(str, units)), default=0) <= MAX_UNIT // 4
        if quick and None not in units:
            return units
        for row, parts in enumerate(zip(*columns, strict=True)):
            if None in parts:
                seen.fault(row, "missing_unit", self._fields.unit[parts.index(None)])
            elif sum(len(str(part).encode()) for part in parts) > MAX_UNIT:
                seen.bad.setdefault(row, "huge_unit")
        return units

    def _view(
        self, p: PipelineFields, m: Mechanism, seen: Inspected, time: I64, unit: list[Any]
    ) -> View:
        other = _filtered_out(p, seen)
        value = on_grid(p, seen.size, [_numbers(column, seen) for column in p.columns])
        sign = _signs(p, seen)
        if m.traits.by_record:
            keys, key = _keys(p, seen, time)
        columns = _inputs(p, m, seen, time, unit)
        own = {row: reason for row, reason in seen.own.items() if row not in other}
        rows = _good(seen.size, seen.bad, own, other)
        if m.traits.by_record:
            return keyed(p, m, rows, keys, key[rows], columns, value, sign, own)
        return encoded(m, rows, columns, sign, own)


def _inputs(
    p: PipelineFields, m: Mechanism, seen: Inspected, time: I64, unit: list[Any]
) -> dict[str, NDArray[Any]]:
    """Columns of the mechanism's inputs."""
    columns: dict[str, NDArray[Any]] = {}
    for name in m.traits.inputs:
        if name == UNIT and not m.traits.keys.of_record:
            columns[name] = np.fromiter(unit, object, len(unit))
        elif name == "time" and name not in (p.inputs or {}):
            columns[name] = time
        else:
            columns[name] = seen.floats((p.inputs or {}).get(name, name))
    return columns


def _filtered_out(p: PipelineFields, seen: Inspected) -> frozenset[int]:
    """Readable rows that the pipeline does not count: nothing else in them is a fault."""
    if p.where is None:
        return frozenset()
    out = ~p.where.fulfilled(seen.fields)
    out[list(seen.own)] = False  # unreadable rows are set aside, not filtered out
    return frozenset(np.flatnonzero(out).tolist())


def _keys(p: PipelineFields, seen: Inspected, time: I64) -> tuple[Keys, NDArray[np.intp]]:
    columns = [_key_column(p, path, seen, time) for path in p.key]
    keys, key, wrong = numbered(columns, seen.size)
    for row in np.flatnonzero(np.isin(key, list(wrong))).tolist() if wrong else ():
        seen.fault(row, wrong[int(key[row])], p.key[0] if len(p.key) == 1 else "")
    return keys, key


def _key_column(p: PipelineFields, name: str, seen: Inspected, time: I64) -> list[Any]:
    """Values of one key column, read from the record or derived."""
    derived = p.derived.get(name)
    if derived is None:
        return seen.column(name, "key")
    if isinstance(derived, TimePart):
        return list(derived.values(time))
    if isinstance(derived, AttributeCases):

        def stated(path: str, role: str) -> list[Any]:
            found = seen.column(path, "scalar")
            return typed([None if one == "" else one for one in found], role)

        return list(derived.values(ValueFields(seen.size, stated), seen.size))
    if isinstance(derived, Cases):
        return list(derived.values(seen.fields, seen.size))
    if isinstance(derived, TextPart | Lookup):
        texts, place = seen.fields.texts(derived.field, derived.role)
        found = [*derived.values(texts), derived.missing]
        return [found[n] for n in place.tolist()]
    values = seen.column(derived.field, derived.role)
    if isinstance(derived, Attribute):
        return list(derived.values(values))
    return list(derived.values(doubles(values)))


def _numbers(column: NumericField, seen: Inspected) -> Numbers:
    """Numbers of a value column, and the records that are in it."""
    counted = None if column.where is None else column.where.fulfilled(seen.fields)
    if column.chosen is not None:
        among = np.ones(seen.size, bool) if counted is None else counted
        return column.chosen.values(
            seen.fields, seen.size, lambda path, rows: seen.floats(path, rows & among)
        ), counted
    return None if column.field is None else seen.floats(column.field, counted), counted


def _signs(p: PipelineFields, seen: Inspected) -> NDArray[np.int8]:
    out = np.ones(seen.size, np.int8)
    if p.sign is None:
        return out
    for row, value in enumerate(seen.column(p.sign, "sign")):
        sign = _sign(value)
        if sign is None:
            seen.fault(row, "bad_sign", p.sign)
        out[row] = sign or 1
    return out


_SIGNS: dict[Any, int] = {None: 1, 1: 1, -1: -1, "insert": 1, "delete": -1}


def _sign(value: Any) -> int | None:
    if isinstance(value, bool):  # "deleted": true
        return -1 if value else 1
    return None if isinstance(value, float) else _SIGNS.get(value)


def _good(n: int, *faults: Collection[int]) -> NDArray[np.intp]:
    good = np.ones(n, bool)
    for bad in faults:
        good[list(bad)] = False
    return np.flatnonzero(good)

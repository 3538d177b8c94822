"""Decoding of records one by one, with one reason per bad record and no payloads.

A record that the union of all fields refuses is decoded again for each pipeline with the fields of
that pipeline alone, so that no pipeline affects what another one counts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any
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
        time = self._times(sight, records, bad)
        unit = self._units(sight, values, bad)
        views = []
        readers = zip(self._pipelines, self._mechanisms, sights, strict=True)
        for p, m, (sight, own) in readers:
            own = {row: reason for row, reason in own.items() if row not in bad}
            views.append(self._view(p, m, sight, time, unit, (bad, own)))
        return Decoded(time, unit, tuple(views), bad)

    def _column(
        self, path: str, role: str, sight: Readable, bad: Bad, own: Bad | None = None
    ) -> list[Any]:
        """Values of a path; a value that the role has no use for is an error."""
        values, faults = sight.column(path, role)
        for row, reason in faults.items():
            if row not in bad:
                (bad if own is None else own).setdefault(row, reason)
        return values

    def _times(self, sight: Readable, records: Sequence[RawRecord], bad: Bad) -> I64:
        how = self._fields.time_format
        if how == "record":
            values: list[Any] = timestamps_of(records).tolist()
        else:
            role = "text" if how == "iso" else "number"
            values = self._column(self._fields.time or "", role, sight, bad)
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
            reason = "missing_time" if values[row] is None else "bad_time"
            bad.setdefault(row, Reason.at(reason, self._fields.time or ""))
        return out

    def _units(self, sight: Readable, values: list[Any], bad: Bad) -> list[Any]:
        columns = [self._column(path, "unit", sight, bad) for path in self._fields.unit]
        units: list[Any] = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        # A short record cannot hold a huge unit.
        small = max(map(len, filter(None, values)), default=0) <= MAX_UNIT
        if small and len(columns) == 1 and None not in units:
            return units
        for row, parts in enumerate(zip(*columns, strict=True)):
            if None in parts:
                bad.setdefault(row, Reason.at("missing_unit", self._fields.unit[parts.index(None)]))
            elif not small and sum(len(str(v).encode()) for v in parts) > MAX_UNIT:
                bad.setdefault(row, "huge_unit")
        return units

    def _view(
        self,
        p: PipelineFields,
        m: Mechanism,
        sight: Readable,
        time: I64,
        unit: list[Any],
        faults: tuple[Bad, Bad],
    ) -> View:
        bad, own = faults
        other = self._filtered_out(p, sight, bad, own)
        value = on_grid(p, sight.size, [self._numbers(c, sight, bad, own) for c in p.columns])
        sign = self._signs(p, sight, bad, own)
        of_record = not m.inputs or m.keys.of_record
        if of_record:
            keys, key = self._keys(p, sight, time, bad, own)
        columns = self._inputs(p, m, sight, time, unit, bad, own)
        own = {row: reason for row, reason in own.items() if row not in other}
        rows = _good(sight.size, bad, own, other)
        if of_record:
            return keyed(p, m, rows, keys, key[rows], columns, value, sign, own)
        return encoded(m, rows, columns, sign, own)

    def _inputs(
        self, p: PipelineFields, m: Mechanism, sight: Readable, time: I64, unit: list[Any],
        bad: Bad, own: Bad,
    ) -> dict[str, NDArray[Any]]:  # fmt: skip
        """Columns of the mechanism's inputs."""
        columns: dict[str, NDArray[Any]] = {}
        for name in m.inputs:
            path = (p.inputs or {}).get(name, name)
            if name == UNIT and not m.keys.of_record:
                columns[name] = np.fromiter(unit, object, len(unit))
            elif name == "time" and name not in (p.inputs or {}):
                columns[name] = time
            else:
                columns[name] = self._floats(path, sight, bad, own)
        return columns

    def _filtered_out(
        self, p: PipelineFields, sight: Readable, bad: Bad, own: Bad
    ) -> frozenset[int]:
        """Rows that are readable, and not the pipeline's: nothing else in them is a fault."""
        if p.where is None:
            return frozenset()
        read = ValueFields(
            sight.size,
            lambda path, role: self._column(path, role, sight, bad, own),
        )
        out = ~p.where.fulfilled(read)
        out[list(own)] = False  # what cannot be read is set aside, whatever it may fulfil
        return frozenset(np.flatnonzero(out).tolist())

    def _keys(
        self, p: PipelineFields, sight: Readable, time: I64, bad: Bad, own: Bad
    ) -> tuple[Keys, NDArray[np.intp]]:
        columns = [self._key_column(p, path, sight, time, bad, own) for path in p.key]
        keys, key, wrong = numbered(columns, sight.size)
        for row in np.flatnonzero(np.isin(key, list(wrong))).tolist() if wrong else ():
            if row not in bad:
                at = p.key[0] if len(p.key) == 1 else ""
                own.setdefault(row, Reason.at(wrong[int(key[row])], at))
        return keys, key

    def _key_column(
        self, p: PipelineFields, name: str, sight: Readable, time: I64, bad: Bad, own: Bad
    ) -> list[Any]:
        """Values of one column of the key, of the record itself or derived."""
        derived = p.derived.get(name)
        if derived is None:
            return self._column(name, "key", sight, bad, own)
        if isinstance(derived, TimePart):
            return list(derived.values(time))
        read = ValueFields(sight.size, lambda path, role: self._column(path, role, sight, bad, own))
        if isinstance(derived, AttributeCases):

            def stated(path: str, role: str) -> list[Any]:
                found = self._column(path, "scalar", sight, bad, own)
                return typed([None if one == "" else one for one in found], role)

            return list(derived.values(ValueFields(sight.size, stated), sight.size))
        if isinstance(derived, Cases):
            return list(derived.values(read, sight.size))
        if isinstance(derived, TextPart | Lookup):
            texts, place = read.texts(derived.field, derived.role)
            found = [*derived.values(texts), derived.missing]
            return [found[n] for n in place.tolist()]
        if isinstance(derived, Attribute):
            return list(derived.values(self._column(derived.field, derived.role, sight, bad, own)))
        values = self._column(derived.field, "number", sight, bad, own)
        return list(derived.values(doubles(values)))

    def _numbers(self, column: NumericField, sight: Readable, bad: Bad, own: Bad) -> Numbers:
        """Numbers of a value column, and the records that are in it."""
        counted = None
        read = ValueFields(sight.size, lambda path, role: self._column(path, role, sight, bad, own))
        if column.where is not None:
            counted = column.where.fulfilled(read)
        if column.chosen is not None:
            among = np.ones(sight.size, bool) if counted is None else counted
            return column.chosen.values(
                read, sight.size,
                lambda path, rows: self._floats(path, sight, bad, own, rows & among),
            ), counted  # fmt: skip
        if column.field is None:
            return None, counted
        return self._floats(column.field, sight, bad, own, counted), counted

    def _floats(
        self, path: str, sight: Readable, bad: Bad, own: Bad, needed: Flags | None = None
    ) -> NDArray[np.float64]:
        values = self._column(path, "number", sight, bad, own)
        floats = doubles(values)
        for row in np.flatnonzero(~np.isfinite(floats)).tolist():
            if row not in bad and (needed is None or needed[row]):
                reason = "missing_value" if values[row] is None else "not_finite"
                own.setdefault(row, Reason.at(reason, path))
            floats[row] = 0.0
        return floats

    def _signs(self, p: PipelineFields, sight: Readable, bad: Bad, own: Bad) -> NDArray[np.int8]:
        out = np.ones(sight.size, np.int8)
        if p.sign is None:
            return out
        for row, value in enumerate(self._column(p.sign, "sign", sight, bad, own)):
            sign = _sign(value)
            if sign is None and row not in bad:
                own.setdefault(row, Reason.at("bad_sign", p.sign))
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

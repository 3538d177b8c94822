"""Attributes of units, stated by records of a topic of their own.

The newest record of a unit replaces all earlier ones: a field that it lacks is no longer an
attribute. A record without a value (a tombstone) removes all attributes of the unit that its key
names. A value that does not have the type required by a column or a condition is a dead letter and
no attribute; the record's other attributes still count, so no pipeline's releases depend on what
another one requires.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from ..entries import FORMATS
from ..schemas.schema import Known
from .expressions.conditions import Present
from .expressions.derived import AttributeCases, OfUnit
from .expressions.looked_up import Value
from .expressions.valued import ValueFields
from .fields import InputFields, PipelineFields
from .keys import decode_key, encode_key
from .raw import RawRecord
from .reasons import Bad, Reason
from .records import Inspected, Readable
from .types import typed, types_of
from .views import MAX_UNIT

MAX_ATTRIBUTE = 512  # bytes of a text: half the limit of a key


class StatedRows(NamedTuple):
    """Statements of n records, in log order."""

    units: list[Any]  # (n,) None in rows that state nothing
    rows: list[bytes]  # (n,) JSON of the attributes, null if missing; b"": removed
    bad: Bad  # rows that state nothing
    faults: Bad  # rows with an unreadable attribute


class AttributeDecoder:
    """Decoder of records that state attributes.

    Args:
        fields: fields of the topic; its unit is one field.
        paths: paths of the attributes. Each is read independently of the others, which may be
            another pipeline's.
        compared: attributes that may be any number, because only conditions use them.
    """

    def __init__(
        self, fields: InputFields, paths: Sequence[str], compared: Collection[str] = ()
    ) -> None:
        self._unit = fields.unit[0]
        self._roles = {path: "scalar" if path in compared else "key" for path in paths}
        each = [PipelineFields((), where=Present(path)) for path in paths]
        self._reader = FORMATS[fields.format].reader(fields, each)

    def decode(self, records: Sequence[RawRecord], known: Known | None = None) -> StatedRows:
        """Decode records; their content never raises an error.

        ``known`` has schemas by id, for values that carry one; another id makes its record bad.
        """
        values = [record.value for record in records]
        offsets = [record.offset for record in records]
        seen: Sequence[tuple[Readable, Bad]] = self._reader.read(values, offsets, known or {})
        (sight, bad), *sights = seen
        bad, faults = dict(bad), Bad()
        named = Inspected(sight, bad, bad).column(self._unit, "unit")
        columns = [
            self._attribute(path, *one, faults)
            for path, one in zip(self._roles, sights, strict=True)
        ]
        units, rows = list[Any](), list[bytes]()
        for row, (unit, *stated) in enumerate(zip(named, *columns, strict=True)):
            gone = values[row] is None
            if gone:
                unit = _unit_of_key(records[row].key)
                bad.pop(row, None)
            if row not in bad and (reason := self._fault(unit)):
                bad[row] = reason
            units.append(None if row in bad else unit)
            rows.append(b"" if gone else encode_key(stated))
        faults = {row: why for row, why in faults.items() if row not in bad and rows[row]}
        return StatedRows(units, rows, bad, faults)

    def _attribute(self, path: str, sight: Readable, bad: Bad, faults: Bad) -> list[Any]:
        """Values of an attribute; None if there is no usable one."""
        allowed = types_of(self._roles[path])
        for row, why in bad.items():
            faults.setdefault(row, why)
        values = list(Inspected(sight, faults, faults).column(path, "scalar"))
        for row, value in enumerate(values):
            if value is None or value == "":
                values[row] = None
            elif type(value) not in allowed:
                faults.setdefault(row, Reason.at("wrong_type", path))
            elif isinstance(value, str) and len(value.encode()) > MAX_ATTRIBUTE:
                values[row] = None
                faults.setdefault(row, Reason.at("huge_key", path))
        return values

    def _fault(self, unit: Any) -> str | None:
        if unit is None:
            return Reason.at("missing_unit", self._unit)
        return "huge_unit" if len(str(unit).encode()) > MAX_UNIT else None


def _unit_of_key(key: bytes | None) -> str | None:
    """The unit in a record's key as text, as a producer's partitioner reads it."""
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return None


def values_of(
    stated: Sequence[bytes], paths: Sequence[str], columns: Sequence[OfUnit]
) -> list[tuple[Value, ...]]:
    """The values of key columns for n units.

    Args:
        stated: (n,) JSON of each unit's attributes; b"" if it has none.

    >>> from .expressions.derived import Attribute
    >>> values_of([b'["DE",null]', b""], ["land", "plan"], [Attribute("land", "?")])
    [('DE',), ('?',)]
    """
    rows = [decode_key(one) if one else [None] * len(paths) for one in stated]
    known = {path: [row[place] for row in rows] for place, path in enumerate(paths)}
    read = ValueFields(len(rows), lambda path, role: typed(known[path], role))
    found = [
        column.values(read, len(rows)) if isinstance(column, AttributeCases)
        else column.values(known[column.field])
        for column in columns
    ]  # fmt: skip
    return list(zip(*found, strict=True))


def completed(key: bytes, values: Sequence[Value], places: Sequence[int]) -> bytes:
    """Insert columns into the key of a record.

    Args:
        key: JSON of its other columns.
        values: values of the columns, in their order.
        places: (n,) place of each in the whole key.

    >>> completed(b'["p1"]', ["DE", "none"], [0, 2])
    b'["DE","p1","none"]'
    """
    whole: list[Any] = decode_key(key)
    for place, value in zip(places, values, strict=True):
        whole.insert(place, value)
    return encode_key(whole)

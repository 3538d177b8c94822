"""Attributes of units, as records of a topic of their own state them.

The newest record of a unit counts as a whole: a field that it lacks is no attribute any more. A
record without a value takes all attributes of the unit back that its key names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .fields import InputFields, PipelineFields
from .keys import decode_key, encode_key
from .objects import ObjectReader, Sight
from .raw import RawRecord
from .reasons import Bad, Reason
from .views import MAX_UNIT

MAX_ATTRIBUTES = 512  # bytes of all attributes of a unit: half of what a key may have


class StatedRows(NamedTuple):
    """Statements of n records, in log order; ``bad`` rows state nothing."""

    units: list[Any]  # (n,) None in bad rows
    rows: list[bytes]  # (n,) JSON of the attributes, null where one is missing; b"": taken back
    bad: Bad


class AttributeDecoder:
    """Decoder of records in JSON that state attributes.

    Args:
        fields: of the topic; its unit is one field.
        paths: of the attributes.
    """

    def __init__(self, fields: InputFields, paths: Sequence[str]) -> None:
        self._unit = fields.unit[0]
        self._paths = tuple(paths)
        self._reader = ObjectReader(fields, [PipelineFields(self._paths)], None)

    def decode(self, records: Sequence[RawRecord]) -> StatedRows:
        """Decode records; their content never raises an error."""
        values = [record.value for record in records]
        offsets = [record.offset for record in records]
        _, (sight, bad) = self._reader.read(values, offsets, {})
        columns = [self._column(sight, self._unit, "unit", bad)]
        columns += [self._column(sight, path, "key", bad) for path in self._paths]
        units, rows = list[Any](), list[bytes]()
        for row, (unit, *stated) in enumerate(zip(*columns, strict=True)):
            if values[row] is None:
                unit = _unit_of_key(records[row].key)
                bad.pop(row, None)
                encoded = b""
            else:
                encoded = encode_key([None if one == "" else one for one in stated])
            if row not in bad and (reason := self._fault(unit, encoded)):
                bad[row] = reason
            units.append(None if row in bad else unit)
            rows.append(encoded)
        return StatedRows(units, rows, bad)

    def _column(self, sight: Sight, path: str, role: str, bad: Bad) -> list[Any]:
        values, faults = sight.column(path, role)
        for row, reason in faults.items():
            bad.setdefault(row, reason)
        return list(values)

    def _fault(self, unit: Any, encoded: bytes) -> str | None:
        if unit is None:
            return Reason.at("missing_unit", self._unit)
        if len(str(unit).encode()) > MAX_UNIT:
            return "huge_unit"
        return "huge_key" if len(encoded) > MAX_ATTRIBUTES else None


def _unit_of_key(key: bytes | None) -> str | None:
    """The unit that a record's key names as text, as a producer's partitioner reads it."""
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return None


def completed(key: bytes, stated: bytes, places: Sequence[tuple[int, int, Any]]) -> bytes:
    """Put attributes into the key of a record.

    Args:
        key: JSON of its other columns.
        stated: JSON of the unit's attributes; b"": it has none.
        places: of each column in the whole key, in order: its place there, its place among the
            attributes, and its value where the unit has none.

    >>> completed(b'["p1"]', b'["DE",null]', [(0, 0, "?"), (2, 1, "none")])
    b'["DE","p1","none"]'
    """
    values: list[Any] = decode_key(key)
    known = decode_key(stated) if stated else []
    for place, number, otherwise in places:
        found = known[number] if known else None
        values.insert(place, otherwise if found is None else found)
    return encode_key(values)

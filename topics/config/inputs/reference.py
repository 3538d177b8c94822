"""Public reference data in a topic, as a table.

Any error is refused, with its place, when a pipeline is declared; messages show no values, since
the topic may have been named by mistake. Later content of the topic has no effect.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, NamedTuple, NoReturn

from ....errors import ConfigError
from ....formats.events.expressions.looked_up import Origin, PublicTable, Value
from .lookups import MOST

_LARGEST = 10**18
_HALF = re.compile("[\ud800-\udfff]")  # JSON can escape surrogates, which no encoding allows


class ReferenceRecord(NamedTuple):
    """A record of a topic of reference data."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None  # None deletes the row of this key


class _Decimal(str):
    """A number with decimals, as written."""


def table_of(records: Iterable[ReferenceRecord], origin: Origin) -> PublicTable:
    """Make a table of the newest record of each key; the records of a partition are in order.

    A record without the compared field or without the value makes no row.

    Raises:
        ConfigError: a newest record is not a JSON object, or lacks a key; a field holds a list or
            an object; two rows have one key but different values; there is no row.
    """
    newest: dict[tuple[int, bytes], ReferenceRecord] = {}
    for record in records:
        if record.key is None:
            _refuse(record, origin, "has no key, so no later record could replace it")
        newest[record.partition, record.key] = record
    rows: dict[str, Value] = {}
    for record in newest.values():
        if record.value is None:
            continue
        body = _body(record, origin)
        key, value = (_field(body, path, record, origin) for path in (origin.match, origin.take))
        if key is None or value is None:
            continue
        if isinstance(key, bool):
            _refuse(record, origin, f"has a truth value as {origin.match}, which no field finds")
        if (before := rows.setdefault(str(key), value)) != value or type(before) is not type(value):
            _refuse(record, origin, f"has another {origin.take} than one with its {origin.match}")
        if len(rows) > MOST:
            raise ConfigError(f"topic {origin.topic} has more than {MOST:,} rows")
    if not rows:
        raise ConfigError(
            f"topic {origin.topic} has no rows with {origin.match} and {origin.take}: write it "
            "first, since a pipeline keeps what it was declared with"
        )
    return PublicTable(rows, origin)


def _body(record: ReferenceRecord, origin: Origin) -> dict[str, Any]:
    try:
        body = json.loads(record.value or b"", parse_float=_Decimal, parse_constant=_Decimal)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        _refuse(record, origin, "is no JSON object")
    return body


def _field(
    body: dict[str, Any], path: str, record: ReferenceRecord, origin: Origin
) -> Value | None:
    value: Any = body
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if value is None or value == "":
        return None
    if not isinstance(value, str | int):
        _refuse(record, origin, f"has a list or an object as {path}")
    if isinstance(value, int) and abs(value) >= _LARGEST:
        _refuse(record, origin, f"has a number of more than 18 digits as {path}")
    if isinstance(value, str) and _HALF.search(value):
        _refuse(record, origin, f"has half of a character as {path}")
    return str(value) if isinstance(value, str) else value


def _refuse(record: ReferenceRecord, origin: Origin, why: str) -> NoReturn:
    place = f"topic {origin.topic}, partition {record.partition}, offset {record.offset}"
    raise ConfigError(f"{place}: the record {why}; write a record of its key that is right")

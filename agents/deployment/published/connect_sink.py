"""A sink of Kafka Connect for the latest topic: its schema and its properties, ready to run.

Records of the topic are plain JSON. Connect's own converter takes their schema from its settings,
so a table in a database needs neither a registry nor another encoding of the records. The schema
follows from the configuration alone.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from ....errors import ConfigError
from ....formats.events.expressions.derived import Band, Cases, TimePart
from ....formats.events.expressions.looked_up import Lookup
from ....formats.events.keys import decode_key
from ..model import Pipeline
from .shapes import key_names, value_names

Field = dict[str, Any]
DOUBLES = ("value", "stddev", "low", "high")
SECOND = 1_000_000
KINDS: dict[type, str] = {bool: "boolean", int: "int64", str: "string"}


def value_schema(p: Pipeline, integers: Collection[str] = ()) -> Field:
    """Describe the rows of a pipeline as a schema of Connect's JSON converter.

    Args:
        integers: key columns that hold whole numbers, among those of `undeclared`.

    Raises:
        ConfigError: ``integers`` names a column that the key does not have.
    """
    names = key_names(p)
    if strange := sorted(set(integers) - set(names)):
        known = ", ".join(names) or "none"
        raise ConfigError(f"pipeline {p.name!r}: no key column {strange[0]!r}; there is {known}")
    values = value_names(p)
    doubles = [*DOUBLES, *(["display_value"] if p.non_negative else [])]
    kinds = key_kinds(p) | dict.fromkeys(integers, "int64")
    fields = [
        _struct("window", [_field("start", "string"), _field("end", "string")]),
        _field("trigger", "int32"),
        _field("final", "boolean"),
        _struct("key", [_field(name, kinds[name] or "string") for name in names]),
        _struct("values", [_struct(v, [_field(d, "double") for d in doubles]) for v in values]),
    ]
    return {"type": "struct", "fields": [one for one in fields if one.get("fields") != []]}


def undeclared(p: Pipeline) -> list[str]:
    """List key columns that producers may fill with text or with numbers.

    Connect's converter silently reads a number in a text column as no value.
    """
    return [name for name, kind in key_kinds(p).items() if kind is None]


def key_kinds(p: Pipeline) -> dict[str, str | None]:
    """Find Connect's type of each key column; None if only the records determine it."""
    listed = list(zip(*map(decode_key, p.public_keys or ()), strict=True))
    return {
        name: _own_kind(p, name) or (_kind_of(listed[place]) if listed else None)
        for place, name in enumerate(key_names(p))
    }


def _own_kind(p: Pipeline, name: str) -> str | None:
    """Type of a column that the mechanism or the configuration computes."""
    form = p.traits.keys
    if not form.of_record:
        return {"whole": "int64", "text": "string"}[form.kinds[name]]
    match p.fields.derived.get(name):
        case None:
            return None
        case TimePart(part="date"):
            return "string"
        case TimePart():
            return "int64"
        case Band(width=width):
            return "int64" if width.denominator == 1 else "string"
        case Cases() | Lookup() as listed:
            return _kind_of(listed.domain)
        case _:
            return "string"  # what is made of texts is text


def _kind_of(values: Collection[Any]) -> str | None:
    """The one type of some values; None if they have several."""
    kinds = {type(one) for one in values}
    return KINDS.get(kinds.pop()) if len(kinds) == 1 else None


def _field(name: str, kind: str) -> Field:
    return {"field": name, "type": kind, "optional": True}


def _struct(name: str, fields: list[Field]) -> Field:
    return {"field": name, "type": "struct", "optional": True, "fields": fields}


def sink_properties(p: Pipeline, url: str, table: str, integers: Collection[str] = ()) -> str:
    """Write the properties of a JDBC sink that keeps a table like the latest topic.

    Args:
        url: the database's JDBC URL.
        integers: key columns that hold whole numbers.

    Raises:
        ConfigError: there is no latest topic, its records are not JSON, or ``integers`` names an
            unknown column.
    """
    if p.latest_topic is None:
        raise ConfigError(f"pipeline {p.name!r} has no latest topic: release.latest is false")
    if p.encoding != "json":
        raise ConfigError(
            f"pipeline {p.name!r} releases {p.encoding} (release.encoding), and these properties "
            "are for JSON: take the registry's own converter as value.converter instead"
        )
    schema = json.dumps(value_schema(p, integers), separators=(",", ":"))
    transforms = "org.apache.kafka.connect.transforms"
    times = _times(p)
    lines = {
        "name": f"hush-{p.name}",
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        "tasks.max": "1",
        "topics": p.latest_topic,
        "consumer.override.isolation.level": "read_committed",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "true",
        "value.converter.schema.content": schema.replace("\\", "\\\\"),
        "transforms": ",".join(["id", "flat", *times]),
        "transforms.id.type": f"{transforms}.HoistField$Key",
        "transforms.id.field": "id",
        "transforms.flat.type": f"{transforms}.Flatten$Value",
        "transforms.flat.delimiter": "_",
    }
    for name in times:
        lines |= {
            f"transforms.{name}.type": f"{transforms}.TimestampConverter$Value",
            f"transforms.{name}.field": f"window_{name}",
            f"transforms.{name}.target.type": "Timestamp",
            f"transforms.{name}.format": "yyyy-MM-dd'T'HH:mm:ssX",
        }
    lines |= {
        "connection.url": url,
        "connection.username": "hush",
        "connection.password": "",
        "collection.name.format": table,
        "insert.mode": "upsert",
        "delete.enabled": "true",
        "primary.key.mode": "record_key",
        "primary.key.fields": "id",
        "schema.evolution": "basic",
        "quote.identifiers": "true",
    }
    return "".join(f"{name}={value}\n" for name, value in lines.items())


def _times(p: Pipeline) -> list[str]:
    """The ends of windows that become timestamps: both, unless they fall between two seconds.

    Connect's pattern of a time has a fixed number of decimals, and ours have none if they are 0.
    """
    windows = p.windows
    whole = windows.calendar is not None or not (windows.origin % SECOND or windows.length % SECOND)
    return ["start", "end"] if whole else []

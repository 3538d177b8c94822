"""A sink of Kafka Connect for the latest topic: its schema and its properties, ready to run.

Records of the topic are plain JSON. Connect's own converter takes their schema from its settings,
so a table in a database needs neither a registry nor another form of the records. The schema
follows from the configuration alone.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any

from ...errors import ConfigError
from ...formats.events.keys import decode_key
from .model import Pipeline
from .shapes import key_names, value_names

Field = dict[str, Any]
DOUBLES = ("value", "stddev", "low", "high")


def value_schema(p: Pipeline, integers: Collection[str] = ()) -> Field:
    """Describe the rows of a pipeline in the words of Connect's JSON converter.

    Args:
        integers: key columns that hold whole numbers; those of public keys are known.

    Raises:
        ConfigError: ``integers`` names a column that the key does not have.
    """
    names = key_names(p)
    if strange := sorted(set(integers) - set(names)):
        known = ", ".join(names) or "none"
        raise ConfigError(f"pipeline {p.name!r}: no key column {strange[0]!r}; there is {known}")
    values = value_names(p)
    doubles = [*DOUBLES, *(["display_value"] if p.non_negative else [])]
    key = [_field(name, kind) for name, kind in _key_types(p, names, integers)]
    fields = [
        _struct("window", [_field("start", "string"), _field("end", "string")]),
        _field("trigger", "int32"),
        _field("final", "boolean"),
        _struct("key", key),
        _struct("values", [_struct(v, [_field(d, "double") for d in doubles]) for v in values]),
    ]
    return {"type": "struct", "fields": [one for one in fields if one.get("fields") != []]}


def _key_types(
    p: Pipeline, names: Collection[str], integers: Collection[str]
) -> Iterator[tuple[str, str]]:
    known = decode_key(p.public_keys[0]) if p.public_keys else []
    kinds = {bool: "boolean", int: "int64"}
    for place, name in enumerate(names):
        listed = kinds.get(type(known[place])) if place < len(known) else None
        whole = name in integers or p.mechanism.keys.kinds.get(name) == "whole"
        yield name, "int64" if whole else listed or "string"


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
    flat = "org.apache.kafka.connect.transforms.Flatten$Value"
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
        "transforms": "id,flat",
        "transforms.id.type": "org.apache.kafka.connect.transforms.HoistField$Key",
        "transforms.id.field": "id",
        "transforms.flat.type": flat,
        "transforms.flat.delimiter": "_",
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

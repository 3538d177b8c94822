"""Avro schemas as types; the names that a schema defines are looked up once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from .schema import Schema, UnusableSchema

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


@dataclass(eq=False)
class AvroType:
    """A type of an Avro schema; each has an identity of its own, because types may be circular.

    Attributes:
        kind: a primitive, "fixed", "enum", "array", "map", "union" or "record".
        size: bytes of a fixed.
        symbols: of an enum.
        parts: types of items, values, branches or fields.
        names: of a record's fields.
    """

    kind: str
    size: int = 0
    symbols: tuple[str, ...] = ()
    parts: list[AvroType] = field(default_factory=list)
    names: list[str] = field(default_factory=list)


def parse_avro(schema: Schema) -> AvroType:
    """Parse a schema.

    Args:
        schema: with those that it refers to.

    Raises:
        UnusableSchema: it is not an Avro schema.
    """
    named: dict[str, AvroType] = {}
    try:
        for _, text in schema.references:
            _parse(msgspec.json.decode(text), "", named)
        return _parse(msgspec.json.decode(schema.text), "", named)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise UnusableSchema("not an Avro schema") from error


def _parse(raw: Any, space: str, named: dict[str, AvroType]) -> AvroType:
    if isinstance(raw, str):
        return _named(raw, space, named)
    if isinstance(raw, list):
        return AvroType("union", parts=[_parse(one, space, named) for one in raw])
    if not isinstance(raw, dict):
        raise UnusableSchema("a type must be a name, a list or a table")
    kind = raw.get("type")
    if kind in ("record", "error"):
        return _record(raw, space, named)
    if kind in ("array", "map"):
        inner = raw.get("items" if kind == "array" else "values")
        return AvroType(str(kind), parts=[_parse(inner, space, named)])
    if kind in ("enum", "fixed"):
        return _leaf(raw, str(kind), space, named)
    return _parse(kind, space, named)  # {"type": "long", "logicalType": …}


def _named(name: str, space: str, named: dict[str, AvroType]) -> AvroType:
    if name in PRIMITIVES:
        return AvroType(name)
    for full in (name,) if "." in name else (f"{space}.{name}", name):
        if full in named:
            return named[full]
    raise UnusableSchema("a type is not defined")


def _define(raw: dict[str, Any], kind: str, space: str, named: dict[str, AvroType]) -> str:
    """Enter a named type; return the namespace of what is inside it."""
    name, own = raw.get("name"), raw.get("namespace", space)
    if not isinstance(name, str) or not isinstance(own, str):
        raise UnusableSchema(f"a type {kind!r} needs a name")
    full = name if "." in name or not own else f"{own}.{name}"
    if full in named or full in PRIMITIVES:
        raise UnusableSchema("a type is defined twice")
    named[full] = AvroType(kind)
    raw["type"] = named[full]
    return full.rpartition(".")[0]


def _record(raw: dict[str, Any], space: str, named: dict[str, AvroType]) -> AvroType:
    inner = _define(raw, "record", space, named)
    made: AvroType = raw["type"]
    fields = raw.get("fields")
    if not isinstance(fields, list):
        raise UnusableSchema("a record needs fields")
    for one in fields:
        if not isinstance(one, dict) or not isinstance(one.get("name"), str):
            raise UnusableSchema("a field needs a name")
        made.names.append(one["name"])
        made.parts.append(_parse(one.get("type"), inner, named))
    if len(set(made.names)) < len(made.names):
        raise UnusableSchema("a record has two fields of one name")
    return made


def _leaf(raw: dict[str, Any], kind: str, space: str, named: dict[str, AvroType]) -> AvroType:
    size, symbols = raw.get("size", 0), raw.get("symbols", [])
    if not isinstance(size, int) or not isinstance(symbols, list) or size < 0:
        raise UnusableSchema(f"a type {kind!r} needs a size or symbols")
    _define(raw, kind, space, named)
    made: AvroType = raw["type"]
    made.size, made.symbols = size, tuple(map(str, symbols))
    return made

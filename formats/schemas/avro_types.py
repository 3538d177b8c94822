"""Avro schemas as types, with names already resolved."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import msgspec

from .schema import Schema, UnusableSchema

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
MOST_DEPTH = 128  # of types nested in the text
MOST_NESTED = 512  # of nested brackets: far below any recursion limit
MOST_NAME = 1_000  # characters of a complete name
MOST_FIXED = (1 << 31) - 1  # bytes of a fixed

_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


@dataclass(eq=False)
class AvroType:
    """A type of an Avro schema, compared by identity because types may be circular."""

    kind: str  # a primitive, "fixed", "enum", "array", "map", "union" or "record"
    size: int = 0  # bytes of a fixed
    symbols: tuple[str, ...] = ()  # of an enum
    # types of items, values, branches or fields
    parts: list[AvroType] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # of a record's fields


def parse_avro(schema: Schema) -> AvroType:
    """Parse a schema and those that it refers to.

    The verdict depends on the schema alone, never on a clock or the current depth of the stack: a
    replay must refuse the same ones. Raises `UnusableSchema` if it is not an Avro schema or is
    nested too deeply.
    """
    parser = _AvroParser()
    try:
        for _, text in schema.references:
            parser.parse(_decoded(text), "", 0)
        return parser.parse(_decoded(schema.text), "", 0)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise UnusableSchema("not an Avro schema") from error


def _decoded(text: str) -> Any:
    depth = 0
    for match in _BRACKETS.finditer(text):
        depth += (match.group() in "[{") - (match.group() in "]}")
        if depth > MOST_NESTED:
            raise UnusableSchema("brackets are nested too deeply")
    return msgspec.json.decode(text)


class _AvroParser:
    def __init__(self) -> None:
        self._named: dict[str, AvroType] = {}

    def parse(self, raw: Any, space: str, depth: int) -> AvroType:
        if depth > MOST_DEPTH:
            raise UnusableSchema("types are nested too deeply")
        if isinstance(raw, str):
            return self._lookup(raw, space)
        if isinstance(raw, list):
            return AvroType("union", parts=[self.parse(one, space, depth + 1) for one in raw])
        if not isinstance(raw, dict):
            raise UnusableSchema("a type must be a name, a list or a table")
        kind = raw.get("type")
        if kind in ("record", "error"):
            return self._record(raw, space, depth)
        if kind in ("array", "map"):
            inner = raw.get("items" if kind == "array" else "values")
            return AvroType(str(kind), parts=[self.parse(inner, space, depth + 1)])
        if kind in ("enum", "fixed"):
            return self._leaf(raw, str(kind), space)
        return self.parse(kind, space, depth + 1)  # {"type": "long", "logicalType": …}

    def _lookup(self, name: str, space: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        for full in (name,) if "." in name else (f"{space}.{name}", name):
            if full in self._named:
                return self._named[full]
        raise UnusableSchema("a type is not defined")

    def _define(self, raw: dict[str, Any], kind: str, space: str) -> str:
        """Register a named type; return the namespace of its content."""
        name, own = raw.get("name"), raw.get("namespace", space)
        if not isinstance(name, str) or not isinstance(own, str):
            raise UnusableSchema(f"a type {kind!r} needs a name")
        full = name if "." in name or not own else f"{own}.{name}"
        if len(full) > MOST_NAME:
            raise UnusableSchema("a name is too long")
        if full in self._named or full in PRIMITIVES:
            raise UnusableSchema("a type is defined twice")
        self._named[full] = AvroType(kind)
        raw["type"] = self._named[full]
        return full.rpartition(".")[0]

    def _record(self, raw: dict[str, Any], space: str, depth: int) -> AvroType:
        inner = self._define(raw, "record", space)
        made: AvroType = raw["type"]
        fields = raw.get("fields")
        if not isinstance(fields, list):
            raise UnusableSchema("a record needs fields")
        for one in fields:
            if not isinstance(one, dict) or not isinstance(one.get("name"), str):
                raise UnusableSchema("a field needs a name")
            made.names.append(one["name"])
            made.parts.append(self.parse(one.get("type"), inner, depth + 1))
        if len(set(made.names)) < len(made.names):
            raise UnusableSchema("a record has two fields of one name")
        return made

    def _leaf(self, raw: dict[str, Any], kind: str, space: str) -> AvroType:
        size, symbols = raw.get("size", 0), raw.get("symbols", [])
        if not isinstance(size, int) or not 0 <= size <= MOST_FIXED:
            raise UnusableSchema(f"a type {kind!r} needs a size of at most {MOST_FIXED}")
        if not isinstance(symbols, list) or not all(isinstance(one, str) for one in symbols):
            raise UnusableSchema(f"a type {kind!r} needs symbols that are texts")
        self._define(raw, kind, space)
        made: AvroType = raw["type"]
        made.size, made.symbols = size, tuple(symbols)
        return made

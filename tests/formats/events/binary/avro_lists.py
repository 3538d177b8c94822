"""Lists of records in Avro, mostly with schemas as producers have them."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping
from typing import Any

import fastavro
from hushstream.formats.schemas.schema import Pinned, Schema

from ...schemas.test_avro import _World as World
from .values import INTEGERS, LONGS, NEEDED, REALS, TEXTS, framed, spoilt

Kind = Any
LOGICAL = {"type": "long", "logicalType": "timestamp-millis"}
FITTING: dict[str, list[Kind]] = {
    "user": ["string", "long", "int", ["null", "string"], ["string", "long"]],
    "page": ["string", "int", "boolean", "enum", ["null", "string"], ["boolean", "string"]],
    "kind": ["boolean", "long", "enum", "string"],
    "t": ["long", LOGICAL, "int", ["null", "long"]],
    "fare": ["double", "float", "int", "long", ["null", "double"], ["int", "float"]],
}
STRANGE: list[Kind] = ["null", "bytes", "string", "double", "boolean", "fixed", "array", "record"]


class Writer(World):
    """Random schemas, mostly as producers have them, and values of them."""

    def event(self) -> dict[str, Any]:
        """A schema that has the needed fields among others."""
        fields = []
        for name in NEEDED:
            if self.rng.random() < 0.02:
                continue
            odd = self.rng.random() < 0.03
            fields.append({"name": name, "type": self.filled(
                self.rng.choice(STRANGE if odd else FITTING[name]))})  # fmt: skip
        others = range(self.rng.randrange(5))
        fields.extend({"name": f"f{n}", "type": self.kind(0)} for n in others)
        self.rng.shuffle(fields)
        return {"type": "record", "name": self._name(), "fields": fields}

    def filled(self, kind: Kind) -> Kind:
        """A type, completed with a name or parts if it needs them."""
        if kind == "enum":
            symbols = ["A", "B", "long_one"][: self.rng.randrange(1, 4)]
            return {"type": "enum", "name": self._name(), "symbols": symbols}
        if kind == "fixed":
            return {"type": "fixed", "name": self._name(), "size": 2}
        if kind == "array":
            return {"type": "array", "items": "long"}
        return self.record(2) if kind == "record" else kind

    def value(self, kind: Any) -> Any:
        """A value; texts and numbers are often hard to read."""
        if kind == "string":
            return self.rng.choice(TEXTS) if self.rng.random() < 0.3 else self.rng.choice("abc")
        if kind == "long":
            hard = self.rng.random() < 0.1
            return self.rng.choice(LONGS) if hard else self.rng.randrange(2 * 10**12)
        if kind == "int":
            return self.rng.choice(INTEGERS)
        if kind in ("double", "float"):
            hard = self.rng.choice(REALS[:4] if kind == "float" else REALS)
            return hard if self.rng.random() < 0.3 else self.rng.randrange(400) / 4
        if isinstance(kind, dict) and kind.get("logicalType"):
            return self.rng.randrange(2 * 10**12)
        return super().value(kind)


def in_avro(schema: Any, value: Any) -> bytes:
    to = io.BytesIO()
    fastavro.schemaless_writer(to, schema, value)
    return to.getvalue()


def avro_list(seed: int, size: int = 250) -> tuple[list[bytes | None], dict[int, Pinned]]:
    """Plain and spoilt values of four alternating schemas, and the schemas by id."""
    world = Writer(seed)
    random = world.rng
    schemas = [world.event() for _ in range(4)]
    parsed = [fastavro.parse_schema(one, _write_hint=False) for one in schemas]
    known = {n: Pinned(Schema("AVRO", json.dumps(one)), 0) for n, one in enumerate(schemas)}
    known[3] = known[3]._replace(since=size // 2)
    known[7] = Pinned(Schema("PROTOBUF", "syntax = 'proto3';"), 0)
    known[8] = Pinned(Schema("AVRO", "garbage"), 0)
    values: list[bytes | None] = []
    for _ in range(size):
        which = random.randrange(4) if random.random() < 0.2 else seed % 4
        payload = in_avro(parsed[which], world.value(schemas[which]))
        if random.random() < 0.35:
            payload = spoilt(random, payload)
        number = random.choice((which, random.randrange(10))) if random.random() < 0.1 else which
        values.append(framed(number, payload))
    values[5], values[6], values[7], values[8] = None, b"", b"\0\0\0", framed(0, b"")
    values[9] = framed(0, bytes(3_000))
    return values, known


BODY = b"\x02u\x02a\x02k\x0a" + struct.pack("<d", 2.0)  # a plain value's body


def avro_of(kinds: Mapping[str, Any], *more: Any) -> Pinned:
    plain = {"user": "string", "page": "string", "kind": "string", "t": "long", "fare": "double"}
    fields = [{"name": n, "type": kinds.get(n, kind)} for n, kind in plain.items()]
    text = json.dumps({"type": "record", "name": "E", "fields": [*fields, *more]})
    return Pinned(Schema("AVRO", text), 0)

"""Protobuf as the official library writes it, byte for byte.

Covers: formats/values/proto_read.py
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf import json_format
from hushstream.formats.bytes_in import BrokenBytes, Bytes
from hushstream.formats.schemas.proto_text import parse_protobuf
from hushstream.formats.schemas.schema import Schema
from hushstream.formats.values.proto_codec import schema, writer
from hushstream.formats.values.proto_read import reader
from hushstream.formats.values.shape import SCALAR, WHOLE, ValueShape, listed, names_of, record
from hushstream.topics.releases import MANIFEST, ROW

from ...judge.proto_classes import message_class
from .records import bodies, described
from .test_avro_codec import ODD, PLACES


def message(shape: ValueShape, value: Any) -> Any:
    """A record in the JSON form of the official library."""
    if shape.kind == "record":
        inner = names_of(shape)
        return {a: message(s, value[n]) for n, a, s in inner if value[n] is not None}
    if shape.kind == "list":
        within = [message(shape.inner, one) for one in value]
        return [{"items": one} for one in within] if shape.inner.kind == "list" else within
    if shape.kind == "map":
        within = {name: message(shape.inner, one) for name, one in value.items()}
        return (
            {n: {"items": o} for n, o in within.items()} if shape.inner.kind == "list" else within
        )
    if shape.kind == "scalar":
        name = {str: "text", bool: "truth"}.get(type(value), "whole")
        return {name: value}
    return value


@pytest.mark.parametrize("header", [ROW, MANIFEST])
@pytest.mark.parametrize("case,change", PLACES)
def test_the_official_library_writes_the_same_bytes_and_reads_them(
    case: str, change: str, header: str
) -> None:
    shape = described(case, change)[header]
    text = schema(shape, "hush.p")
    kind, write = message_class(text), writer(shape)
    parse_protobuf(Schema("PROTOBUF", text))  # an input could use the schema too
    for body in [b for h, b in bodies(case, change) if h == header][:40]:
        mine, theirs = bytearray(), kind()
        write(body, mine)
        json_format.ParseDict(message(shape, body), theirs)
        assert bytes(mine) == theirs.SerializeToString(deterministic=True)


@pytest.mark.parametrize("key", ["", "é", -5, 0, True, False, 1 << 62, 1 << 63, -(10**400)])
def test_odd_names_and_keys_of_any_size(key: Any) -> None:
    body = {
        "a.b": "", "a_b": -7, "9": 0, "key": key, "lists": [[1], [], [2, 3]],
        "map": {"z": ["1"], "a": []}, "self": {"x": 0}, "again": {"x": -0.0},
    }  # fmt: skip
    out = bytearray()
    writer(ODD)(body, out)
    data = Bytes(bytes(out), 0, len(out))
    found = reader(ODD)(data)
    assert found == body and type(found["key"]) is type(key)
    kind = message_class(schema(ODD, "n"))
    theirs = kind.FromString(bytes(out))
    assert theirs.a_b_2 == -7 and theirs.HasField("x9") and theirs.HasField("self")
    assert theirs.SerializeToString(deterministic=True) == bytes(out)
    large = isinstance(key, int) and not -(1 << 63) <= key < 1 << 63
    assert (theirs.key.WhichOneof("kind") == "large") == large


def test_names_are_told_where_they_had_to_change() -> None:
    text = schema(ODD, "n")
    assert "int64 a_b_2 = 2;  // a_b." in text and "string a_b = 1;  // a.b." in text
    hostile = record("R", [("a\n}\u2028", WHOLE)])
    assert "int64 a___ = 1;  // a?}?." in schema(hostile, "n")


def test_what_a_message_lacks_or_has_besides_is_refused() -> None:
    shape = record("R", [("n", WHOLE), ("list", listed(WHOLE)), ("of", record("S", []))])
    read = reader(shape)
    for blob in (
        b"",
        b"\x08\x01",
        b"\x1a\x00\x20\x01",
        b"\x0d\0\0\0\0",
        b"\x1a\x05",
        b"\x1a\x01\x08",
    ):
        with pytest.raises(BrokenBytes):
            read(Bytes(blob, 0, len(blob)))
    assert read(Bytes(b"\x1a\x00", 0, 2)) == {"n": 0, "list": [], "of": {}}
    for blob in (b"\x0a\x00", b"\x0a\x02\x28\x01", b"\x0a\x03\x22\x01x"):
        with pytest.raises(BrokenBytes):
            reader(record("K", [("key", SCALAR)]))(Bytes(blob, 0, len(blob)))
    with pytest.raises(ValueError, match="missing"):
        writer(shape)(json.loads('{"n": null, "list": [], "of": {}}'), bytearray())

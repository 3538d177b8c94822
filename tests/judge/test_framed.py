"""The judge reads values with schemas of a registry, as other libraries write them."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2

from ..integration.test_attribute_formats import message_type
from .framed import NOTHING, unframed

AVRO = json.dumps({
    "type": "record", "name": "User", "doc": "Some. User", "fields": [
        {"name": "id", "type": "string", "doc": "other. name"},
        {"name": "home", "type": {"type": "record", "name": "Home", "fields": [
            {"name": "country", "type": ["null", {
                "type": "enum", "name": "Land", "symbols": ["DE", "FR"]}]}]}},
        {"name": "score", "type": "double"}, {"name": "tags", "type": {
            "type": "array", "items": "string"}},
    ],
})  # fmt: skip
PROTO = 'syntax = "proto3";\nmessage User {\n  string id = 3;\n  string country = 1;\n}\n'
FILE = descriptor_pb2.FileDescriptorProto()
message_type(1).DESCRIPTOR.file.CopyToProto(FILE)
CODED = base64.b64encode(FILE.SerializeToString()).decode()
TEXTS = {1: ("avro", AVRO), 2: ("protobuf", PROTO), 3: ("json_schema", "{}"),
         4: ("protobuf", CODED)}  # fmt: skip


def avro(value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(AVRO)), value)
    return out.getvalue()


def read(encoding: str, number: int, data: bytes) -> Any:
    value = unframed(encoding, b"\0" + number.to_bytes(4, "big") + data, TEXTS)
    return json.loads(value or b"null")


def test_values_of_each_format_are_read():
    body = {"id": "u", "home": {"country": "DE"}, "score": 1.5, "tags": ["a"]}
    assert read("avro", 1, avro(body)) == {**body, "tags": []}
    nan = {**body, "score": float("nan"), "home": {"country": None}}
    assert read("avro", 1, avro(nan)) == {**nan, "score": None, "tags": []}
    message = message_type(1)(id="u").SerializeToString()
    for number in (2, 4):
        assert read("protobuf", number, b"\0" + message) == {"id": "u", "country": ""}
    assert read("json_schema", 3, b'{"id": 3}') == {"id": 3}


def test_json_and_what_is_taken_back_stay_as_they_are():
    assert unframed("json", b"{", TEXTS) == b"{"
    assert unframed("avro", None, TEXTS) is None


@pytest.mark.parametrize(
    ("encoding", "value"),
    [
        ("avro", b"{}"),
        ("avro", b"\0\0\0\0\x09x"),
        ("avro", b"\0\0\0\0\x01\x02"),
        ("avro", b"\0\0\0\0\x03{}"),  # this schema has another format
        ("protobuf", b"\0\0\0\0\x02\x02\x02"),
        ("json_schema", b"\0\0\0\0\x03{"),
    ],
)
def test_what_cannot_be_read_is_no_json(encoding: str, value: bytes):
    assert unframed(encoding, value, TEXTS) == NOTHING
